"""What can go wrong with the control file, its locks, and the medium below them.

ControlError                CONTROL_ERROR          never raised itself
├── ControlFileMissing      CONTROL_FILE_MISSING   nobody has made one, or the directory is gone
├── ControlFileInvalid      CONTROL_FILE_INVALID   a copy, damaged, or cut off; `ControlFile.rebuild` mends it
├── ControlFileFull         CONTROL_FILE_FULL      more protected ranges than a record holds
├── ControlFileFailed       CONTROL_FILE_FAILED    the operating system refused a read or a write
├── NotRegular              NOT_REGULAR            a symbolic link, a pipe or a folder bears the name
├── MediumRefused           MEDIUM_REFUSED         a network or FUSE file system, or one without hard links
├── PermissionRefused       PERMISSION             no right, or nothing to take owner and mode from
└── LockFailed              LOCK_FAILED            locks do not work here; a lock that is busy is no error
"""

from typing import ClassVar


class ControlError(Exception):
    """A fact about the files that decide who may write to an environment, with a stable `code`."""

    code: ClassVar[str] = "CONTROL_ERROR"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class ControlFileMissing(ControlError):
    code = "CONTROL_FILE_MISSING"


class ControlFileInvalid(ControlError):
    code = "CONTROL_FILE_INVALID"


class ControlFileFull(ControlError):
    code = "CONTROL_FILE_FULL"


class ControlFileFailed(ControlError):
    code = "CONTROL_FILE_FAILED"


class NotRegular(ControlError):
    code = "NOT_REGULAR"


class MediumRefused(ControlError):
    code = "MEDIUM_REFUSED"


class PermissionRefused(ControlError):
    code = "PERMISSION"


class LockFailed(ControlError):
    code = "LOCK_FAILED"
