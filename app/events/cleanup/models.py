"""Event cleanups as clients ask for them, and the snapshot that a job keeps."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from app.jobs.models import ThrottleSetting
from app.jobs.plans.reviewed_plan import DRIFT_WITHOUT_PLAN, MaxDrift
from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.values import Instant, Text
from app.settings import EngineChoice

JOB_CLEANUP: Final = "EVENT_CLEANUP"
_HELD: Final[dict[str, Any]] = {"why": "BEHIND", "receiver": 3, "seqno": 5_000_000_113}
_PLAN: Final[dict[str, Any]] = {
    "plan_id": "job_01kaw3gq8m0f4t5v6w7x8y9z0a",
    "store": "lab-1",
    "confirmed_before": "2026-11-20T08:02:05Z",
    "interval": "PT10M",
    "interval_source": "DEFAULT",
    "via": "NATIVE",
    "rule": "PROGRAM",
    "rows": 142,
    "rows_to_remove": 181,
    "tables": {
        "sl_confirm": 61,
        "sl_event": 102,
        "sl_seqlog": 18,
        "sl_log_script": 0,
        "sl_nodelock": 0,
    },
    "origins": [
        {
            "origin": 1,
            "rows": 142,
            "rows_to_remove": 102,
            "syncs_to_remove": 87,
            "floor": 5_000_000_113,
            "bound": 5_000_000_113,
            "first_seqno": 5_000_000_011,
            "last_seqno": 5_000_000_152,
            "held": _HELD,
            "seqlog_rows_to_remove": 18,
            "log_script_rows_to_remove": 0,
        }
    ],
    "confirmations": [
        {
            "origin": 1,
            "receiver": 3,
            "rows": 62,
            "rows_to_remove": 61,
            "newest_seqno": 5_000_000_113,
            "aged_seqno": 5_000_000_113,
        }
    ],
    "log_switch": {"status": 0, "step": "START", "table": "sl_log_2", "origins": []},
    "hazards": [],
    "limits": {"max_rows": None, "max_fraction": None, "exceeded": []},
    "warnings": [
        {
            "code": "HELD_BEHIND",
            "detail": "node 3 has confirmed the events of node 1 up to 5000000113 only: 40 events stay",
        }
    ],
    "expires_at": "2026-11-21T08:12:05Z",
}
CLEANUP_INTERVAL: Final = "cleanup_interval"
INTERVAL_MAX: Final = timedelta(days=365)


class CleanupVia(StrEnum):
    """Who removes the rows: the cluster's own function, or Lethe."""

    NATIVE = "NATIVE"
    BUILTIN = "BUILTIN"


class CleanupRule(StrEnum):
    """Which events go: those that the program removes, or only SYNC events, as its manual says."""

    PROGRAM = "PROGRAM"
    MANUAL = "MANUAL"


class CleanupLogSwitch(StrEnum):
    """Whether the log tables are switched at the end, as the program does."""

    AS_PROGRAM = "AS_PROGRAM"
    NONE = "NONE"


class EventOverlap(StrEnum):
    """What happens when another job writes to the same cluster."""

    REFUSE = "REFUSE"
    QUEUE = "QUEUE"


class EventArchive(Model):
    """Keep the events that are removed."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["PARQUET"] = "PARQUET"


def written(value: object) -> object:
    """Refuse a number: whether it counts seconds or minutes would be a guess."""
    if isinstance(value, int | float):
        raise ValueError("a duration is written as in ISO 8601, such as PT10M")
    return value


def _age(value: timedelta) -> timedelta:
    if not timedelta(0) <= value <= INTERVAL_MAX:
        raise ValueError("from PT0S to P365D")
    return value


Age = Annotated[Duration, BeforeValidator(written), AfterValidator(_age)]


class CleanupRequest(Model):
    """What to clean of a node's catalog, and how."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"interval": "PT10M", "log_switch": "AS_PROGRAM", "reason": "before the release"}]
        },
    )

    interval: Age | None = Field(
        default=None,
        description="Confirmations older than this may be used; over the store's `cleanup_interval`.",
    )
    confirmed_before: Instant | None = Field(
        default=None, description="The same as an instant of the target's clock, never in its future."
    )
    via: CleanupVia | None = Field(
        default=None,
        description="Null: NATIVE where the cluster's functions are installed and nothing is asked that only"
        " BUILTIN does (`archive`, `rule: MANUAL`, `log_switch: NONE`, `max_rows_in_tx`, `throttle`).",
    )
    rule: CleanupRule = Field(
        default=CleanupRule.PROGRAM, description="MANUAL: only events of type SYNC go; BUILTIN."
    )
    log_switch: CleanupLogSwitch = Field(
        default=CleanupLogSwitch.AS_PROGRAM,
        description="AS_PROGRAM: finish the switch of the log tables that is under way, else start one. NONE:"
        " leave them as they are; BUILTIN.",
    )
    archive: EventArchive | None = Field(default=None, description="Keep the events that go; BUILTIN.")
    max_rows_in_tx: int | None = Field(default=None, ge=1, le=1_000_000, strict=True, description="BUILTIN.")
    engine: EngineChoice | None = Field(
        default=None, description="What runs the units of BUILTIN; null: the service's default."
    )
    throttle: ThrottleSetting | None = Field(default=None, description="BUILTIN.")
    overlap: EventOverlap = EventOverlap.REFUSE
    plan_id: str | None = Field(
        default=None,
        pattern=r"^job_[0-9a-z]{26}$",
        description="Remove rows of this plan and no others, or 412.",
    )
    max_drift: MaxDrift | None = Field(
        default=None,
        description="With plan_id: how many of the reviewed rows may be gone or needed by now, a number of"
        " rows or a share below 1; more are 412. Without it any number may.",
    )
    reason: Text | None = Field(default=None, max_length=500)

    @model_validator(mode="after")
    def _one_age(self) -> Self:
        if self.interval is not None and self.confirmed_before is not None:
            raise ValueError("interval and confirmed_before exclude each other")
        if self.plan_id is not None and (self.interval is not None or self.confirmed_before is not None):
            raise ValueError("with plan_id the plan's own instant is used")
        if self.max_drift is not None and self.plan_id is None:
            raise ValueError(DRIFT_WITHOUT_PLAN)
        return self

    @property
    def only_builtin(self) -> list[str]:
        """What is asked for that the cluster's own function does not do."""
        asked = {
            "archive": self.archive is not None,
            "rule": self.rule is CleanupRule.MANUAL,
            "log_switch": self.log_switch is CleanupLogSwitch.NONE,
            "max_rows_in_tx": self.max_rows_in_tx is not None,
            "throttle": self.throttle is not None,
        }
        return [name for name, is_asked in asked.items() if is_asked]


class CleanupParams(Model):
    """The snapshot of a cleanup at its submission; every attempt uses it."""

    plan: Literal["EVENT_CLEANUP"] = Field(default=JOB_CLEANUP, description="What a PLAN job plans.")
    confirmed_before: datetime | None = Field(description="Set when the client or a plan named it.")
    interval: Duration | None = Field(description="Null where `confirmed_before` is named.")
    interval_source: str
    via: CleanupVia | None = Field(description="Null: decided by what the target has installed.")
    rule: CleanupRule
    log_switch: CleanupLogSwitch
    archive: bool
    archive_retention: str
    max_rows_in_tx: int | None = Field(description="Null: Lethe's own size.")
    engine: EngineChoice | None
    throttle: ThrottleSetting | None
    overlap: EventOverlap
    plan_id: str | None
    max_drift: int | float | None = None
    planned: dict[str, int] | None = Field(default=None, description="Rows by table, of a plan.")
    planned_bounds: dict[int, int] = Field(default_factory=dict, description="Of a plan's events, by origin.")
    planned_confirmations: list[tuple[int, int, int]] = Field(
        default_factory=list, description="Of a plan: origin, receiver, and the seqno below which they go."
    )
    max_rows: int | None
    max_fraction: float | None
    target: dict[str, Any] = Field(description="The store's target as it was.")


class HoldRead(Model):
    """What keeps an origin's events."""

    why: Literal["NEVER_CONFIRMED", "YOUNG_CONFIRMATION", "BEHIND", "NO_SYNC"]
    receiver: int | None = Field(description="The node that is least far; null: not a node's doing.")
    seqno: int | None = Field(description="How far it counts as having confirmed; null: not at all.")


class OriginCleanupRead(Model):
    """The events of one origin."""

    origin: int
    rows: int
    rows_to_remove: int
    syncs_to_remove: int
    floor: int | None = Field(description="What every receiver has confirmed; null: nothing is.")
    bound: int | None = Field(description="The newest SYNC up to the floor: events below it go, it stays.")
    first_seqno: int
    last_seqno: int
    held: HoldRead | None = Field(description="Why no more goes; null: all up to the newest SYNC.")
    seqlog_rows_to_remove: int
    log_script_rows_to_remove: int


class PairCleanupRead(Model):
    """The confirmations of one origin by one receiver."""

    origin: int
    receiver: int
    rows: int
    rows_to_remove: int
    newest_seqno: int = Field(description="Of any age.")
    aged_seqno: int | None = Field(description="Confirmed before the instant; null: all are younger.")


class LogOriginRead(Model):
    """An origin that has rows in the log table that is to be emptied."""

    origin: int
    oldest_sync: int | None
    xmin: int | None = Field(description="The least transaction that the oldest SYNC may not have seen.")
    undrained_txid: int | None = Field(description="The first transaction in the table at or above it.")
    is_drained: bool
    reason: Literal["NOT_DRAINED", "NOT_CONFIRMED", "NO_SYNC"] | None
    receiver: int | None = Field(description="NOT_CONFIRMED: the node that has not confirmed that SYNC.")


class SwitchForecastRead(Model):
    """What the log switch at the end of the cleanup would do, were nobody in its way."""

    status: int = Field(description="Of sl_log_status, 0 to 3.")
    step: Literal["FINISH", "BLOCKED", "START", "HEAL", "NONE"]
    table: str | None
    origins: list[LogOriginRead]


class HazardRead(Model):
    """Where Slony-I's own cleanup would lose what not everybody has confirmed."""

    kind: str
    origin: int | None
    receiver: int | None
    rows: int | None
    detail: str


class CleanupLimitsRead(Model):
    """The store's limits, and which of them the plan exceeds."""

    max_rows: int | None
    max_fraction: float | None
    exceeded: list[str]


class CleanupWarning(Model):
    """Something that an operator should know."""

    code: str
    detail: str


class CleanupPlanRead(Model):
    """What a cleanup would do; nothing was written to the target."""

    model_config = ConfigDict(json_schema_extra={"examples": [_PLAN]})

    plan_id: str
    store: str
    confirmed_before: datetime = Field(description="Younger confirmations do not count.")
    interval: Duration | None
    interval_source: str
    via: CleanupVia = Field(description="What would do it, as the target is now.")
    rule: CleanupRule
    rows: int = Field(description="Events in the catalog.")
    rows_to_remove: int = Field(description="Of all tables.")
    tables: dict[str, int] = Field(description="Rows that would go, by table.")
    origins: list[OriginCleanupRead]
    confirmations: list[PairCleanupRead]
    log_switch: SwitchForecastRead
    hazards: list[HazardRead] = Field(
        description="NATIVE refuses where there is one (UNCONFIRMED_WOULD_GO), but waits for the sessions of"
        " LOG_STILL_WRITTEN, ten minutes at most; BUILTIN keeps those events and that log."
    )
    limits: CleanupLimitsRead
    warnings: list[CleanupWarning]
    expires_at: datetime
