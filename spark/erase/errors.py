"""Why an environment is refused. Every error names the file and the offset, where there is one.

LogRefused                    LOG_REFUSED               never raised itself
├── EnvironmentUnreadable     ENVIRONMENT_UNREADABLE    the operating system said no
├── NotAnEnvironment          NOT_AN_ENVIRONMENT        no directory, or no .jdb file in it
│   └── LogInDataDirectories  LOG_IN_DATA_DIRECTORIES   data001/ and so on, not as JE has it
├── LogFileNotRegular         LOG_FILE_NOT_REGULAR      a symbolic link, a pipe, a directory
├── LogFileChanged            LOG_FILE_CHANGED          grew, shrank or was replaced while it was read
│   └── LogFileVanished       LOG_FILE_VANISHED         as JE's cleaner deletes files; a new reading succeeds
├── LogVersionUnsupported     LOG_VERSION_UNSUPPORTED
├── LogCorrupt                LOG_CORRUPT
│   ├── LogHeaderInvalid      LOG_HEADER_INVALID        of the file: short, or another file's
│   ├── LogChainBroken        LOG_CHAIN_BROKEN          an offset of the previous entry, or an LSN, that leads
nowhere
│   ├── LogChecksumWrong      LOG_CHECKSUM_WRONG
│   ├── LogEntryTorn          LOG_ENTRY_TORN            ends behind the end of a file that is not the last
│   ├── LogEntryUnknown       LOG_ENTRY_UNKNOWN         a type, flag or size that this version does not have
│   └── LogItemMalformed      LOG_ITEM_MALFORMED        its bytes are not used up exactly
├── NoCheckpoint              NO_CHECKPOINT             nothing says from where recovery would start
├── RestoreRequired           RESTORE_REQUIRED          JE itself would refuse to open it
├── RollbackUnfinished        ROLLBACK_UNFINISHED
├── LogFileMissing            LOG_FILE_MISSING          tree or recovery refer to a file that is not there
├── TreeBroken                TREE_BROKEN               a node that the tree needs is not in its file
├── OwnEraserOn               OWN_ERASER_ON             JE's own eraser is switched on
└── LiveForbidden             LIVE_FORBIDDEN            never raised itself: not while JE has it open
    ├── LiveReplicated        LIVE_REPLICATED           VLSNs, rollbacks or matchpoints in the log
    └── LiveBackupUnknown     LIVE_BACKUP_UNKNOWN       a young backup that is not one of ours
"""

from typing import ClassVar


class LogRefused(Exception):
    """A fact about an environment that forbids to work on it, with a stable `code`."""

    code: ClassVar[str] = "LOG_REFUSED"

    def __init__(self, detail: str, *, file: str | None = None, offset: int | None = None) -> None:
        super().__init__(detail, file, offset)
        self.detail = detail
        self.file = file
        self.offset = offset

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}: "
        if self.offset is not None:
            where = f"{self.file}, offset {self.offset}: "
        return where + self.detail

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by their positional arguments; this one crosses processes with its keywords.
        return (_refused, (type(self), self.detail, self.file, self.offset))


def _refused(kind: type[LogRefused], detail: str, file: str | None, offset: int | None) -> LogRefused:
    return kind(detail, file=file, offset=offset)


class EnvironmentUnreadable(LogRefused):
    code = "ENVIRONMENT_UNREADABLE"


class NotAnEnvironment(LogRefused):
    code = "NOT_AN_ENVIRONMENT"


class LogInDataDirectories(NotAnEnvironment):
    code = "LOG_IN_DATA_DIRECTORIES"


class LogFileNotRegular(LogRefused):
    code = "LOG_FILE_NOT_REGULAR"


class LogFileChanged(LogRefused):
    code = "LOG_FILE_CHANGED"


class LogFileVanished(LogFileChanged):
    code = "LOG_FILE_VANISHED"


class LogVersionUnsupported(LogRefused):
    code = "LOG_VERSION_UNSUPPORTED"


class LogCorrupt(LogRefused):
    code = "LOG_CORRUPT"


class LogHeaderInvalid(LogCorrupt):
    code = "LOG_HEADER_INVALID"


class LogChainBroken(LogCorrupt):
    code = "LOG_CHAIN_BROKEN"


class LogChecksumWrong(LogCorrupt):
    code = "LOG_CHECKSUM_WRONG"


class LogEntryTorn(LogCorrupt):
    code = "LOG_ENTRY_TORN"


class LogEntryUnknown(LogCorrupt):
    code = "LOG_ENTRY_UNKNOWN"


class LogItemMalformed(LogCorrupt):
    code = "LOG_ITEM_MALFORMED"


class NoCheckpoint(LogRefused):
    code = "NO_CHECKPOINT"


class RestoreRequired(LogRefused):
    code = "RESTORE_REQUIRED"


class RollbackUnfinished(LogRefused):
    code = "ROLLBACK_UNFINISHED"


class LogFileMissing(LogRefused):
    code = "LOG_FILE_MISSING"


class TreeBroken(LogRefused):
    code = "TREE_BROKEN"


class OwnEraserOn(LogRefused):
    code = "OWN_ERASER_ON"


class LiveForbidden(LogRefused):
    code = "LIVE_FORBIDDEN"


class LiveReplicated(LiveForbidden):
    code = "LIVE_REPLICATED"


class LiveBackupUnknown(LiveForbidden):
    code = "LIVE_BACKUP_UNKNOWN"
