"""Stores: registered targets, as clients see them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator
from sqlmodel._compat import SQLModelConfig

from app.auth.rows import StoreName
from app.kinds.rules import ExtinctionFilterMode as ExtinctionFilterMode
from app.kinds.rules import StoreMode as StoreMode
from app.kinds.table import RULES, fields_of_other_kinds
from app.kinds.table import StoreKind as StoreKind
from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.values import Text
from app.secrets.models import SecretReference
from app.stores.checks.models import Finding
from app.stores.fields import (
    ClusterName,
    DnText,
    EnvironmentPath,
    Grace,
    Identifier,
    Label,
    Prefix,
    StoreUrl,
    TimeZone,
)
from app.stores.rows import Store, StoreBase

NO_BYTES_LIMIT = "limits.max_bytes is for stores of kind JE; use max_rows or max_fraction"


class StoreLimits(Model):
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

    model_config = ConfigDict(extra="forbid")


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
        given = {name for name in self.model_fields_set if getattr(self, name) not in (None, "")}
        if wrong := sorted(given & fields_of_other_kinds(self.kind)):
            names = ", ".join(_wire_name(name) for name in wrong)
            raise ValueError(f"a store of kind {self.kind} has no {names}")
        if self.limits.max_bytes is not None and not rules.counts_bytes:
            raise ValueError(NO_BYTES_LIMIT)
        if self.url is not None and (reason := rules.refuses(self.url)) is not None:
            raise ValueError(reason)
        for name, value in rules.defaults.items():
            if name not in self.model_fields_set or getattr(self, name) is None:
                setattr(self, name, value)
        return self


class StorePatch(Model):
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
    bind_dn: DnText | None = None
    suffix: DnText | None = None


class SuspensionRead(Model):
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


class StoreWritten(StoreRead):
    """A store that was registered or changed just now."""

    warnings: list[Finding] = Field(
        description="What to know of its target: SAME_TARGET, other stores of this kind on it."
    )


class SuspendRequest(Model):
    """Let the store's jobs rest."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"duration": "PT2H", "reason": "restore test"}]}
    )

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


@dataclass(frozen=True, slots=True)
class Reach:
    """What an act would remove, and the whole that `max_fraction` is a share of.

    Args:
        rows: rows of a table, entries of a log.
        bytes: of their keys and values, or of the entries; None: not known.
        part, whole: in the unit that `shares` names.
    """

    rows: int
    part: int
    whole: int
    shares: str = "rows"
    bytes: int | None = None


class LimitsRead(Model):
    """The store's limits that a plan was judged by, and which of them it exceeds."""

    max_rows: int | None = Field(description="Rows; of a JE log, entries.")
    max_fraction: float | None = Field(description="Of the rows; of a JE log, of its bytes.")
    max_bytes: int | None = Field(default=None, description="JE: bytes of the entries that would go.")
    exceeded: list[str]


def exceeded(limits: StoreLimits, reach: Reach, *, unit: str = "rows") -> list[str]:
    """The limits that an act exceeds, each with its numbers."""
    found = []
    if limits.max_rows is not None and reach.rows > limits.max_rows:
        found.append(f"max_rows: {reach.rows} {unit} would go, {limits.max_rows} may")
    if limits.max_bytes is not None and reach.bytes is not None and reach.bytes > limits.max_bytes:
        found.append(f"max_bytes: {reach.bytes} bytes would go, {limits.max_bytes} may")
    if limits.max_fraction is not None and reach.whole and reach.part / reach.whole > limits.max_fraction:
        share = reach.part / reach.whole
        found.append(
            f"max_fraction: {share:.4f} of {reach.whole} {reach.shares} would go, {limits.max_fraction:g} may"
        )
    return found
