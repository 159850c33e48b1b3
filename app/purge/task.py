"""The task of a purge: from its snapshot to its result, resumable at every step."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from app.jobs.engines.choice import Engines
from app.jobs.errors import JobFailed, JobStopped
from app.jobs.running.context import JobContext
from app.kit.instants import instant_text
from app.purge.conflicts import conflicts
from app.purge.cutoff import Cutoff, decide_cutoff, local_of, locals_of
from app.purge.drift import beside, drift_of, unit_of_plan
from app.purge.kinds.kind import Kind, Purge, UnitHead
from app.purge.kinds.table import KINDS
from app.purge.models import PurgeKind, PurgeParams, StrandedMode
from app.purge.program_lock import ProgramLock, give_back, holding
from app.purge.report import local_text, plan_read, reach_of
from app.purge.reviewed import KeyRecorder, PlannedKeys, PlannedWalk
from app.purge.rules import check_permissions, fence_resource
from app.purge.service import target_fields
from app.stores.limits import is_limited
from app.sweeps.allowance import Limit
from app.sweeps.counts import Counts
from app.sweeps.cutoff import CHECKPOINT_CUTOFF
from app.sweeps.frame import Attempt, Sweeping, asked, bounded, limit_of, run_sweep
from app.sweeps.limits import MOST, check_limits, limits_in_effect, most_rows
from app.sweeps.on_engine import sweep_windows
from app.sweeps.outlook import Ahead, Outlook
from app.sweeps.silence import prove_sweep_silent
from app.sweeps.start import TOTAL, noted_start
from app.sweeps.windows import CHECKPOINT_LOOP, LoopState, WindowPlan
from spark.purge.planned import PurgePlan
from spark.purge.reading.inspect import Inspection, inspect
from spark.purge.scan import PlanStopped

CHECKPOINT_LIMITS = "limits"
Seen = TypeVar("Seen")


@dataclass(slots=True)
class TablePurge(Attempt[PurgeParams]):
    """What one attempt carries from step to step.

    Attributes:
        lock: of the target's own program, held while units run.
        start: what was so before the first unit of the first attempt.
        most: rows that it may remove, by the limits that were looked at first; None: there were none.
    """

    purge: Purge
    engines: Engines
    lock: ProgramLock | None = None
    start: Mapping[str, Any] = field(default_factory=dict)
    most: int | None = None
    state: LoopState | None = None

    @property
    def kind(self) -> Kind:
        """Of its tables."""
        return KINDS[self.params.kind]


def run_purge(context: JobContext, *, engines: Engines) -> Mapping[str, Any]:
    """Purge, and return the result that clients see.

    Raises: JobSignal.
    Source: design.md, Purge.
    """
    with _prepared(context) as purge:
        check_permissions(purge.inspection)
        attempt = TablePurge(context, purge.conn, purge.store, purge.params, purge, engines)
        return run_sweep(TABLES, attempt)


def run_plan(context: JobContext) -> Mapping[str, Any]:
    """Plan a purge: the same checks, nothing written to the target.

    Raises: JobSignal.
    """
    with _prepared(context) as purge:
        recorder = KeyRecorder(context)
        plan = _plan(purge.with_keys(recorder.take))
        recorder.finish(plan)
        shown = plan_read(
            plan,
            plan_id=context.job.id,
            store=purge.store.id,
            params=purge.params,
            inspection=purge.inspection,
            cutoff=purge.cutoff,
            local=purge.local,
            valid_s=context.settings.plan_valid_s,
            now=context.clock.now(),
        )
        return shown.model_dump(mode="json")


@contextmanager
def _prepared(context: JobContext) -> Iterator[Purge]:
    """The tables of a job, ready to be planned."""
    with asked(context, PurgeParams, target_fields=target_fields) as (conn, store, submitted):
        params = _spared(context, submitted)
        inspection = inspect(conn, KINDS[params.kind].name)
        cutoff = _fixed_cutoff(context, params, inspection)
        local = local_of(store, inspection, cutoff.at)
        yield Purge(
            context=context,
            conn=conn,
            store=store,
            params=params,
            inspection=inspection,
            cutoff=cutoff,
            local=local,
            channels=locals_of(store, inspection, cutoff),
            should_stop=lambda: context.stop_cause is not None,
            reviewed=_reviewed(context, params),
        )


def _reviewed(context: JobContext, params: PurgeParams) -> PlannedKeys | None:
    """The rows of the plan that is executed; None: no plan is, or an earlier version has begun it."""
    if params.plan_id is None:
        return None
    keys = PlannedKeys.of_plan(context.database, params.plan_id)
    if keys is None and context.checkpoint(CHECKPOINT_LOOP) is None:
        raise JobFailed("PLAN_NO_LONGER_HOLDS", "the rows of the plan are not known any more: plan again")
    return keys


def _spared(context: JobContext, params: PurgeParams) -> PurgeParams:
    """Without the mark that an earlier version put into every request, as long as nothing has been marked."""
    if params.stranded is StrandedMode.SKIP or params.stranded_by is not None:
        return params
    if context.checkpoint(CHECKPOINT_LOOP) is not None:
        return params
    return params.model_copy(update={"stranded": StrandedMode.SKIP, "stranded_by": "DEFAULT"})


def _fixed_cutoff(context: JobContext, params: PurgeParams, inspection: Inspection) -> Cutoff:
    """The cut-off of the first attempt holds for all."""
    known = context.checkpoint(CHECKPOINT_CUTOFF)
    if known is not None:
        return Cutoff.load(known)
    cutoff = decide_cutoff(params, inspection)
    context.save_checkpoint(CHECKPOINT_CUTOFF, cutoff.dump())
    return cutoff


def _plan(purge: Purge) -> PurgePlan:
    return _unless_stopped(purge, partial(_kind(purge).plan, purge, purge.now))


def _unless_stopped(purge: Purge, look: Callable[[], Seen]) -> Seen:
    try:
        return look()
    except PlanStopped as error:
        cause = purge.context.stop_cause
        assert cause is not None
        raise JobStopped(cause) from error


def _check_limits(purge: Purge) -> int | None:
    """Hold the plan against the store's limits before the first delete; what may go, None: no limit says.

    What was counted by an attempt that stopped before its first unit is counted again.
    """
    context = purge.context
    if context.checkpoint(CHECKPOINT_LOOP) is not None:
        return (context.checkpoint(CHECKPOINT_LIMITS) or {}).get(MOST)
    limits = limits_in_effect(purge.store, purge.params)
    if not is_limited(limits):
        return None
    plan = _plan(purge) if purge.reviewed is None else purge.reviewed.plan
    check_limits(purge.store, purge.params, reach_of(plan))
    most = most_rows(limits, whole=plan.rows)
    noted = {"rows": plan.rows, "rows_to_remove": plan.rows_to_remove, MOST: most}
    context.save_checkpoint(CHECKPOINT_LIMITS, noted)
    return most


def _check_drift(purge: Purge) -> None:
    """Fail before the first delete when too few rows of the plan would go now."""
    if purge.context.checkpoint(CHECKPOINT_LOOP) is not None:
        return
    fault = _unless_stopped(purge, partial(drift_of, purge, _kind(purge)))
    if fault is not None:
        raise JobFailed("PLAN_NO_LONGER_HOLDS", fault)


def _kind(purge: Purge) -> Kind:
    return KINDS[purge.params.kind]


def _start(purge: Purge) -> dict[str, Any]:
    """What is so before the first unit."""
    began_s = purge.context.clock.boottime_s()
    start = {TOTAL: _total_rows(purge.inspection), **_kind(purge).start(purge)}
    start["look_s"] = purge.context.clock.boottime_s() - began_s
    if purge.reviewed is not None:
        start |= purge.reviewed.noted["start"]
    start["reach"] = _reach(purge, start)
    return start


def _reach(purge: Purge, start: Mapping[str, Any]) -> dict[str, list[int]]:
    """Step to the rows that it will look at, and to those of them that are old enough to go."""
    if purge.reviewed is not None:
        steps = _kind(purge).walk(purge, start).steps
        return {step: [purge.reviewed.count(step)] * 2 for step in steps}
    return {step: list(reach) for step, reach in _kind(purge).reach(purge, start).items()}


def _outlook(purge: Purge, start: Mapping[str, Any]) -> Outlook | None:
    expected = purge.context.job.rate_per_s
    if "reach" not in start:  # an earlier version has begun it
        total = start[TOTAL]
        return None if total is None else Outlook.of_total(total, expected=expected)
    costs = _kind(purge).costs.get(purge.conn.dialect.name, {})
    ahead = {step: Ahead(rows, going, costs.get(step, 1.0)) for step, (rows, going) in start["reach"].items()}
    return Outlook(ahead, after_s=start["look_s"], expected=expected)  # the end looks as the beginning did


def _resource(attempt: TablePurge) -> str:
    return fence_resource(attempt.store, attempt.kind.resource)


def _check(attempt: TablePurge) -> None:
    attempt.most = _check_limits(attempt.purge)
    _check_drift(attempt.purge)


@contextmanager
def _locked(attempt: TablePurge) -> Iterator[None]:
    with holding(attempt.purge, attempt.kind) as attempt.lock:
        attempt.start = noted_start(attempt.context, partial(_start, attempt.purge))
        yield


def _sweep(attempt: TablePurge) -> None:
    assert attempt.lock is not None, "units run under the program's lock"
    attempt.state = sweep_windows(
        attempt,
        attempt.engines,
        _window_plan(attempt),
        run=attempt.kind.run_unit,
        rows=attempt.start[TOTAL],
        keep=attempt.lock.keep,
    )


def prove_purge_silent(context: JobContext) -> None:
    """The proof of silence; the program's lock is given back, and what was done so far is shown.

    Raises: JobWaiting.
    """
    kind = KINDS[PurgeParams.model_validate(context.job.params).kind]

    def tell(done: Counts) -> dict[str, Any]:
        step = kind.marking
        marked = {} if step is None else {"stranded": {"marked": done.rows.get(step, 0)}}
        return {"removed": kind.removed(done.rows), **marked}

    prove_sweep_silent(context, tell=tell, heal=lambda conn: give_back(context, conn, kind))


def _window_plan(attempt: TablePurge) -> WindowPlan:
    purge, kind, claimed, start = attempt.purge, attempt.kind, attempt.claim, attempt.start
    job, settings = purge.context.job, purge.context.settings
    head = UnitHead(job.id, job.token, claimed.resource, claimed.has_ledger, attempt.archive)
    walk, make_unit = kind.walk(purge, start), kind.units(purge, head, start)
    keys = purge.reviewed
    if keys is not None:
        walk = PlannedWalk(walk.steps, keys, node_by_node=purge.params.kind is PurgeKind.INCOMING)
        make_unit = partial(unit_of_plan, keys, make_unit)
    return WindowPlan(
        walk=walk,
        make_unit=make_unit,
        removed=kind.removed,
        most_rows=kind.most_rows(purge.params, settings),
        first_rows=kind.first_rows,
        outlook=_outlook(purge, start),
        target_s=settings.purge_unit_target_ms / 1000,
        window_units=settings.purge_window_units,
        limit=_limit(attempt),
    )


def _limit(attempt: TablePurge) -> Limit | None:
    """Of rows that go; a batch that is marked is none."""
    kind, most = attempt.kind, attempt.most
    if most is None:
        return None

    def bound(unit: Any, rows: int) -> Any:
        return bounded(unit, rows) if unit.step in kind.tables else unit

    return limit_of(attempt, most, bound=bound, gone=lambda rows: sum(kind.removed(rows).values()))


def _total_rows(inspection: Inspection) -> int | None:
    estimates = [rows for rows, _bytes in inspection.sizes.values()]
    return sum(rows for rows in estimates if rows is not None) if None not in estimates else None


def _of_channels(cutoff: Cutoff) -> dict[str, Any]:
    if not cutoff.of_channels:
        return {}
    return {"channel_cutoffs": {name: instant_text(at) for name, at in cutoff.of_channels.items()}}


def _tell(attempt: TablePurge, done: Counts) -> dict[str, Any]:
    purge, kind = attempt.purge, attempt.kind
    assert attempt.state is not None, "the result is made when all units are done"
    assert attempt.lock is not None, "the result is made under the program's lock"
    return {
        "cutoff": instant_text(purge.cutoff.at),
        "cutoff_local": local_text(purge.local),
        "retention_minutes": purge.cutoff.retention_minutes,
        "retention_source": purge.cutoff.source,
        **_of_channels(purge.cutoff),
        "layout": purge.inspection.layout.version,
        "removed": kind.removed(done.rows),
        **beside(purge, kind, done.rows),
        **kind.finish(purge, attempt.state, done.rows, attempt.start),
        "warnings": [*conflicts(purge.inspection), *attempt.lock.warnings],
    }


TABLES: Final[Sweeping[TablePurge]] = Sweeping(
    resource=_resource, check=_check, held=_locked, sweep=_sweep, tell=_tell
)
