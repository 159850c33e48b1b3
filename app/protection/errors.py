"""Errors of protections and of the control file of an environment.

ServiceError
 +- NotFound 404       ProtectionNotFound
 +- Conflict 409       NotProtected, ProtectionEnded, ProtectionOfSession, TooManyProtections,
 |                     EnvironmentNotHere, EnvironmentUnusable, EpochAhead
 +- Gone 410           ProtectionExpired
 +- Unprocessable 422  NotPartOfProtection, LogFileMissing
 +- TooMany 429        TooManyWaiters
 +- Unavailable 503    EraseAbortTimeout, ControlFileBusy, ServiceStopping
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Self

from app.errors import Conflict, Gone, NotFound, TooMany, Unavailable, Unprocessable

NAMES_SHOWN_MAX = 20


def some_names(names: Sequence[str]) -> str:
    """The first few names of many."""
    rest = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {rest} more" if rest > 0 else "")


class ProtectionNotFound(NotFound):
    """There is no such protection of this store."""


class NotProtected(Conflict):
    """The protection has ended, or does not cover what is asked for."""


class ProtectionEnded(Conflict):
    """It was ended; what it covered may have been erased since."""


class ProtectionOfSession(Conflict):
    """A backup session holds it; it is renewed and ended with its session."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"it belongs to {session_id}", extra={"backup_session_id": session_id})


class TooManyProtections(Conflict):
    """The control file of an environment has room for so many."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} protections of this store are active already")


class EnvironmentNotHere(Conflict):
    """This process cannot see the directory of the store."""


class EnvironmentUnusable(Conflict):
    """The directory is there, and a control file cannot be kept in it."""


class EpochAhead(Conflict):
    """The control file has seen a greater epoch: an old copy of the metadata, or another Lethe."""

    def __init__(self, theirs: int, *, ours: int, store: str) -> None:
        super().__init__(
            f"the control file has epoch {theirs}, and ours is {ours}: another Lethe has worked here, or this"
            f" metadata is an old copy; `lethe recover {store}` takes it back"
        )


class ProtectionExpired(Gone):
    """Its lease has run out."""


class NotPartOfProtection(Unprocessable):
    """A set may only shrink: the protection never had these files."""


class LogFileMissing(Unprocessable):
    """A file that was named is not there."""


class TooManyWaiters(TooMany):
    """The service holds as many waiting requests as it may."""

    def __init__(self) -> None:
        super().__init__("too many requests wait", headers={"Retry-After": "5"})


class EraseAbortTimeout(Unavailable):
    """The eraser could not be stopped in time."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Retry-After": "5"})

    @classmethod
    def after(cls, timeout: timedelta) -> Self:
        """A round was still at work when the time was over."""
        after = f"{timeout.total_seconds():g} s"
        return cls(f"a round is still at work after {after}; nothing is promised")


class ControlFileBusy(Unavailable):
    """Somebody holds the control file for longer than a change of it takes."""

    def __init__(self) -> None:
        super().__init__(
            "the control file of the environment is held by somebody", headers={"Retry-After": "1"}
        )


class ServiceStopping(Unavailable):
    """The service stops; the same request goes on where this one was."""

    def __init__(self) -> None:
        super().__init__("the service stops", headers={"Retry-After": "2"})
