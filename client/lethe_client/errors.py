"""What can go wrong, as one tree.

LetheError
├── ConfigurationInvalid    the URL or the token cannot be used at all
├── TransportFailed         no answer came; `.maybe_done` says whether the request may have had its effect
├── UnexpectedAnswer        an answer came that is not one of Lethe's
├── PlanFailed              the job that should have made a plan did not; `.job` says why
├── WaitTimedOut            the caller's own time limit passed; `.job` is what was seen last
└── ProblemError            Lethe refused: status, code, title, detail, retryable, errors, request_id
    ├── RequestInvalid      400, 422
    ├── NotAuthenticated    401
    ├── PermissionDenied    403
    ├── NotFound            404
    ├── Conflict            409
    ├── Gone                410
    ├── PreconditionFailed  412, 428
    ├── TooManyRequests     429
    ├── ServerFailed        500 and other 5xx
    └── ServiceUnavailable  503
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lethe_client.results import Job


PLACES_MAX: Final = 5


class LetheError(Exception):
    """Every error that this library raises by intent."""


class ConfigurationInvalid(LetheError):
    """The URL or the token cannot be used at all; nothing was sent."""


class TransportFailed(LetheError):
    """No answer came, after as many attempts as were safe."""

    def __init__(self, detail: str, *, maybe_done: bool, request_id: str, url: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.url = url
        self.maybe_done = maybe_done
        self.request_id = request_id


class UnexpectedAnswer(LetheError):
    """An answer came that is not one of Lethe's: another service, a proxy's page, another version."""


class PlanFailed(LetheError):
    """The job that should have made a plan ended without one."""

    def __init__(self, job: "Job") -> None:
        cause = f"{job.error.code}: {job.error.detail}" if job.error else job.state
        super().__init__(f"planning job {job.id} did not succeed: {cause}")
        self.job = job


class WaitTimedOut(LetheError):
    """The caller's own time limit passed; the job itself goes on."""

    def __init__(self, job: "Job", *, timeout_s: float) -> None:
        super().__init__(f"job {job.id} is still {job.state} after {timeout_s:g} s")
        self.job = job
        self.timeout_s = timeout_s


class ProblemError(LetheError):
    """Lethe answered with `application/problem+json`.

    `document` is the whole problem, members that this library does not know included. `url` is what answered,
    where the answer came over a connection of its own.
    """

    def __init__(self, status: int, document: Mapping[str, Any], *, request_id: str, url: str = "") -> None:
        self.status = status
        self.url = url
        self.document = dict(document)
        self.code = str(document.get("code") or f"HTTP_{status}")
        self.title = str(document.get("title") or "")
        self.detail = str(document.get("detail") or self.title or f"the service answered {status}")
        self.retryable = bool(document.get("retryable", False))
        errors = document.get("errors")
        self.errors: tuple[Mapping[str, Any], ...] = tuple(errors) if isinstance(errors, list) else ()
        self.request_id = request_id
        super().__init__(f"{self.code}: {self.detail}{_places(self.errors)}")


def _places(errors: tuple[Any, ...]) -> str:
    """The fields that are wrong and why, as far as a message has room."""
    known = [each for each in errors if isinstance(each, Mapping)]
    shown = [f"{each.get('pointer') or '/'}: {each.get('detail', '')}" for each in known[:PLACES_MAX]]
    more = [f"and {len(known) - PLACES_MAX} more"] if len(known) > PLACES_MAX else []
    return f" ({'; '.join(shown + more)})" if shown else ""


class RequestInvalid(ProblemError):
    """400, 422: `errors` points at what is wrong."""


class NotAuthenticated(ProblemError):
    """401: no token, an unknown one, or one that has expired."""


class PermissionDenied(ProblemError):
    """403: the token lacks a scope or the store."""


class NotFound(ProblemError):
    """404."""


class Conflict(ProblemError):
    """409: another job, an illegal transition, a key in flight."""


class Gone(ProblemError):
    """410: it was there and has ended."""


class PreconditionFailed(ProblemError):
    """412, 428: what was read before is no longer so."""


class TooManyRequests(ProblemError):
    """429."""


class ServerFailed(ProblemError):
    """500 and the other 5xx."""


class ServiceUnavailable(ProblemError):
    """503."""


_BY_STATUS: Mapping[int, type[ProblemError]] = {
    400: RequestInvalid,
    401: NotAuthenticated,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    410: Gone,
    412: PreconditionFailed,
    422: RequestInvalid,
    428: PreconditionFailed,
    429: TooManyRequests,
    503: ServiceUnavailable,
}


def problem(status: int, document: Mapping[str, Any], *, request_id: str, url: str = "") -> ProblemError:
    """Make the error of a status; one without a class of its own is a ServerFailed or a ProblemError."""
    kind = _BY_STATUS.get(status, ServerFailed if status >= 500 else ProblemError)
    return kind(status, document, request_id=request_id, url=url)
