"""Stores: registered targets, as a table and as clients see them."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, field_validator
from sqlalchemy import String
from sqlmodel import Field, SQLModel
from sqlmodel._compat import SQLModelConfig

from app.auth.models import StoreName
from app.db import JSON_TYPE, UtcDateTime
from app.kit.values import Text
from spark.targets.errors import TargetUrlInvalid
from spark.targets.target import validate_url

Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
Prefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,29}$")]
SecretReference = Annotated[
    str, StringConstraints(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]{0,127}|file:/[^\x00-\x1f\x7f]{1,1000})$")
]


class StoreKind(StrEnum):
    """What a store is."""

    SYMMETRICDS = "SYMMETRICDS"


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("not an IANA time zone") from error
    return name


def _openable_url(url: str) -> str:
    try:
        validate_url(url)
    except TargetUrlInvalid as error:
        raise ValueError(error.detail) from error
    return url


TimeZone = Annotated[str, StringConstraints(max_length=64), AfterValidator(_known_zone)]
StoreUrl = Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_openable_url)]


class StoreLimits(BaseModel):
    """Bounds of a destructive job: its plan must stay below them."""

    max_rows: int | None = Field(default=None, ge=0)
    max_fraction: float | None = Field(default=None, ge=0, le=1)
    max_parallel_jobs: int = Field(default=4, ge=1, le=64)

    model_config = {"extra": "forbid"}


class StoreBase(SQLModel):
    """What a client chooses."""

    url: StoreUrl = Field(
        max_length=1000,
        description="SQLAlchemy form, without a password: `postgresql+psycopg://user@host:5432/database`, "
        "`mysql+pymysql://user@host:3306/database` (MariaDB too), `sqlite:////absolute/path`.",
    )
    schema_name: Identifier | None = Field(
        default=None,
        max_length=63,
        description="PostgreSQL; null: public. MariaDB, MySQL and SQLite have none.",
    )
    table_prefix: Prefix = Field(default="sym_", max_length=30)
    time_zone: TimeZone = Field(default="UTC", max_length=64, description="IANA zone of naive time columns.")
    labels: dict[Label, Text] = Field(default_factory=dict, sa_type=JSON_TYPE)
    runs_on: list[Label] = Field(
        default_factory=list, sa_type=JSON_TYPE, description="Labels that a runner must have to reach it."
    )
    parameters: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)


class Store(StoreBase, table=True):
    """A registered target."""

    __tablename__ = "stores"

    id: str = Field(primary_key=True, max_length=63)
    kind: StoreKind = Field(sa_type=String(20))
    password: str | None = Field(default=None, max_length=1010, description="A reference, never a secret.")
    limits: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    version: int = Field(default=1)
    is_suspended: bool = Field(default=False)
    suspended_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    suspended_reason: str | None = Field(default=None, max_length=500)
    target_identity: str | None = Field(default=None, max_length=200)
    target_parameters: dict[str, Any] = Field(
        default_factory=dict,
        sa_type=JSON_TYPE,
        description="The target's own values of parameters that Lethe honours, as it was last seen.",
    )
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)


def _wire_name(name: str) -> str:
    """`schema` is a name that pydantic's models have already."""
    return "schema" if name == "schema_name" else name


_EXAMPLE: dict[str, Any] = {
    "id": "shop",
    "kind": "SYMMETRICDS",
    "url": "postgresql+psycopg://lethe@127.0.0.1:5432/shop",
    "password": "env:SHOP_PASSWORD",
    "schema": "public",
    "time_zone": "Europe/Berlin",
    "labels": {"region": "eu"},
    "limits": {"max_rows": 50_000_000, "max_fraction": 0.95},
}


class StoreCreate(StoreBase):
    """A new store."""

    model_config = SQLModelConfig(
        alias_generator=_wire_name,
        populate_by_name=True,
        extra="forbid",
        json_schema_extra={"examples": [_EXAMPLE]},
    )

    id: StoreName = Field(description="Chosen by the client.")
    kind: StoreKind
    password: SecretReference | None = Field(
        default=None, description="`env:NAME` or `file:/PATH`; never shown."
    )
    limits: StoreLimits = Field(default_factory=StoreLimits)

    @field_validator("labels", "runs_on", "parameters")
    @classmethod
    def _bounded(cls, value: Any) -> Any:
        if len(value) > 100:
            raise ValueError("at most 100")
        return value


class StorePatch(BaseModel):
    """Changes of a store; what is left out stays."""

    model_config = ConfigDict(
        alias_generator=_wire_name,
        populate_by_name=True,
        extra="forbid",
        json_schema_extra={"examples": [{"limits": {"max_rows": 1_000_000}}]},
    )

    url: StoreUrl | None = None
    password: SecretReference | None = None
    schema_name: Identifier | None = None
    table_prefix: Prefix | None = None
    time_zone: TimeZone | None = None
    labels: dict[Label, Text] | None = None
    runs_on: list[Label] | None = None
    parameters: dict[str, Any] | None = None
    limits: StoreLimits | None = None


class SuspensionRead(BaseModel):
    """Why a store rests, and until when."""

    reason: str | None
    until: datetime | None


class StoreRead(StoreBase):
    """A store as clients see it; the password's reference is not shown."""

    model_config = SQLModelConfig(alias_generator=_wire_name, populate_by_name=True)

    id: str
    kind: StoreKind
    has_password: bool
    limits: StoreLimits
    suspended: SuspensionRead | None
    target_identity: str | None
    created_at: datetime
    updated_at: datetime


class SuspendRequest(BaseModel):
    """Let the store's jobs rest."""

    model_config = {
        "extra": "forbid",
        "json_schema_extra": {"examples": [{"duration": "PT2H", "reason": "restore test"}]},
    }

    duration: timedelta | None = Field(default=None, description="ISO 8601; null: until :resume.")
    reason: Text = Field(min_length=1, max_length=500)

    @field_validator("duration")
    @classmethod
    def _positive(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and not timedelta(0) < value <= timedelta(days=3650):
            raise ValueError("longer than PT0S, at most P3650D")
        return value


class FindingSeverity(StrEnum):
    """How bad a finding of a check is."""

    ERROR = "ERROR"
    WARNING = "WARNING"
    INFO = "INFO"


class Finding(BaseModel):
    """One thing that a check found."""

    code: str
    severity: FindingSeverity
    detail: str


class TableSize(BaseModel):
    """How large a table is, as the target's own statistics say."""

    table: str
    rows_estimate: int | None
    bytes: int | None


class MissingPermission(BaseModel):
    """A right that the role lacks."""

    table: str
    right: str


class StoreCheck(BaseModel):
    """What `:check` found."""

    ok: bool = Field(description="Nothing of severity ERROR was found.")
    reachable: bool
    identity: str | None = None
    server_version: int | None = None
    layout: str | None = None
    clock_difference_s: float | None = None
    time_encoding: str | None = None
    permissions_missing: list[MissingPermission] = Field(default_factory=list)
    ledger: bool | None = Field(default=None, description="Ledger and fence can be kept at the target.")
    sizes: list[TableSize] = Field(default_factory=list)
    conflicts: list[str] = Field(default_factory=list)
    findings: list[Finding] = Field(default_factory=list)
    parameters: dict[str, int] = Field(
        default_factory=dict, description="The target's own values of parameters that Lethe honours."
    )
    can: list[str] = Field(default_factory=list)


class RecoveryRead(BaseModel):
    """What `:recover` did."""

    epoch_before: int
    epoch_after: int
    foreign_jobs: list[str] = Field(
        description="Jobs of the target's ledger that this metadata did not know."
    )


def read_store(store: Store) -> StoreRead:
    """Show a store's row to a client."""
    names = set(StoreBase.model_fields) | {"id", "kind", "limits", "target_identity"}
    fields = {name: getattr(store, name) for name in names}
    suspended = None
    if store.is_suspended:  # until its end is written, so that the answer changes only with its row
        suspended = SuspensionRead(reason=store.suspended_reason, until=store.suspended_until)
    return StoreRead.model_validate(
        fields
        | {
            "has_password": store.password is not None,
            "suspended": suspended,
            "created_at": store.created_at,
            "updated_at": store.updated_at,
        }
    )


def is_suspended(store: Store, *, now: datetime) -> bool:
    """Whether the store rests now."""
    return store.is_suspended and (store.suspended_until is None or store.suspended_until > now)
