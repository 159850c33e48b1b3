"""The task of a purge ROWS: from its snapshot to its result, resumable at every step."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from app.archives.housekeeping import trim_old_ledgers
from app.errors import ServiceError
from app.jobs.engines.choice import Engines, Work
from app.jobs.errors import JobFailed, JobStopped
from app.jobs.plans.reviewed_plan import drift_fault
from app.jobs.running.abandonment import CHECKPOINT_TARGET
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import Claimed, claim, controlled
from app.jobs.running.suspension import awake_store
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
from app.stores.rows import Store
from app.stores.targets import place_of, session_limits, target_of
from app.sweeps.archive import end_archive, folder_of, open_archive
from app.sweeps.counts import Counts, ledger_counts, noted_counts
from app.sweeps.limits import check_limits, limits_in_effect
from app.sweeps.loop import sweep_on
from app.sweeps.outlook import Outlook
from app.sweeps.silence import prove_sweep_silent
from app.sweeps.windows import CHECKPOINT_LOOP, LoopState, WindowPlan, Windows
from spark.purge.scan import PlanStopped
from spark.rows.family import Family, TableStep
from spark.rows.plan import HELD, RowKeySink, RowsPlan, plan_rows
from spark.rows.unit import ONLY_MAX, RowsUnit, run_rows, unit_id
from spark.rows.walk import RowsWalk, texts
from spark.rows.walk import place_of as place_of_step
from spark.targets.connection import Connection
from spark.targets.silence import application_name
from spark.targets.target import is_on_this_machine
from spark.targets.transaction import AnyUnit, UnitResult
from spark.targets.walk import Piece, Walk
from spark.targets.work import UnitWork

CHECKPOINT_CUTOFF: Final = "cutoff"
CHECKPOINT_LIMITS: Final = "limits"
UNITS_NAME: Final = "units"
FREE_TARGET_S: Final = 1.0
"""Of a unit whose rows nobody refers to: no writer waits for it; short enough for replicas."""
Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class RowsPurge:
    """What one attempt carries from step to step; `reviewed` are the rows of the plan that it executes."""

    context: JobContext
    conn: Connection
    store: Store
    params: RowsParams
    cutoff: datetime | None
    family: Family
    reviewed: PlannedKeys | None

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
    store = awake_store(context)
    with controlled(context, store) as conn:
        purge = _prepared(context, conn, store, for_write=True)
        known = context.checkpoint(CHECKPOINT_TARGET)  # the first attempt's: keys may have changed since
        resource = known["resource"] if known else part_resource(store, conn, purge.params.table)
        claimed = claim(context, conn, resource=resource, queue=purge.params.overlap == "QUEUE")
        kept = _check_limits(purge)
        _check_drift(purge)
        if claimed.has_ledger:
            trim_old_ledgers(context, conn)
        archive = open_archive(context, resource=claimed.resource) if purge.params.archive else None
        with ExitStack() as stack:
            brake = _or_fail(
                lambda: stack.enter_context(
                    braking(context, conn, most=purge.params.max_replica_lag, replicas=purge.params.replicas)
                )
            )
            state = _sweep(purge, claimed, engines, archive=archive, brake=brake)
        return _result(purge, claimed, state, kept, brake)


def run_rows_plan(context: JobContext) -> Mapping[str, Any]:
    """Plan a purge ROWS: the same checks, nothing written to the target.

    Raises: JobSignal.
    """
    store = awake_store(context)
    with controlled(context, store) as conn:
        purge = _prepared(context, conn, store, for_write=False)
        recorder = KeyRecorder(context)
        plan = purge.plan(recorder.take)
        recorder.finish(plan.rows, plan.rows_to_remove, layout=layout_of(purge.family))
        shown = RowsPlanRead(
            plan_id=context.job.id,
            store=store.id,
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
            limits=judge(store, _reach(plan)),
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


def _or_fail(check: Callable[[], Seen]) -> Seen:
    """Turn a refusal that a client would have got at submission into the job's failure."""
    try:
        return check()
    except ServiceError as error:
        raise JobFailed(error.code, error.detail) from error


def _prepared(context: JobContext, conn: Connection, store: Store, *, for_write: bool) -> RowsPurge:
    params = RowsParams.model_validate(context.job.params)
    if params.target != target_fields(store):  # a retry of a job from before the store was changed
        raise JobFailed("STORE_CHANGED", "the store names another target than when this was submitted")
    cutoff = _fixed_cutoff(context, params, conn)
    family = _or_fail(lambda: read_family(conn, store, params, cutoff))
    _or_fail(lambda: check_findings(refusals(family), is_plan=not for_write))
    plan_id = params.plan_id
    reviewed = None if plan_id is None else reviewed_keys(context.database, plan_id, family)
    return RowsPurge(context, conn, store, params, cutoff, family, reviewed)


def _fixed_cutoff(context: JobContext, params: RowsParams, conn: Connection) -> datetime | None:
    """The cut-off of the first attempt holds for all."""
    known = context.checkpoint(CHECKPOINT_CUTOFF)
    if known is not None:
        return None if known["at"] is None else datetime.fromisoformat(known["at"])
    cutoff = _or_fail(lambda: decide_cutoff(params, conn))
    context.save_checkpoint(CHECKPOINT_CUTOFF, {"at": None if cutoff is None else cutoff.isoformat()})
    return cutoff


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
        return list(noted["kept"])
    needs_count = is_limited(limits_in_effect(purge.store, purge.params)) or any(
        table.incoming for table in purge.family.tables.values()
    )
    kept: list[dict[str, Any]] = []
    if needs_count:
        plan = purge.plan()
        kept = [item.model_dump() for item in _warnings(plan) if item.code == HELD]
        reach = _reach(plan)
        if purge.reviewed is not None:
            reach = Reach(rows=purge.reviewed.total, part=purge.reviewed.total, whole=plan.rows)
        check_limits(purge.store, purge.params, reach)
    context.save_checkpoint(CHECKPOINT_LIMITS, {"kept": kept} | layout_of(purge.family))
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


def _sweep(
    purge: RowsPurge, claimed: Claimed, engines: Engines, *, archive: Path | None, brake: Brake | None
) -> LoopState:
    context, settings = purge.context, purge.context.settings
    estimates = [table.rows_estimate for table in purge.family.tables.values()]
    total = None if None in estimates else sum(rows for rows in estimates if rows is not None)
    wanted = Work(
        purge.params.engine or settings.engine,
        total,
        claimed.has_ledger,
        archives=archive is not None,
        is_here=is_on_this_machine(place_of(purge.store)),
    )
    engine = engines.choose(context, wanted)
    run: Callable[[Connection, Any], UnitResult] = run_rows
    work: UnitWork[AnyUnit, UnitResult] = UnitWork(
        target=target_of(purge.store, settings, context.database),
        limits=session_limits(settings),
        application_name=application_name(context.job.id, UNITS_NAME, context.job.token),
        run=run,
        # The lock lives in the database: that is in its key already, under whatever name it was reached.
        advisory_key=None if claimed.has_ledger else claimed.resource,
        place=claimed.identity,
        folder=folder_of(archive) if archive is not None and engine.name == "SPARK" else None,
    )
    alone = purge.conn.dialect.name == "sqlite" or not claimed.has_ledger
    windows = Windows(context, purge.conn, _window_plan(purge, claimed, archive, total))
    workers = 1 if alone else settings.purge_workers
    keep = (lambda: None) if brake is None else brake.keep
    sweep_on(engine, work, windows, context, workers=workers, keep=keep)
    return windows.state


def _window_plan(purge: RowsPurge, claimed: Claimed, archive: Path | None, total: int | None) -> WindowPlan:
    steps, settings = purge.family.steps(), purge.context.settings
    walk: Walk = RowsWalk(steps, purge.family.repeats, _bounded(purge.family, steps))
    most = purge.params.rows_in_tx or settings.purge_unit_rows
    if purge.reviewed is not None:
        walk = PlannedWalk(walk.steps, purge.reviewed)
        most = min(most, ONLY_MAX)
        total = purge.reviewed.total

    def make_unit(step: str, piece: Piece) -> RowsUnit:
        return _unit(purge, claimed, steps, step, piece, archive=archive)

    return WindowPlan(
        walk=walk,
        make_unit=make_unit,
        removed=lambda rows: _removed(purge.family.order(), rows),
        most_rows=dict.fromkeys(walk.steps, most),
        outlook=None if total is None else Outlook.of_total(total, expected=purge.context.job.rate_per_s),
        target_s=_target_s(purge),
        window_units=settings.purge_window_units,
    )


def _target_s(purge: RowsPurge) -> float:
    """How long a unit should take: what nobody refers to is locked for nobody, and waits for no one."""
    asked_s = purge.context.settings.purge_unit_target_ms / 1000
    is_referred_to = any(table.incoming for table in purge.family.tables.values())
    return asked_s if is_referred_to else max(asked_s, FREE_TARGET_S)


def _bounded(family: Family, steps: list[TableStep]) -> dict[int, Any]:
    """The table's own step ends at its last chosen row where an index by time finds that."""
    selection = family.selection
    if selection.cutoff is None or not family.tables[selection.table].is_led_by(selection.cutoff.column):
        return {}
    place = next(place for place, step in enumerate(steps) if step.table == selection.table)
    return {place: steps[place].chosen}


def _unit(
    purge: RowsPurge,
    claimed: Claimed,
    steps: list[TableStep],
    step: str,
    piece: Piece,
    *,
    archive: Path | None,
) -> RowsUnit:
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


def _result(
    purge: RowsPurge, claimed: Claimed, state: LoopState, kept: list[dict[str, Any]], brake: Brake | None
) -> dict[str, Any]:
    done = ledger_counts(purge.context, purge.conn) if claimed.has_ledger else noted_counts(purge.context)
    removed = _removed(purge.family.order(), done.rows)
    beside: dict[str, Any] = {}
    if purge.reviewed is not None:
        planned = {table: purge.reviewed.count(place) for place, table in enumerate(purge.family.order())}
        beside = {
            "plan_id": purge.params.plan_id,
            "planned": planned,
            "fewer_than_planned": purge.reviewed.total - sum(removed.values()),
        }
    return {
        "kind": purge.params.kind,
        "table": purge.params.table,
        "cutoff": None if purge.cutoff is None else instant_text(purge.cutoff),
        "where": purge.params.where,
        "counts": done.word,
        "removed": removed,
        **beside,
        "kept": kept,
        "archive": end_archive(purge.context, purge.conn, is_exact=done.is_exact),
        "units": done.units,
        "longest_hold_ms": round(state.longest_s * 1000),
        "held_by_replicas": None
        if brake is None
        else format_duration(timedelta(seconds=round(brake.held_s))),
        "warnings": [f"{item.code}: {item.table} {item.detail}" for item in purge.family.findings()],
    }
