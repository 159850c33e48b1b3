"""Errors of backup sessions.

ServiceError
 +- NotFound 404       BackupSessionNotFound
 +- Conflict 409       BackupSessionPreparing, BackupSessionEnded, LogFilesVanished, TooManyFiles
 +- Gone 410           BackupSessionExpired, BackupSessionFailed
 +- Unprocessable 422  NotPartOfSession
"""

from app.errors import Conflict, Gone, NotFound, Unprocessable

INVALID = {"valid": False}


class BackupSessionNotFound(NotFound):
    """There is no such session of this store."""


class BackupSessionPreparing(Conflict):
    """The request that made it still waits for the eraser."""


class BackupSessionEnded(Conflict):
    """Its files may have been erased since."""


class LogFilesVanished(Conflict):
    """Files went away before they could be promised: named ones, or of a log that has moved on since."""


class TooManyFiles(Conflict):
    """More files than one session takes."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"{count} files; a session takes {limit}: name those that you copy")


class BackupSessionExpired(Gone):
    """The lease has run out: its copy is no backup."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, extra=INVALID)


class BackupSessionFailed(Gone):
    """It never became ACTIVE: nothing was promised."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, extra=INVALID)


class NotPartOfSession(Unprocessable):
    """A set may only shrink: the session never had these files."""
