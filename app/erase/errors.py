"""Errors of erasure cycles.

ServiceError
 +- NotFound 404       CycleNotFound, LogEntryNotFound, SigningKeyNotFound
 +- Conflict 409       CycleRunning, CycleNotEnded, EnvironmentRefused
 +- Unprocessable 422  PeriodMissing
 +- Unavailable 503    SigningKeyUnusable
"""

from app.errors import Conflict, NotFound, Unavailable, Unprocessable
from spark.erase.errors import LogRefused


class CycleNotFound(NotFound):
    """There is no such cycle of this store, or it has been forgotten with its job."""


class LogEntryNotFound(NotFound):
    """No entry of the log begins there."""


class SigningKeyNotFound(NotFound):
    """No key of this fingerprint has signed here."""


class CycleRunning(Conflict):
    """One active cycle a store."""

    def __init__(self, cycle_id: str, job_id: str) -> None:
        super().__init__(f"{cycle_id} has not ended", extra={"erasure_cycle_id": cycle_id, "job_id": job_id})


class CycleNotEnded(Conflict):
    """What is asked for is there when the cycle has ended."""


class EnvironmentRefused(Conflict):
    """The environment cannot be worked on as it is; file and offset are named where they are known."""

    def __init__(self, error: LogRefused) -> None:
        extra = {"file": error.file, "offset": error.offset}
        super().__init__(
            str(error),
            code=error.code,
            extra={name: value for name, value in extra.items() if value is not None},
        )


class PeriodMissing(Unprocessable):
    """Neither the request nor the store's je.erase.period says how long a cycle is."""


class SigningKeyUnusable(Unavailable):
    """The key that signs certificates cannot be read or made."""
