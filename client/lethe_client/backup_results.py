"""Backup sessions and protected files, as frozen values."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from lethe_client.literals import BackupMode, BackupState, ProtectionKind, ProtectionState
from lethe_client.results import Result


@dataclass(frozen=True, kw_only=True)
class BackupFile(Result):
    """One file of a session; one that grows comes last."""

    name: str
    path: str
    size: int
    device: int
    inode: int
    mtime: datetime
    growing: bool = False
    digest: str | None = None
    erasure_generation: int = 0
    released_at: datetime | None = None
    fault: str | None = None


@dataclass(frozen=True, kw_only=True)
class BackupSession(Result):
    """A session; `files` are there only in the answer that begins one."""

    id: str
    store: str
    state: BackupState
    mode: BackupMode = "BACKUP"
    tool: str | None = None
    label: str | None = None
    lease: timedelta
    lease_expires_at: datetime | None = None
    erase_abort_timeout: timedelta
    protection_id: str
    erasure_aborted: bool | None = None
    abort_latency_ms: float | None = None
    valid: bool | None = None
    file_count: int = 0
    total_bytes: int = 0
    requested_by: str = ""
    created_at: datetime | None = None
    activated_at: datetime | None = None
    ended_at: datetime | None = None
    files: tuple[BackupFile, ...] = ()

    @property
    def is_live(self) -> bool:
        """Whether its promise held when this was answered."""
        return self.state == "ACTIVE"


@dataclass(frozen=True, kw_only=True)
class ChangedFile(Result):
    """A file that is not what it was: VANISHED, REPLACED, RESIZED or TOUCHED."""

    name: str
    fault: str


@dataclass(frozen=True, kw_only=True)
class BackupEnd(BackupSession):
    """How a session ended."""

    changed: tuple[ChangedFile, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FileRange(Result):
    """Files from one to another, both inclusive; `last` None: without an end."""

    first: str
    last: str | None = None


@dataclass(frozen=True, kw_only=True)
class Protection(Result):
    """A set of files that no eraser may touch."""

    id: str
    store: str
    kind: ProtectionKind
    name: str
    state: ProtectionState
    lease: timedelta
    lease_expires_at: datetime
    backup_session_id: str | None = None
    requested_by: str = ""
    created_at: datetime | None = None
    ended_at: datetime | None = None
    files: tuple[str, ...] | None = None
    ranges: tuple[FileRange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EraseAbort(Result):
    """No write to these files happens any more until the protection ends."""

    protection_id: str
    files: int
    erasure_aborted: bool
    abort_latency_ms: float
