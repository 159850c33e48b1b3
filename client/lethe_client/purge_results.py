"""What a purge would do, and what a store still holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lethe_client.results import JobError, Raw, Result


@dataclass(frozen=True, kw_only=True)
class TablePlan(Result):
    table: str
    rows: int | None = None
    rows_to_remove: int = 0
    lo: int | None = None
    hi: int | None = None


@dataclass(frozen=True, kw_only=True)
class StrandedNode(Result):
    """`node_id` is None for batches that name no node."""

    node_id: str | None = None
    batches: int = 0
    rows: int = 0


@dataclass(frozen=True, kw_only=True)
class Stranded(Result):
    """`cost` says in words what the mode means for these nodes."""

    mode: str = "SKIP"
    nodes: tuple[StrandedNode, ...] = ()
    batches: int = 0
    rows: int = 0
    cost: str = ""


@dataclass(frozen=True, kw_only=True)
class PlanWarning(Result):
    code: str
    table: str | None = None
    count: int | None = None
    sample: tuple[Any, ...] = ()
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class RidPlan(Result):
    """One replica id of a changelog, or of tombstones by their delete.

    `held_by` are agreements that have not acknowledged what is old; of tombstones the plan names them.
    """

    rid: int
    rows: int = 0
    rows_eligible_by_age: int = 0
    rows_to_remove: int = 0
    rows_held: int = 0
    held_by: tuple[str, ...] = ()
    floor: str | None = None
    upto: str | None = None
    purged: str | None = None
    purge_headroom: int | None = None


@dataclass(frozen=True, kw_only=True)
class Plan(Result):
    """What a purge would do; name `plan_id` in a purge to run exactly this.

    Of a purge CHANGELOG there are `rids` and `max_entries` instead of tables; of TOMBSTONES `rids` and who
    holds them (`held_by`) above which CSN (`ceiling`).
    """

    plan_id: str
    store: str = ""
    kind: str = ""
    cutoff: datetime | None = None
    cutoff_local: Any = None
    retention_minutes: int | None = None
    retention_source: str | None = None
    channel_cutoffs: Mapping[str, Any] = field(default_factory=dict)
    layout: str | None = None
    tables: tuple[TablePlan, ...] = ()
    rids: tuple[RidPlan, ...] = ()
    max_entries: int | None = None
    gone_rids: tuple[int, ...] = ()
    entries: int | None = None
    rows: int | None = None
    rows_to_remove: int | None = None
    ceiling: str | None = None
    held_by: tuple[str, ...] = ()
    upto: str | None = None
    stranded: Stranded = field(default_factory=Stranded)
    nodes: int | None = None
    limits: Raw = field(default_factory=dict)
    warnings: tuple[PlanWarning, ...] = ()
    expires_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class TableStats(Result):
    table: str
    kind: str = ""
    retention_minutes: int | None = None
    removed: int | None = None
    oldest_row_left: Any = None
    lag_behind_retention: timedelta | None = None
    rows_estimate: int | None = None


@dataclass(frozen=True, kw_only=True)
class PurgeTick(Result):
    """A purge that the service submits by itself; `last_outcome` is SUBMITTED or SKIPPED_....

    `last_job_state` and `last_job_error` tell how the job ended that was submitted last.
    """

    kind: str
    cron: str = ""
    time_zone: str = ""
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_outcome: str | None = None
    last_detail: str | None = None
    last_job_id: str | None = None
    last_job_state: str | None = None
    last_job_error: JobError | None = None


@dataclass(frozen=True, kw_only=True)
class PurgeStats(Result):
    store: str
    measured_at: datetime | None = None
    retention_minutes: int | None = None
    tables: tuple[TableStats, ...] = ()
    ticks: tuple[PurgeTick, ...] = ()
