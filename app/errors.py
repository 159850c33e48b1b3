"""Errors of the service, and their rendering as application/problem+json (RFC 9457).

ServiceError
 +- BadRequest 400        InvalidJson, InvalidPageToken, InvalidHeader
 +- Unauthenticated 401   TokenExpired
 +- Forbidden 403         ScopeMissing, StoreForbidden, TokenLimitedToStores
 +- NotFound 404          StoreNotFound, JobNotFound, ...
 +- TooSlow 408
 +- Conflict 409          IllegalTransition, ConflictingJob, ...
 +- Gone 410              ProtectionExpired, BackupSessionOver
 +- Precondition 412      EtagMismatch, PlanNoLongerHolds
 +- TooLarge 413
 +- UnsupportedMediaType 415
 +- Unprocessable 422     InvalidRequest, FutureCutoff, ...
 +- PreconditionMissing 428
 +- TooMany 429
 +- Unavailable 503       MetadataBusy, MetadataUnavailable
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app.kit.texts.help import help_of
from app.kit.values import STORE_ID

PROBLEM_JSON = "application/problem+json"
TYPE_PREFIX = "urn:lethe:problem:"
DETAIL_MAX_CHARS = 2_000


class ServiceError(Exception):
    """An error that a client may see: its code, its status and what to do about it."""

    status = 500
    retryable = False

    def __init__(
        self,
        detail: str = "",
        *,
        code: str | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or code_of(type(self))
        self.errors = list(errors)
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


class BadRequest(ServiceError):
    """The request cannot be understood."""

    status = 400


class InvalidJson(BadRequest):
    """The body is not JSON."""


class InvalidPageToken(BadRequest):
    """A page token that this service did not give for this list."""


class InvalidHeader(BadRequest):
    """A header's value is out of its grammar."""


class Unauthenticated(ServiceError):
    """No token, or one that is unknown or revoked."""

    status = 401

    def __init__(self, detail: str = "", **kwargs: Any) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": "Bearer"}, **kwargs)


class TokenExpired(Unauthenticated):
    """The token was good once."""


class Forbidden(ServiceError):
    """The caller is known, and may not."""

    status = 403


class ScopeMissing(Forbidden):
    """The token lacks the scope that the operation asks for."""


class StoreForbidden(Forbidden):
    """The token is limited to other stores."""


class TokenLimitedToStores(Forbidden):
    """What was asked for is of all stores, and the token is limited to some."""


class NotFound(ServiceError):
    """There is no such thing."""

    status = 404


class MethodNotAllowed(ServiceError):
    """The path exists, the method does not."""

    status = 405


class Conflict(ServiceError):
    """The state of the thing does not allow it."""

    status = 409


class TooSlow(ServiceError):
    """What was begun did not come to its end."""

    status = 408


class Gone(ServiceError):
    """It was there, and its time is over."""

    status = 410


class PreconditionFailed(ServiceError):
    """What the client knew is no longer so."""

    status = 412


class EtagMismatch(PreconditionFailed):
    """If-Match names another version."""


class TooLarge(ServiceError):
    """The body is larger than the service takes."""

    status = 413


class BodyTooLarge(HTTPException):
    """A body passes its bound while it is read; FastAPI's own reader lets only HTTPExceptions through."""

    def __init__(self, detail: str, *, code: str) -> None:
        super().__init__(413, detail)
        self.code = code


class BodyTooSlow(HTTPException):
    """A body does not come; FastAPI's own reader lets only HTTPExceptions through."""

    def __init__(self, detail: str) -> None:
        super().__init__(408, detail, headers={"Connection": "close"})


class UnsupportedMediaType(ServiceError):
    """The body is of a form that the operation does not take."""

    status = 415


class Unprocessable(ServiceError):
    """Well-formed, and wrong."""

    status = 422


class InvalidRequest(Unprocessable):
    """Fields that fail their validation, each with its pointer."""


class PreconditionMissing(ServiceError):
    """A change of configuration without If-Match."""

    status = 428


class TooMany(ServiceError):
    """A limit of the service is reached; come back later."""

    status = 429
    retryable = True


class BadGateway(ServiceError):
    """The target answered, and its answer is an error."""

    status = 502


class Unavailable(ServiceError):
    """Not now."""

    status = 503
    retryable = True


class TargetUnavailable(Unavailable):
    """The target of a store cannot be reached."""


class MetadataBusy(Unavailable):
    """The metadata database has no room for this request."""

    def __init__(self, detail: str = "the metadata database is busy") -> None:
        super().__init__(detail, headers={"Retry-After": "1"})


class MetadataUnavailable(Unavailable):
    """The metadata database cannot be reached."""

    def __init__(self, _cause: str = "") -> None:
        super().__init__("the metadata database cannot be reached", headers={"Retry-After": "2"})


def code_of(kind: type[ServiceError]) -> str:
    """The code of an error that was given none: its name, `StoreNotFound` is STORE_NOT_FOUND."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).upper()


def problem(request: Request, error: ServiceError) -> JSONResponse:
    """Render an error; never a trace, never a secret."""
    request.scope.setdefault("state", {})["problem_code"] = error.code
    body = problem_body(error, instance=request.url.path)
    return JSONResponse(body, status_code=error.status, headers=error.headers, media_type=PROBLEM_JSON)


def problem_body(error: ServiceError, *, instance: str) -> dict[str, Any]:
    """What a problem says: of an answer, or of an event in a stream that has begun."""
    body: dict[str, Any] = {
        "type": TYPE_PREFIX + error.code.lower().replace("_", "-"),
        "title": error.code.replace("_", " ").capitalize(),
        "status": error.status,
        "detail": error.detail[:DETAIL_MAX_CHARS],
        "instance": instance,
        "code": error.code,
        "retryable": error.retryable,
        "help": help_of(error.code),
    }
    if error.errors:
        body["errors"] = error.errors
    return body | error.extra


def _pointer(location: Sequence[str | int]) -> str:
    """Turn a validation location into a JSON pointer (`/limits/max_rows`), a parameter into its name."""
    place, *rest = location
    parts = [str(part).replace("~", "~0").replace("/", "~1") for part in rest]
    return "/" + "/".join(parts) if place == "body" else f"{place}:{'.'.join(parts)}"


def faults_of(found: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Pydantic's faults as a problem's `errors`; a location begins with the part of the request."""
    return [{"pointer": _pointer(item["loc"]), "detail": _fault_detail(item)} for item in found]


def _fault_detail(item: Mapping[str, Any]) -> str:
    if item["type"] == "string_pattern_mismatch" and item["ctx"]["pattern"] == STORE_ID:
        return "small letters, digits and hyphens, a letter first; 63 at most"
    if item["type"] == "time_delta_parsing":  # pydantic's words are of its parser
        return "not a duration of ISO 8601, such as P90D, PT8H or PT30M"
    return str(item["msg"]).removeprefix("Value error, ")


def _is_wrong_kind(item: Mapping[str, Any]) -> bool:
    return tuple(item["loc"]) == ("body", "kind") and item["type"] in ("enum", "literal_error")


def _nothing_there(path: str, parameter: str) -> ServiceError:
    """An id that nothing can have names nothing."""
    what = "archive" if path.startswith("/v1/archives") else parameter.removesuffix("_id")
    return NotFound(f"there is no such {what}", code=f"{what.upper()}_NOT_FOUND")


def _validation(error: RequestValidationError, path: str) -> ServiceError:
    found = error.errors()
    unnamed = next((item["loc"][1] for item in found if item["loc"][0] == "path"), None)
    if unnamed is not None:
        return _nothing_there(path, str(unnamed))
    if any(item["type"] == "json_invalid" for item in found):
        return InvalidJson("the body is not valid JSON")
    errors = faults_of(found)
    wrong_kind = next((item for item in found if _is_wrong_kind(item)), None)
    if wrong_kind is not None:  # what the other fields should be is the kind's to say
        return InvalidRequest(f"kind: {wrong_kind['msg']}", code="KIND_NOT_SUPPORTED", errors=errors)
    return InvalidRequest(f"{len(errors)} field(s) are not valid", errors=errors)


def _http(error: HTTPException) -> ServiceError:
    by_status: dict[int, type[ServiceError]] = {404: NotFound, 405: MethodNotAllowed}
    if isinstance(error, BodyTooSlow):
        return TooSlow(error.detail, code="BODY_TOO_SLOW", headers=dict(error.headers or {}))
    if isinstance(error, BodyTooLarge):
        return TooLarge(error.detail, code=error.code)
    if error.status_code == 400:  # a body that json.loads gives up on: bad UTF-8, too deep, a number too long
        return InvalidJson("the body is not valid JSON")
    kind = by_status.get(error.status_code, BadRequest)
    return kind(str(error.detail), headers=dict(error.headers or {}))


def install(app: FastAPI) -> None:
    """Make every error of the application leave as a problem."""

    @app.exception_handler(ServiceError)
    async def _service(request: Request, error: ServiceError) -> Response:
        return problem(request, error)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        return problem(request, _validation(error, request.url.path))

    @app.exception_handler(HTTPException)
    async def _status(request: Request, error: HTTPException) -> Response:
        return problem(request, _http(error))

    @app.exception_handler(ClientDisconnect)
    async def _gone(request: Request, _error: ClientDisconnect) -> Response:
        # Nobody reads it: the access log's line is all that is to be seen.
        return problem(request, BadRequest("the request was not sent to its end", code="REQUEST_CUT_OFF"))

    @app.exception_handler(Exception)
    async def _bug(request: Request, _error: Exception) -> Response:
        # Starlette answers bugs outside of our middleware: the id that the log names is set here.
        headers = {"X-Request-ID": request.state.request_id}
        error = ServiceError("an unexpected error; see the log", code="INTERNAL", headers=headers)
        return problem(request, error)
