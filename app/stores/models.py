"""Stores: registered targets, as a table and as clients see them."""

from datetime import datetime, timedelta
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator
from sqlalchemy import String
from sqlmodel import Field, SQLModel
from sqlmodel._compat import SQLModelConfig

from app.auth.models import StoreName
from app.db import JSON_TYPE, DurationSeconds, UtcDateTime
from app.kit.durations import Duration
from app.kit.values import Text
from app.secrets.models import SecretReference
from app.stores.fields import (
    ClusterName,
    CsnText,
    EnvironmentPath,
    Grace,
    Identifier,
    Label,
    Prefix,
    ReplicaId,
    StoreUrl,
    TimeZone,
)
from app.stores.kinds.rules import ExtinctionFilterMode as ExtinctionFilterMode
from app.stores.kinds.rules import StoreKind as StoreKind
from app.stores.kinds.rules import StoreMode as StoreMode
from app.stores.kinds.table import RULES, fields_of_other_kinds
from spark.formats.csn import CSN_CHARS
from spark.formats.slony import CLUSTER_MAX_CHARS
from spark.targets.target import validate_url

NODE_GRACE = timedelta(minutes=10)
BACKUP_GRACE = timedelta(hours=24)
NO_BYTES_LIMIT = "limits.max_bytes is for stores of kind JE; use max_rows or max_fraction"


class StoreLimits(BaseModel):
    """Bounds of a destructive job: its plan must stay below them, or nothing is removed."""

    max_rows: int | None = Field(
        default=None, ge=0, description="Rows; entries of a JE log, those that one cycle erases."
    )
    max_fraction: float | None = Field(
        default=None, ge=0, le=1, description="Of the rows; of a JE log, of its bytes."
    )
    max_bytes: int | None = Field(
        default=None, ge=0, description="JE: bytes of the entries that one cycle erases."
    )
    max_parallel_jobs: int = Field(default=4, ge=1, le=64)

    model_config = {"extra": "forbid"}


class StoreBase(SQLModel):
    """What a client chooses."""

    url: StoreUrl | None = Field(
        default=None,
        max_length=1000,
        description="Of a database; SQLAlchemy form, without a password: "
        "`postgresql+psycopg://user@host:5432/database`, "
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
    path: EnvironmentPath | None = Field(
        default=None, max_length=1000, description="JE: the directory of the environment."
    )
    mode: StoreMode | None = Field(
        default=None,
        sa_type=String(10),
        description="JE: CLOSED, unless an admin chooses LIVE and declares `backups`.",
    )
    extinction_filter: ExtinctionFilterMode | None = Field(
        default=None, sa_type=String(20), description="JE: what the application's filter says."
    )
    backups: Literal["VIA_LETHE"] | None = Field(
        default=None,
        sa_type=String(20),
        description="JE: an admin's word that every backup of the environment asks Lethe first.",
    )
    accept_medium: bool = Field(
        default=False,
        description="JE: erase on a file system that keeps copies (copy-on-write, compressed) all the same.",
    )
    delete_reserved_files: bool = Field(
        default=False, description="JE, CLOSED: delete files that JE has put aside, if nothing needs them."
    )
    erase_expired: bool = Field(
        default=False, description="JE: also erase expired records that no slot names."
    )
    node_grace: Grace = Field(
        default=NODE_GRACE,
        sa_type=DurationSeconds,
        description="JE, LIVE: old nodes go only under a checkpoint that is older than a later one by this.",
    )
    backup_grace: Grace = Field(
        default=BACKUP_GRACE,
        sa_type=DurationSeconds,
        description="JE, LIVE: for how long a backup that is not Lethe's is left alone.",
    )
    rid: ReplicaId | None = Field(
        default=None, description="REPLICA: its id among all that exchange changes; it never changes."
    )
    generation: CsnText | None = Field(
        default=None,
        max_length=CSN_CHARS,
        description="REPLICA: the generation that it begins with where it is empty; null: the CSN of its"
        " first change.",
    )
    cluster: ClusterName | None = Field(
        default=None,
        max_length=CLUSTER_MAX_CHARS,
        description="SLONY: the cluster's name; its catalog is the schema `_NAME`.",
    )


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
    target_limit: list[str] | None = Field(
        default=None,
        sa_type=JSON_TYPE,
        description="The stores that the token was limited to that chose the target; null: all.",
    )
    target_proof: str | None = Field(
        default=None, max_length=200, description="What the target said it was when that was decided on."
    )
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)


def _wire_name(name: str) -> str:
    """`schema` is a name that pydantic's models have already."""
    return "schema" if name == "schema_name" else name


class StoreCreate(StoreBase):
    """A new store."""

    model_config = SQLModelConfig(
        alias_generator=_wire_name,
        populate_by_name=True,
        extra="forbid",
        json_schema_extra={"examples": [dict(rules.example) for rules in RULES.values()]},
    )

    id: StoreName = Field(description="Chosen by the client.")
    kind: StoreKind
    password: SecretReference | None = Field(
        default=None, description="`secret:NAME`, of a secret that is registered for this store and its host."
    )
    limits: StoreLimits = Field(default_factory=StoreLimits)

    @field_validator("labels", "runs_on", "parameters")
    @classmethod
    def _bounded(cls, value: Any) -> Any:
        if len(value) > 100:
            raise ValueError("at most 100")
        return value

    @model_validator(mode="after")
    def _fields_of_its_kind(self) -> Self:
        rules = RULES[self.kind]
        if missing := [name for name in rules.needs if getattr(self, name) is None]:
            raise ValueError(f"a store of kind {self.kind} needs `{missing[0]}`")
        given = {name for name in self.model_fields_set if getattr(self, name) is not None}
        if wrong := sorted(given & fields_of_other_kinds(self.kind)):
            names = ", ".join(_wire_name(name) for name in wrong)
            raise ValueError(f"a store of kind {self.kind} has no {names}")
        if self.limits.max_bytes is not None and not rules.counts_bytes:
            raise ValueError(NO_BYTES_LIMIT)
        if self.url is not None and rules.dialects and validate_url(self.url) not in rules.dialects:
            raise ValueError(rules.lies_on)
        for name, value in rules.defaults.items():
            if name not in self.model_fields_set or getattr(self, name) is None:
                setattr(self, name, value)
        return self


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
    path: EnvironmentPath | None = None
    mode: StoreMode | None = None
    extinction_filter: ExtinctionFilterMode | None = None
    backups: Literal["VIA_LETHE"] | None = None
    accept_medium: bool | None = None
    delete_reserved_files: bool | None = None
    erase_expired: bool | None = None
    node_grace: Grace | None = None
    backup_grace: Grace | None = None
    cluster: ClusterName | None = None


class SuspensionRead(BaseModel):
    """Why a store rests, and until when."""

    reason: str | None
    until: datetime | None


class StoreRead(StoreBase):
    """A store as clients see it; the password's reference is not shown."""

    model_config = SQLModelConfig(alias_generator=_wire_name, populate_by_name=True)

    id: str
    kind: StoreKind
    # as it was registered: an option that is not allowed any more is told when it is connected to
    url: str | None
    # null where another kind has it
    table_prefix: str | None  # type: ignore[assignment]
    time_zone: str | None  # type: ignore[assignment]
    accept_medium: bool | None  # type: ignore[assignment]
    delete_reserved_files: bool | None  # type: ignore[assignment]
    erase_expired: bool | None  # type: ignore[assignment]
    node_grace: Duration | None  # type: ignore[assignment]
    backup_grace: Duration | None  # type: ignore[assignment]
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


def read_store(store: Store) -> StoreRead:
    """Show a store's row to a client."""
    names = set(StoreBase.model_fields) | {"id", "kind", "limits", "target_identity"}
    fields = {name: getattr(store, name) for name in names}
    fields |= dict.fromkeys(fields_of_other_kinds(StoreKind(store.kind)) & names)
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
