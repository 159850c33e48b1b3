"""Protected sets of log files, digests of files and claims of environments: tables, and what clients see."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator
from sqlalchemy import BigInteger, Index, String
from sqlmodel import Field as Column
from sqlmodel import SQLModel
from sqlmodel._compat import SQLModelConfig

from app.db import JSON_TYPE, DurationSeconds, UtcDateTime
from app.kit.durations import Duration, parse_duration
from app.kit.values import Text
from app.protection.examples import ABORT, PROTECTION
from app.protection.files import LogFileName, Range, name_of, number_of

FILES_MAX = 20_000
RANGES_MAX = 24
"""Of one protection: the control file has room for a number of ranges, not of files."""
LEASE = timedelta(minutes=10)
LEASE_MIN, LEASE_MAX = timedelta(seconds=30), timedelta(hours=24)
ABORT_TIMEOUT_MIN, ABORT_TIMEOUT_MAX = timedelta(seconds=1), timedelta(hours=1)


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


def _duration(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError("an ISO 8601 duration such as PT10M")
    try:
        return parse_duration(value)
    except OverflowError as error:
        raise ValueError("longer than any duration here") from error


def _lease(value: timedelta) -> timedelta:
    if not LEASE_MIN <= value <= LEASE_MAX:
        raise ValueError("from PT30S to PT24H")
    return value


def _abort_timeout(value: timedelta) -> timedelta:
    if not ABORT_TIMEOUT_MIN <= value <= ABORT_TIMEOUT_MAX:
        raise ValueError("from PT1S to PT1H")
    return value


Lease = Annotated[Duration, BeforeValidator(_duration), AfterValidator(_lease)]
AbortTimeout = Annotated[Duration, BeforeValidator(_duration), AfterValidator(_abort_timeout)]
Files = Annotated[list[LogFileName], Field(min_length=1, max_length=FILES_MAX)]


class FileRange(BaseModel):
    """Files from one number to another, both inclusive."""

    first: LogFileName
    last: LogFileName | None = Field(default=None, description="null: without an end.")

    model_config = {"extra": "forbid"}

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.last is not None and self.last < self.first:
            raise ValueError("`last` comes before `first`")
        return self


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


class ProtectionRead(ProtectionBase):
    """A protected set as clients see it."""

    model_config = SQLModelConfig(json_schema_extra={"examples": [PROTECTION]})

    id: str
    files: list[LogFileName] | None = Field(description="What is left of the named files.")
    ranges: list[FileRange] = Field(description="What is kept: these files, and perhaps some between them.")


class ProtectionCreate(BaseModel):
    """A new protected set: named files, or ranges."""

    kind: ProtectionKind
    name: Text = Field(min_length=1, max_length=100)
    files: Files | None = None
    ranges: list[FileRange] | None = Field(default=None, min_length=1, max_length=RANGES_MAX)
    lease: Lease = Field(default=LEASE, description="From PT30S to PT24H; renew it in time.")

    model_config = {
        "extra": "forbid",
        "json_schema_extra": {
            "examples": [
                {"kind": "SCAN", "name": "nightly count", "files": ["00000003.jdb"], "lease": "PT10M"},
                {"kind": "FEEDER", "name": "node 2", "ranges": [{"first": "00000003.jdb", "last": None}]},
            ]
        },
    }

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.files is None) == (self.ranges is None):
            raise ValueError("name `files` or `ranges`: one of both")
        return self


class RenewRequest(BaseModel):
    """Hold it for longer, from now on."""

    lease: Lease | None = Field(default=None, description="null: as long as before.")

    model_config = {"extra": "forbid", "json_schema_extra": {"examples": [{"lease": "PT10M"}]}}


class ReleaseRequest(BaseModel):
    """Give back single files."""

    files: Files

    model_config = {"extra": "forbid", "json_schema_extra": {"examples": [{"files": ["00000003.jdb"]}]}}


class AbortRequest(BaseModel):
    """Let no write to the files of a protection happen any more."""

    protection_id: str = Field(pattern=r"^prt_[0-9a-z]{26}$")
    files: Files | None = Field(default=None, description="null: all that it covers and that are there.")
    timeout: AbortTimeout | None = Field(
        default=None, description="From PT1S; null: the store's je.erase.abortTimeout."
    )

    model_config = {
        "extra": "forbid",
        "json_schema_extra": {
            "examples": [{"protection_id": "prt_01m7w9fkm3fr0wmcztj953rhw9", "timeout": "PT30S"}]
        },
    }


class AbortRead(BaseModel):
    """From now on, and until the protection ends, Lethe writes nothing to these files."""

    protection_id: str
    files: int = Field(description="How many were looked at.")
    erasure_aborted: bool = Field(description="A round was at work in one of them.")
    abort_latency_ms: float = Field(description="From the request to the proof.")

    model_config = {"json_schema_extra": {"examples": [ABORT]}}


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


def read_ranges(ranges: list[Range]) -> list[FileRange]:
    """Ranges as clients see them."""
    return [
        FileRange(first=name_of(first), last=None if last is None else name_of(last))
        for first, last in ranges
    ]


def ranges_of(request: list[FileRange]) -> list[Range]:
    """Ranges as they are kept."""
    return [(number_of(each.first), None if each.last is None else number_of(each.last)) for each in request]


def read_protection(row: Protection) -> ProtectionRead:
    """Show a protection's row to a client."""
    fields = {name: getattr(row, name) for name in ProtectionBase.model_fields}
    files = None if row.files is None else [name_of(number) for number in row.files]
    return ProtectionRead.model_validate(
        fields | {"id": row.id, "files": files, "ranges": read_ranges(row.file_ranges)}
    )
