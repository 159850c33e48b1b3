"""How problems are described in OpenAPI: one schema, an example for each status."""

from typing import Any

from pydantic import Field

from app.errors import PROBLEM_JSON, TYPE_PREFIX
from app.kit.model import Model
from app.kit.texts.help import help_of
from app.runbook.entry import Seen
from app.runbook.schemas import codes_of


class ProblemField(Model):
    """One field that fails."""

    pointer: str = Field(description="JSON pointer into the body, or `query:name`, `header:name`.")
    detail: str


class Problem(Model):
    """RFC 9457, with a machine-readable code."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str = Field(
        description="UPPER_SNAKE; stable. Newer versions and peers may have others.",
        json_schema_extra=codes_of(Seen.HTTP, Seen.TARGET),
    )
    retryable: bool = Field(description="The same request may succeed later.")
    help: str = Field(description="Where the documentation says what it means, and what to do.")
    errors: list[ProblemField] | None = None


_EXAMPLES: dict[int, tuple[str, str, str]] = {
    400: ("Not understood", "INVALID_JSON", "the body is not valid JSON"),
    401: ("Not authenticated", "TOKEN_UNKNOWN", "the token is not known"),
    403: ("Not allowed", "SCOPE_MISSING", "this needs the scope purges:write"),
    404: ("Not found", "JOB_NOT_FOUND", "there is no such job"),
    408: ("The body does not come", "BODY_TOO_SLOW", "nothing of the body came for 15 s"),
    409: ("In conflict with its state", "ILLEGAL_TRANSITION", "a SUCCEEDED job cannot be paused"),
    410: ("Its time is over", "PROTECTION_EXPIRED", "the lease ran out at 2026-11-20T10:54:39Z"),
    412: ("No longer so", "ETAG_MISMATCH", "it has changed since you read it"),
    413: ("Too large", "BODY_TOO_LARGE", "the body is larger than 1048576 bytes"),
    415: ("Of another form", "UNSUPPORTED_MEDIA_TYPE", "text/csv is not taken here"),
    422: ("Not valid", "INVALID_REQUEST", "1 field(s) are not valid"),
    428: ("If-Match is missing", "PRECONDITION_MISSING", "this change needs If-Match"),
    429: ("Too many", "TOO_MANY", "the queue of jobs is full"),
    502: ("The target refuses", "TARGET_AUTH_FAILED", "the target refuses the credentials"),
    503: ("Not now", "METADATA_UNAVAILABLE", "the metadata database cannot be reached"),
}
SCHEMA = "#/components/schemas/Problem"
_ALWAYS = (400, 401, 403, 408, 413, 422, 429, 503)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems that an operation may answer: the usual ones and `statuses`."""
    described: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*_ALWAYS, *statuses}):
        title, code, detail = _EXAMPLES[status]
        example = {
            "type": TYPE_PREFIX + code.lower().replace("_", "-"),
            "title": code.replace("_", " ").capitalize(),
            "status": status,
            "detail": detail,
            "instance": "/v1/jobs",
            "code": code,
            "retryable": status in (429, 503),
            "help": help_of(code),
        }
        described[status] = {
            "description": title,
            "content": {
                PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}
            },
        }
    return described
