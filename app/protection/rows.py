"""Protected sets, digests of log files and claims of environments as tables."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, Index, String
from sqlmodel import Field as Column
from sqlmodel import SQLModel

from app.db import JSON_TYPE, DurationSeconds, UtcDateTime
from app.kit.durations import Duration
from app.protection.files import Range


class ProtectionKind(StrEnum):
    """Whom the files are kept for."""

    BACKUP = "BACKUP"
    NETWORK_RESTORE = "NETWORK_RESTORE"
    SCAN = "SCAN"
    FEEDER = "FEEDER"


class ProtectionState(StrEnum):
    """ACTIVE -> ENDED | EXPIRED."""

    ACTIVE = "ACTIVE"
    ENDED = "ENDED"
    EXPIRED = "EXPIRED"


class ProtectionBase(SQLModel):
    """The columns that clients see as they are."""

    store: str = Column(max_length=63)
    kind: ProtectionKind = Column(sa_type=String(20))
    name: str = Column(max_length=100)
    state: ProtectionState = Column(sa_type=String(10))
    lease: Duration = Column(sa_type=DurationSeconds)
    lease_expires_at: datetime = Column(sa_type=UtcDateTime)
    backup_session_id: str | None = Column(default=None, max_length=40)
    requested_by: str = Column(max_length=120)
    created_at: datetime = Column(sa_type=UtcDateTime)
    ended_at: datetime | None = Column(default=None, sa_type=UtcDateTime)


class Protection(ProtectionBase, table=True):
    """A set of files that no eraser may touch; it may only shrink.

    Attributes:
        files: the numbers that are left of those that were named; null where ranges were.
        ranges: what is really kept, as [first, last] pairs: never less than `files`.
        control_due: it has ended, and its ranges may still stand in the control file.
    """

    __tablename__ = "protections"
    __table_args__ = (
        Index("ix_protections_store_state", "store", "state", "id"),
        Index("ix_protections_lease", "state", "lease_expires_at"),
        Index("ix_protections_control_due", "control_due"),
    )

    id: str = Column(primary_key=True, max_length=40)
    files: list[int] | None = Column(default=None, sa_type=JSON_TYPE, nullable=True)
    ranges: list[Any] = Column(default_factory=list, sa_type=JSON_TYPE)
    control_due: bool = Column(default=False)
    token_id: str | None = Column(default=None, max_length=40)
    version: int = Column(default=1)

    @property
    def file_ranges(self) -> list[Range]:
        """What is kept, as pairs of numbers."""
        return [(int(first), None if last is None else int(last)) for first, last in self.ranges]


class LogFileDigest(SQLModel, table=True):
    """The SHA-256 of a log file's bytes, as it was when somebody read all of it.

    Attributes:
        sha256: null while no digest is known to hold.
        generation: how many passes of erasure have changed the file.
    """

    __tablename__ = "log_file_digests"

    store: str = Column(primary_key=True, max_length=63)
    number: int = Column(primary_key=True, sa_type=BigInteger)
    sha256: str | None = Column(default=None, max_length=64)
    size: int | None = Column(default=None, sa_type=BigInteger)
    mtime_ns: int | None = Column(default=None, sa_type=BigInteger)
    generation: int = Column(default=0)
    updated_at: datetime = Column(sa_type=UtcDateTime)


class EnvironmentClaim(SQLModel, table=True):
    """The greatest epoch under which this metadata has claimed an environment."""

    __tablename__ = "environment_claims"

    store: str = Column(primary_key=True, max_length=63)
    epoch: int = Column(default=0, sa_type=BigInteger)
    claimed_at: datetime = Column(sa_type=UtcDateTime)
