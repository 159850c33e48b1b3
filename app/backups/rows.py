"""Backup sessions and their files as tables."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy import Column as SqlColumn
from sqlmodel import Field as Column
from sqlmodel import SQLModel

from app.db import JSON_TYPE, DurationSeconds, UtcDateTime
from app.kit.durations import Duration


class BackupMode(StrEnum):
    """What the files are copied for."""

    BACKUP = "BACKUP"
    NETWORK_RESTORE = "NETWORK_RESTORE"


class BackupState(StrEnum):
    """PREPARING -> ACTIVE -> ENDED | EXPIRED | INVALID; PREPARING -> FAILED."""

    PREPARING = "PREPARING"
    ACTIVE = "ACTIVE"
    ENDED = "ENDED"
    EXPIRED = "EXPIRED"
    INVALID = "INVALID"
    FAILED = "FAILED"


class FileFault(StrEnum):
    """What has happened to a file that had to stay as it was."""

    VANISHED = "VANISHED"
    REPLACED = "REPLACED"
    RESIZED = "RESIZED"
    TOUCHED = "TOUCHED"


class BackupSessionBase(SQLModel):
    """The columns that clients see as they are."""

    store: str = Column(max_length=63)
    mode: BackupMode = Column(sa_type=String(20))
    state: BackupState = Column(sa_type=String(10))
    tool: str | None = Column(default=None, max_length=100)
    label: str | None = Column(default=None, max_length=200)
    lease: Duration = Column(sa_type=DurationSeconds)
    lease_expires_at: datetime | None = Column(default=None, sa_type=UtcDateTime)
    erase_abort_timeout: Duration = Column(sa_type=DurationSeconds)
    protection_id: str = Column(max_length=40)
    erasure_aborted: bool | None = Column(
        default=None, description="A round was at work in one of the files."
    )
    abort_latency_ms: float | None = Column(default=None, description="From the request to the proof.")
    valid: bool | None = Column(default=None, description="null: it has not ended.")
    file_count: int = Column(default=0)
    total_bytes: int = Column(
        default=0, sa_type=BigInteger, description="Of all files when it became ACTIVE."
    )
    requested_by: str = Column(max_length=120)
    created_at: datetime = Column(sa_type=UtcDateTime)
    activated_at: datetime | None = Column(default=None, sa_type=UtcDateTime)
    ended_at: datetime | None = Column(default=None, sa_type=UtcDateTime)


class BackupSession(BackupSessionBase, table=True):
    """One run of a backup tool.

    Attributes:
        prepare_until: when preparing has failed, whoever looks.
        owner: the instance whose request prepares it.
        failure: code and detail of a FAILED one.
    """

    __tablename__ = "backup_sessions"
    __table_args__ = (
        Index("ix_backup_sessions_store_state", "store", "state", "id"),
        Index("ix_backup_sessions_prepare", "state", "prepare_until"),
    )

    id: str = Column(primary_key=True, max_length=40)
    prepare_until: datetime = Column(sa_type=UtcDateTime)
    owner: str = Column(max_length=40)
    failure: dict[str, Any] | None = Column(default=None, sa_type=JSON_TYPE, nullable=True)
    token_id: str | None = Column(default=None, max_length=40)
    version: int = Column(default=1)


class BackupFile(SQLModel, table=True):
    """A file of a session as it was when the session became ACTIVE.

    Attributes:
        device, inode: as text, since either may need all of 64 bits.
        fault: what was found when it was released, or at the end.
    """

    __tablename__ = "backup_files"

    session_id: str = Column(
        sa_column=SqlColumn(
            String(40), ForeignKey("backup_sessions.id", ondelete="CASCADE"), primary_key=True
        )
    )
    number: int = Column(primary_key=True, sa_type=BigInteger)
    size: int = Column(sa_type=BigInteger)
    device: str = Column(max_length=20)
    inode: str = Column(max_length=20)
    mtime_ns: int = Column(sa_type=BigInteger)
    is_growing: bool = Column(default=False)
    released_at: datetime | None = Column(default=None, sa_type=UtcDateTime)
    fault: FileFault | None = Column(default=None, sa_type=String(10), nullable=True)
