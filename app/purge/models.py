"""Purges over HTTP: the request, the snapshot that a job keeps, the plan and the statistics."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from app.jobs.models import ThrottleSetting
from app.jobs.plans.reviewed_plan import DRIFT_WITHOUT_PLAN, MaxDrift
from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.values import Instant, Text
from app.rows.models import RowsFields, RowsPlanRead
from app.settings import EngineChoice
from app.sweeps.models import ChangelogPlanRead, LastJob, TickOutcome, TombstonePlanRead
from spark.formats.csn import RID_MAX, RID_MIN


class PurgeKind(StrEnum):
    """What is purged: tables of SymmetricDS; CHANGELOG, TOMBSTONES of a REPLICA store, ROWS of any table."""

    OUTGOING = "OUTGOING"
    INCOMING = "INCOMING"
    DATA_GAP = "DATA_GAP"
    EXTRACT_REQUEST = "EXTRACT_REQUEST"
    REGISTRATION_REQUEST = "REGISTRATION_REQUEST"
    INCOMING_ERROR = "INCOMING_ERROR"
    STATISTICS = "STATISTICS"
    TRIGGER_HIST = "TRIGGER_HIST"
    STRANDED = "STRANDED"
    CHANNELS = "CHANNELS"
    CHANGELOG = "CHANGELOG"
    TOMBSTONES = "TOMBSTONES"
    ROWS = "ROWS"


class StrandedMode(StrEnum):
    """What happens to what is stranded.

    SKIP leaves it. MARK gives batches up as OK. REMOVE removes rows. RECAPTURE removes rows of sym_data only
    when they were captured again.
    """

    MARK = "MARK"
    SKIP = "SKIP"
    REMOVE = "REMOVE"
    RECAPTURE = "RECAPTURE"


class Strategy(StrEnum):
    """How rows are chosen; DOCUMENT is the set of SymmetricDS's own purge, row for row."""

    DOCUMENT = "DOCUMENT"


class Overlap(StrEnum):
    """What happens when another job writes to the same tables."""

    REFUSE = "REFUSE"
    QUEUE = "QUEUE"


class ArchiveRequest(Model):
    """Keep what is removed."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["PARQUET"] = "PARQUET"


CHANNELS_MAX = 200
ChannelName = Annotated[str, StringConstraints(min_length=1, max_length=128)]
GONE_RIDS_MAX = 200
GoneRid = Annotated[int, Field(ge=RID_MIN, le=RID_MAX)]
ChannelRetention = Annotated[int, Field(ge=0, le=5_256_000, strict=True)]


class PurgeRequest(RowsFields):
    """What to purge, how old, how fast."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "kind": "OUTGOING",
                    "retention_minutes": 7200,
                    "archive": {"format": "PARQUET"},
                    "throttle": {"rows_per_s": 20000},
                    "reason": "nightly",
                },
                {
                    "kind": "ROWS",
                    "table": "tickets",
                    "time_column": "closed_at",
                    "older_than": "P90D",
                    "where": "status = 'closed'",
                    "children": ["ticket_notes"],
                    "archive": {"format": "PARQUET"},
                    "max_rows_per_s": 5000,
                },
            ]
        },
    )

    kind: PurgeKind
    retention_minutes: int | None = Field(
        default=None,
        ge=0,
        le=5_256_000,
        strict=True,
        description="Over the store's, over the target's own, over the default of the kind.",
    )
    cutoff: Instant | None = Field(default=None, description="Instead of a retention; never in the future.")
    channel_retention_minutes: dict[ChannelName, ChannelRetention] | None = Field(
        default=None,
        max_length=CHANNELS_MAX,
        description="OUTGOING only: channels whose rows and batches stay longer or shorter than the others'."
        " The age of each batch counts then.",
    )
    stranded: StrandedMode | None = Field(
        default=None,
        description="OUTGOING: MARK is the first step of SymmetricDS's SQL: batches of nodes that"
        " are absent or disabled become OK, and those nodes never get their rows; the plan counts them."
        " Without it the plan's mode, else MARK where the store has `purge.mark.stranded`, else SKIP."
        " CHANNELS: MARK does the same with old batches of channels that are gone."
        " STRANDED: RECAPTURE or REMOVE, one of which has to be said: these rows may never have been sent."
        " REMOVE removes them. RECAPTURE has SymmetricDS's triggers capture each row of sym_data again, by an"
        " update of the user's table that changes nothing, and removes only what was captured again. It does"
        " so too with rows that came late into expired gaps; REMOVE leaves these.",
    )
    strict: bool = Field(
        default=False,
        strict=True,
        description="OUTGOING only: a batch with NULL status protects its data and events.",
    )
    max_rows_in_tx: int | None = Field(default=None, ge=1, le=1_000_000, strict=True)
    max_entries: int | None = Field(
        default=None,
        ge=0,
        le=9_007_199_254_740_991,
        strict=True,
        description="CHANGELOG only: records that may stay; the oldest that everybody has go first.",
    )
    gone_rids: list[GoneRid] | None = Field(
        default=None,
        max_length=GONE_RIDS_MAX,
        description="TOMBSTONES only: replica ids that are gone for good: nothing of theirs is waited for."
        " A change of theirs that comes all the same, from before what was purged, is refused.",
    )
    strategy: Strategy = Strategy.DOCUMENT
    archive: ArchiveRequest | None = None
    engine: EngineChoice | None = Field(
        default=None, description="What runs its units; null: the service's default, AUTO unless set."
    )
    throttle: ThrottleSetting | None = None
    force: bool = Field(
        default=False,
        strict=True,
        description="Allow a retention below ten minutes; TOMBSTONES: below a day.",
    )
    overlap: Overlap = Overlap.REFUSE
    plan_id: str | None = Field(
        default=None,
        pattern=r"^job_[0-9a-z]{26}$",
        description="Remove rows of this plan and no others, or 412.",
    )
    max_drift: MaxDrift | None = Field(
        default=None,
        description="With plan_id: how many of the reviewed rows may be gone or needed again by now, a number"
        " of rows or a share below 1; more are 412. Without it any number may: no row that was not reviewed"
        " ever goes.",
    )
    reason: Text | None = Field(default=None, max_length=500)

    @model_validator(mode="after")
    def _one_age(self) -> "PurgeRequest":
        if self.retention_minutes is not None and self.cutoff is not None:
            raise ValueError("retention_minutes and cutoff exclude each other")
        if self.plan_id is not None and (self.retention_minutes is not None or self.cutoff is not None):
            raise ValueError("with plan_id the plan's own cut-off is executed")
        if self.plan_id is not None and self.channel_retention_minutes is not None:
            raise ValueError("with plan_id the plan's own cut-offs of channels are executed")
        if self.max_drift is not None and self.plan_id is None:
            raise ValueError(DRIFT_WITHOUT_PLAN)
        return self


class Sourced(Model):
    """A number and where it comes from."""

    value: int
    source: str


class PurgeParams(Model):
    """The snapshot of a purge at its submission; every attempt uses it."""

    kind: PurgeKind
    cutoff: datetime | None = Field(description="Set when the client or a plan named it.")
    retention_minutes: Sourced | None = Field(description="Null: the target's own, or the default.")
    default_retention_minutes: Sourced
    channel_retention_minutes: dict[str, int] = Field(
        default_factory=dict, description="Channels with a retention of their own."
    )
    channel_cutoffs: dict[str, datetime] | None = Field(default=None, description="Those of a plan.")
    stranded: StrandedMode
    stranded_by: str | None = Field(
        default=None, description="REQUEST, PLAN, STORE or DEFAULT; null: of a version that marked unasked."
    )
    stranded_nodes: list[str | None] | None = Field(default=None, description="The nodes of a reviewed plan.")
    strict: bool
    data_rows_in_tx: int | None = Field(description="Null: Lethe's own size.")
    event_batches_in_tx: int | None
    batches_in_tx: int | None
    archive: ArchiveRequest | None
    engine: EngineChoice | None = None
    throttle: ThrottleSetting | None
    force: bool
    overlap: Overlap
    plan_id: str | None
    max_drift: int | float | None = None
    max_rows: int | None
    max_fraction: float | None
    archive_retention: str
    target: dict[str, Any] = Field(description="The store's target as it was.")


class PlannedTable(Model):
    """One table of a plan."""

    table: str
    rows: int
    rows_to_remove: int
    lo: int | None = Field(description="First id that the step looks at.")
    hi: int | None


class StrandedNodeRead(Model):
    """A node that is not enabled, and its batches that are not OK."""

    node_id: str | None
    batches: int
    rows: int = Field(
        default=0, description="Changes in them that are still there; with MARK it never gets them."
    )


class PlannedStranded(Model):
    """What is given up: batches by an UPDATE, which is a step of its own; rows that were never sent."""

    mode: StrandedMode
    nodes: list[StrandedNodeRead]
    batches: int = Field(default=0, description="Of all these nodes.")
    rows: int = Field(
        default=0,
        description="Changes in these batches, counted once for each node. STRANDED: rows that may go; with"
        " RECAPTURE the warnings say which of them stay.",
    )
    cost: str = Field(default="", description="What the mode means for these nodes.")


class PlannedLimits(Model):
    """The store's limits and which of them the plan exceeds."""

    max_rows: int | None
    max_fraction: float | None
    exceeded: list[str]


class PlanWarningRead(Model):
    """Something awkward in the data."""

    code: str
    table: str
    count: int
    sample: list[Any]
    detail: str


class PurgePlanRead(Model):
    """What a purge would do; nothing was written to the target."""

    plan_id: str
    store: str
    kind: PurgeKind
    cutoff: datetime
    cutoff_local: str = Field(description="The value that the target's columns are compared with.")
    retention_minutes: int | None
    retention_source: str
    channel_cutoffs: dict[str, datetime] = Field(
        default_factory=dict, description="Of channels with a retention of their own."
    )
    layout: str
    strict: bool
    tables: list[PlannedTable]
    stranded: PlannedStranded | None = Field(description="OUTGOING, CHANNELS and STRANDED.")
    nodes: int | None = Field(default=None, description="INCOMING: nodes that have a range of batches.")
    limits: PlannedLimits
    warnings: list[PlanWarningRead]
    expires_at: datetime


AnyPurgePlan = PurgePlanRead | ChangelogPlanRead | TombstonePlanRead | RowsPlanRead
"""The plan of a purge, whatever its kind."""


class PurgeTableStats(Model):
    """One table of a store."""

    table: str
    kind: PurgeKind = Field(description="The purge that removes its rows.")
    retention_minutes: int = Field(description="In effect for that purge.")
    removed: int = Field(description="By Lethe, over all purges that it still remembers.")
    oldest_row_left: datetime | None = Field(description="Time of the lowest id that has one.")
    lag_behind_retention: Duration | None = Field(
        description="How much older than the retention it is; PT0S: none."
    )
    rows_estimate: int | None


class PurgeTickRead(LastJob):
    """A purge that recurs."""

    kind: PurgeKind
    cron: str = Field(description="Six fields, seconds first.")
    time_zone: str = Field(description="The store's.")
    next_at: datetime
    last_at: datetime | None
    last_outcome: TickOutcome | None
    last_detail: str | None = Field(description="Why the last tick submitted nothing.")
    last_job_id: str | None


class PurgeStatsRead(Model):
    """What a store still holds."""

    store: str
    measured_at: datetime
    retention_minutes: int
    retention_source: str
    tables: list[PurgeTableStats]
    ticks: list[PurgeTickRead] = Field(
        description="The purges that Lethe submits by itself (`start.purge.*.job` of the store)."
    )
