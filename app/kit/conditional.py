"""Strong ETags from row versions, and the conditional headers (RFC 9110, 13.1)."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import Header
from pydantic import BaseModel
from starlette.responses import Response

from app.errors import EtagMismatch, InvalidHeader, PreconditionMissing

IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="The ETag that was read. Missing: 428. Stale: 412.")
]
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="Answer 304 if still current.")]

LEARNED_MARK = "-"
BEGINNING: Final = datetime(2020, 1, 1, tzinfo=UTC)
_TAG = re.compile(r'\s*(W/)?"([^"]*)"\s*')


def version_of(number: int, made_at: datetime) -> str:
    """The version of a row whose id clients choose: once removed and made anew it has none of its former."""
    return f"{number}.{int(made_at.timestamp() * 1_000_000):x}"


def least_version(now: datetime) -> int:
    """A version that no row had before: less than one change a second, and 32 bits hold it."""
    return (now - BEGINNING) // timedelta(seconds=1)


def etag(version: int | str, learned: str = "") -> str:
    """The strong ETag of a row version.

    Args:
        learned: what the service itself has learned and shows beside it. It tells representations apart for
            If-None-Match; a change by a client (If-Match) asks for the version alone.
    """
    return f'"{version}{LEARNED_MARK}{learned}"' if learned else f'"{version}"'


def _parse(header: str) -> list[tuple[bool, str]]:
    """Split a list of entity tags into (weak, tag)."""
    if header.strip() == "*":
        return [(False, "*")]
    tags = []
    for part in header.split(","):
        match = _TAG.fullmatch(part)
        if match is None:
            raise InvalidHeader(f"not an entity tag: {part.strip()[:100]}")
        tags.append((match.group(1) is not None, match.group(2)))
    return tags


def require_match(header: str | None, version: int | str, learned: str = "") -> None:
    """Demand that the client changes what it has read.

    Args:
        learned: of `etag`, for the answer to a client that has read another version.
    Raises:
        PreconditionMissing: no If-Match.
        EtagMismatch: another version.
    """
    if header is None:
        raise PreconditionMissing("this change needs If-Match with the ETag that you read")
    tags = _parse(header)
    wanted = ("*", str(version))
    if not any(not weak and tag.partition(LEARNED_MARK)[0] in wanted for weak, tag in tags):
        raise EtagMismatch("it has changed since you read it", headers={"ETag": etag(version, learned)})


def is_current(header: str | None, version: int | str, learned: str = "") -> bool:
    """Tell whether If-None-Match names this version, so that 304 is the answer."""
    current = f"{version}{LEARNED_MARK}{learned}" if learned else str(version)
    return header is not None and any(tag in ("*", current) for _, tag in _parse(header))


def conditional_answer(
    resource: BaseModel,
    version: int | str,
    if_none_match: str | None,
    *,
    learned: str = "",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """200 with a resource and the ETag of its version, or 304 where If-None-Match names that version.

    Args:
        learned: of `etag`.
        headers: further ones, of both answers.
    Raises: InvalidHeader: no entity tags.
    """
    found = {"ETag": etag(version, learned), **(headers or {})}
    if is_current(if_none_match, version, learned):
        return Response(status_code=304, headers=found)
    return shown(resource, headers=found)


def shown(resource: BaseModel, *, headers: Mapping[str, str] | None = None) -> Response:
    """200 with a resource that is what the operation says: it is written as JSON, and not looked at again."""
    body = resource.model_dump_json(by_alias=True)
    return Response(body, media_type="application/json", headers=headers)
