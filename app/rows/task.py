"""The task of a purge ROWS: from its snapshot to its result, resumable at every step."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from app.jobs.engines.choice import Engines
from app.jobs.errors import JobFailed, JobStopped
from app.jobs.plans.reviewed_plan import drift_fault
from app.jobs.running.abandonment import CHECKPOINT_TARGET
from app.jobs.running.context import JobContext
from app.kit.durations import format_duration
from app.kit.instants import instant_text
from app.rows.brake import Brake, braking
from app.rows.layout import TABLES, check_same_layout, layout_of
from app.rows.models import RowsParams, RowsPlanRead, RowsTableRead, RowsWarningRead
from app.rows.planned import KeyRecorder, PlannedKeys, PlannedWalk, reviewed_keys
from app.rows.rules import (
    check_findings,
    decide_cutoff,
    part_resource,
    read_family,
    refusals,
    target_fields,
)
from app.stores.limits import is_limited, judge
from app.stores.models import Reach
from app.sweeps.counts import Counts
from app.sweeps.cutoff import fixed_instant
from app.sweeps.frame import Attempt, Sweeping, asked, beside_plan, bounded, limit_of, run_sweep
from app.sweeps.limits import MOST, check_limits, limits_in_effect, most_rows
from app.sweeps.on_engine import sweep_windows
from app.sweeps.outlook import Outlook
from app.sweeps.silence import prove_sweep_silent
from app.sweeps.start import TOTAL, noted_start, total_at_start
from app.sweeps.windows import CHECKPOINT_LOOP, WindowPlan
from spark.purge.scan import PlanStopped
from spark.rows.family import Family, TableStep
from spark.rows.plan import HELD, RowKeySink, RowsPlan, plan_rows
from spark.rows.unit import ONLY_MAX, RowsUnit, run_rows, unit_id
from spark.rows.walk import RowsWalk, texts
from spark.rows.walk import place_of as place_of_step
from spark.targets.walk import Piece, Walk

CHECKPOINT_LIMITS: Final = "limits"
FREE_TARGET_S: Final = 2.0
"""Of a unit that locks rows which nobody refers to. What replicas get is bounded by its rows."""


@dataclass(slots=True)
class RowsPurge(Attempt[RowsParams]):
    """What one attempt carries from step to step.

    Attributes:
        reviewed: the rows of the plan that it executes.
        kept: chosen rows that a foreign key still needed when the purge began.
        brake: holds its units while a replica is behind; None: nobody asked for that.
        most: rows that it may remove, by the limits that were looked at first; None: there were none.
    """

    cutoff: datetime | None
    family: Family
    reviewed: PlannedKeys | None
    engines: Engines | None = None
    kept: list[dict[str, Any]] = field(default_factory=list)
    brake: Brake | None = None
    most: int | None = None

    @property
    def is_begun(self) -> bool:
        """Whether an attempt has come to its first unit."""
        return self.context.checkpoint(CHECKPOINT_LOOP) is not None

    def plan(self, keys: RowKeySink | None = None) -> RowsPlan:
        """What would go now.

        Raises: JobStopped.
        """
        context = self.context
        try:
            return plan_rows(
                self.conn, self.family, should_stop=lambda: context.stop_cause is not None, keys=keys
            )
        except PlanStopped as error:
            cause = context.stop_cause
            assert cause is not None
            raise JobStopped(cause) from error


def run_rows_purge(context: JobContext, *, engines: Engines) -> Mapping[str, Any]:
    """Purge, and return the result that clients see.

    Raises: JobSignal.
    """
    with _prepared(context, for_write=True) as purge:
        purge.engines = engines
        return run_sweep(ROWS_SWEEP, purge)


def run_rows_plan(context: JobContext) -> Mapping[str, Any]:
    """Plan a purge ROWS: the same checks, nothing written to the target.

    Raises: JobSignal.
    """
    with _prepared(context, for_write=False) as purge:
        recorder = KeyRecorder(context)
        plan = purge.plan(recorder.take)
        recorder.finish(plan.rows, plan.rows_to_remove, layout=layout_of(purge.family))
        shown = RowsPlanRead(
            plan_id=context.job.id,
            store=purge.store.id,
            cutoff=purge.cutoff,
            time_column=purge.params.time_column,
            time_unit=purge.params.time_unit,
            where=purge.params.where,
            children=purge.params.children,
            tables=[
                RowsTableRead(table=each.table, rows=each.rows, rows_to_remove=each.rows_to_remove)
                for each in plan.tables
            ],
            rows=plan.rows,
            rows_to_remove=plan.rows_to_remove,
            warnings=_warnings(plan),
            limits=judge(purge.store, _reach(plan)),
            is_executable=recorder.is_whole,
            expires_at=context.clock.now() + timedelta(seconds=context.settings.plan_valid_s),
        )
        return shown.model_dump(mode="json")


def prove_rows_silent(context: JobContext) -> None:
    """The proof of silence; then what was done so far is shown, and the archive gets its manifest.

    Raises: JobWaiting.
    """
    params = RowsParams.model_validate(context.job.params)
    noted = context.checkpoint(CHECKPOINT_LIMITS) or {}
    tables = noted.get(TABLES) or [params.table]

    def tell(done: Counts) -> dict[str, Any]:
        return {"kind": params.kind, "removed": _removed(tables, done.rows)}

    prove_sweep_silent(context, tell=tell)


@contextmanager
def _prepared(context: JobContext, *, for_write: bool) -> Iterator[RowsPurge]:
    """The tables of a job, ready to be planned."""
    with asked(context, RowsParams, target_fields=target_fields) as (conn, store, params):
        cutoff = fixed_instant(context, partial(decide_cutoff, params, conn))
        family = read_family(conn, store, params, cutoff)
        check_findings(refusals(family), is_plan=not for_write)
        plan_id = params.plan_id
        reviewed = None if plan_id is None else reviewed_keys(context.database, plan_id, family)
        yield RowsPurge(context, conn, store, params, cutoff, family, reviewed)


def _resource(purge: RowsPurge) -> str:
    """The first attempt's: keys may have changed since."""
    known = purge.context.checkpoint(CHECKPOINT_TARGET)
    return str(known["resource"]) if known else part_resource(purge.store, purge.conn, purge.params.table)


def _check(purge: RowsPurge) -> None:
    purge.kept = _check_limits(purge)
    _check_drift(purge)


@contextmanager
def _braking(purge: RowsPurge) -> Iterator[None]:
    params = purge.params
    with braking(
        purge.context, purge.conn, most=params.max_replica_lag, replicas=params.replicas
    ) as purge.brake:
        yield


def _reach(plan: RowsPlan) -> Reach:
    return Reach(rows=plan.rows_to_remove, part=plan.rows_to_remove, whole=plan.rows)


def _check_limits(purge: RowsPurge) -> list[dict[str, Any]]:
    """Hold what would go against the store's limits before the first delete; the rows that are kept.

    Counted where somebody wants to know it: a limit, a foreign key that may keep rows.
    """
    context = purge.context
    noted = context.checkpoint(CHECKPOINT_LIMITS)
    if noted is not None and purge.is_begun:
        check_same_layout(noted, purge.family)
        purge.most = noted.get(MOST)
        return list(noted["kept"])
    limits = limits_in_effect(purge.store, purge.params)
    needs_count = is_limited(limits) or any(table.incoming for table in purge.family.tables.values())
    kept: list[dict[str, Any]] = []
    if needs_count:
        plan = purge.plan()
        kept = [item.model_dump() for item in _warnings(plan) if item.code == HELD]
        reach = _reach(plan)
        if purge.reviewed is not None:
            reach = Reach(rows=purge.reviewed.total, part=purge.reviewed.total, whole=plan.rows)
        check_limits(purge.store, purge.params, reach)
        purge.most = most_rows(limits, whole=plan.rows)
    noted_now = {"kept": kept, MOST: purge.most} | layout_of(purge.family)
    context.save_checkpoint(CHECKPOINT_LIMITS, noted_now)
    return kept


def _check_drift(purge: RowsPurge) -> None:
    """Fail before the first delete when too few rows of the plan would go now."""
    reviewed, max_drift = purge.reviewed, purge.params.max_drift
    if reviewed is None or max_drift is None or purge.is_begun:
        return
    still = 0
    holds: dict[int, Callable[[tuple[str, ...]], bool]] = {}

    def take(place: int, keys: Any) -> None:
        nonlocal still
        is_planned = holds.setdefault(place, reviewed.holds(place))
        still += sum(map(is_planned, keys))

    purge.plan(take)
    fault = drift_fault(reviewed.total, still, max_drift=max_drift)
    if fault is not None:
        raise JobFailed("PLAN_NO_LONGER_HOLDS", fault)


def _sweep(purge: RowsPurge) -> None:
    assert purge.engines is not None, "a purge has engines"
    total = noted_start(purge.context, partial(_start, purge))[TOTAL]
    plan = _window_plan(purge, total)
    keep = (lambda: None) if purge.brake is None else purge.brake.keep
    sweep_windows(purge, purge.engines, plan, run=run_rows, rows=total, keep=keep)


def _start(purge: RowsPurge) -> dict[str, Any]:
    """What is so before the first unit."""
    estimates = [table.rows_estimate for table in purge.family.tables.values()]
    total = None if None in estimates else sum(rows for rows in estimates if rows is not None)
    return {TOTAL: total_at_start(purge.context, total)}


def _window_plan(purge: RowsPurge, total: int | None) -> WindowPlan:
    steps, settings = purge.family.steps(), purge.context.settings
    walk: Walk = RowsWalk(steps, purge.family.repeats, _bounded(purge.family, steps))
    most = purge.params.rows_in_tx or settings.purge_unit_rows
    if purge.reviewed is not None:
        walk = PlannedWalk(walk.steps, purge.reviewed)
        most = min(most, ONLY_MAX)
        total = purge.reviewed.total

    def make_unit(step: str, piece: Piece) -> RowsUnit:
        return _unit(purge, steps, step, piece)

    return WindowPlan(
        walk=walk,
        make_unit=make_unit,
        removed=lambda rows: _removed(purge.family.order(), rows),
        most_rows=dict.fromkeys(walk.steps, most),
        outlook=None if total is None else Outlook.of_total(total, expected=purge.context.job.rate_per_s),
        target_s=_target_s(purge),
        window_units=settings.purge_window_units,
        is_waited_for=_is_waited_for(purge),
        limit=None if purge.most is None else limit_of(purge, purge.most, bound=bounded),
    )


def _is_waited_for(purge: RowsPurge) -> bool:
    """What nobody refers to is locked for nobody, but SQLite locks the whole database for each unit."""
    if purge.conn.dialect.name == "sqlite":
        return True
    return any(table.incoming for table in purge.family.tables.values())


def _target_s(purge: RowsPurge) -> float:
    """How long a unit should take."""
    asked_s = purge.context.settings.purge_unit_target_ms / 1000
    return asked_s if _is_waited_for(purge) else max(asked_s, FREE_TARGET_S)


def _bounded(family: Family, steps: list[TableStep]) -> dict[int, Any]:
    """The table's own step ends at its last chosen row where an index by time finds that."""
    selection = family.selection
    if selection.cutoff is None or not family.tables[selection.table].is_led_by(selection.cutoff.column):
        return {}
    place = next(place for place, step in enumerate(steps) if step.table == selection.table)
    return {place: steps[place].chosen}


def _unit(purge: RowsPurge, steps: list[TableStep], step: str, piece: Piece) -> RowsUnit:
    claimed, archive = purge.claim, purge.archive
    place, job = place_of_step(step), purge.context.job
    only = None
    after, upto = texts(piece.lo), texts(piece.hi)
    if purge.reviewed is not None:
        only = tuple(purge.reviewed.between(place, piece.lo[0], piece.hi[0]))
        after, upto = (), only[-1]
    return RowsUnit(
        job_id=job.id,
        unit_id=unit_id(step, after if only is None else only[0], upto),
        step=step,
        table=steps[place],
        after=after,
        upto=upto,
        token=job.token,
        resource=claimed.resource,
        has_ledger=claimed.has_ledger,
        archive_dir=None if archive is None else str(archive),
        only=only,
    )


def _removed(tables: list[str], rows: Mapping[str, int]) -> dict[str, int]:
    """Rows removed by table, from rows by step; several passes over one table are one."""
    found = dict.fromkeys(tables, 0)
    for step, count in rows.items():
        found[tables[place_of_step(step)]] += count
    return found


def _warnings(plan: RowsPlan) -> list[RowsWarningRead]:
    return [
        RowsWarningRead(
            code=item.code, table=item.table, count=item.count, sample=list(item.sample), detail=item.detail
        )
        for item in plan.warnings
    ]


def _tell(purge: RowsPurge, done: Counts) -> dict[str, Any]:
    tables, brake, reviewed = purge.family.order(), purge.brake, purge.reviewed
    removed = _removed(tables, done.rows)
    planned = None
    if reviewed is not None:
        planned = {table: reviewed.count(place) for place, table in enumerate(tables)}
    held_s = None if brake is None else round(brake.held_s)
    return {
        "kind": purge.params.kind,
        "table": purge.params.table,
        "cutoff": None if purge.cutoff is None else instant_text(purge.cutoff),
        "where": purge.params.where,
        "removed": removed,
        **beside_plan(purge.params.plan_id, planned, sum(removed.values())),
        "kept": purge.kept,
        "held_by_replicas": None if held_s is None else format_duration(timedelta(seconds=held_s)),
        "warnings": [f"{item.code}: {item.table} {item.detail}" for item in purge.family.findings()],
    }


ROWS_SWEEP: Final[Sweeping[RowsPurge]] = Sweeping(
    resource=_resource, check=_check, held=_braking, sweep=_sweep, tell=_tell
)
