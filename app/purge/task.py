"""The task of a purge: from its snapshot to its result, resumable at every step."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from app.archives.housekeeping import trim_old_ledgers
from app.archives.service import archive_directory, close_archive, open_archive
from app.errors import ServiceError
from app.jobs.engines.choice import Engines, Work
from app.jobs.engines.engine import Engine, borrower_of
from app.jobs.errors import JobFailed, JobStopped
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import (
    Claimed,
    claim,
    controlled,
    counts_by_ledger,
    prove_silence,
    read_store_of,
)
from app.jobs.running.suspension import suspended_wait
from app.jobs.writing import EVENT_WARNING
from app.kit.instants import instant_text
from app.purge.conflicts import conflicts
from app.purge.cutoff import Cutoff, decide_cutoff
from app.purge.drift import beside, drift_of, unit_of_plan
from app.purge.kind import Kind, Purge, UnitHead
from app.purge.kinds import KINDS
from app.purge.models import PurgeKind, PurgeParams, StrandedMode
from app.purge.outgoing import OUTGOING
from app.purge.program_lock import give_back, holding
from app.purge.report import exceeded_limits, local_text, plan_read
from app.purge.reviewed import KeyRecorder, PlannedKeys, PlannedWalk
from app.purge.rules import check_permissions, fence_resource
from app.purge.service import target_fields
from app.purge.steps import CHECKPOINT_LOOP, LoopPlan, LoopState, PurgeLoop
from app.stores.models import StoreLimits
from app.stores.rows import Store, is_suspended
from app.stores.targets import place_of, session_limits, target_of
from spark.purge.cutoff import convert
from spark.purge.planned import PurgePlan
from spark.purge.reading.inspect import Inspection, inspect
from spark.purge.scan import PlanStopped
from spark.purge.transaction import AnyUnit, UnitResult
from spark.targets.archive.file import prepare_directory
from spark.targets.connection import Connection
from spark.targets.errors import ArchiveFailed, archive_failure
from spark.targets.ledger import has_ledger, ledger_totals
from spark.targets.silence import application_name
from spark.targets.target import is_on_this_machine
from spark.targets.work import UnitWork

CHECKPOINT_CUTOFF = "cutoff"
CHECKPOINT_START = "start"
CHECKPOINT_LIMITS = "limits"
UNITS_NAME = "units"
Bound = TypeVar("Bound", int, float)
Seen = TypeVar("Seen")


def run_purge(context: JobContext, *, engines: Engines) -> Mapping[str, Any]:
    """Purge, and return the result that clients see.

    Raises: JobSignal.
    Source: design.md, Purge.
    """
    store = _awake_store(context)
    with controlled(context, store) as conn:
        purge = _prepare(context, conn, store)
        check = partial(check_permissions, purge.inspection)
        _or_fail(check)
        resource = fence_resource(store, _kind(purge).resource)
        claimed = claim(context, conn, resource=resource, queue=purge.params.overlap == "QUEUE")
        _check_limits(purge)
        _check_drift(purge)
        if claimed.has_ledger:
            trim_old_ledgers(context, conn)
        with holding(purge, _kind(purge)) as lock:
            start = _note_start(purge)
            archive = _open_archive(purge, claimed)
            asked = purge.params.engine or context.settings.engine
            wanted = Work(
                asked,
                start["total_rows"],
                claimed.has_ledger,
                archives=archive is not None,
                is_here=is_on_this_machine(place_of(store)),
            )
            engine = engines.choose(context, wanted)
            plan = replace(_loop_plan(purge, claimed, archive, start), keep=lock.keep)
            state = _run_loop(purge, claimed, engine, plan, archive)
            warnings = [*conflicts(purge.inspection), *lock.warnings]
            return _result(purge, claimed, archive, state, start) | {"warnings": warnings}


def run_plan(context: JobContext) -> Mapping[str, Any]:
    """Plan a purge: the same checks, nothing written to the target.

    Raises: JobSignal.
    """
    store = _awake_store(context)
    with controlled(context, store) as conn:
        purge = _prepare(context, conn, store)
        recorder = KeyRecorder(context)
        plan = _plan(purge.with_keys(recorder.take))
        recorder.finish(plan)
        shown = plan_read(
            plan,
            plan_id=context.job.id,
            store=store.id,
            params=purge.params,
            inspection=purge.inspection,
            cutoff=purge.cutoff,
            local=purge.local,
            valid_s=context.settings.plan_valid_s,
            now=context.clock.now(),
        )
        return shown.model_dump(mode="json")


def _awake_store(context: JobContext) -> Store:
    store = read_store_of(context)
    now = context.clock.now()
    if is_suspended(store, now=now):
        raise suspended_wait(store.id, now=now, until=store.suspended_until)
    return store


def _or_fail(check: partial[Any]) -> Any:
    """Turn a refusal that a client would have got at submission into the job's failure."""
    try:
        return check()
    except ServiceError as error:
        raise JobFailed(error.code, error.detail) from error


def _prepare(context: JobContext, conn: Connection, store: Store) -> Purge:
    params = _spared(context, PurgeParams.model_validate(context.job.params))
    if params.target != target_fields(store):  # a retry of a job from before the store was changed
        raise JobFailed("STORE_CHANGED", "the store names another target than when this was submitted")
    inspection = inspect(conn, KINDS[params.kind].name)
    cutoff = _fixed_cutoff(context, params, inspection)
    local = convert(cutoff.at, time_zone=store.time_zone, encoding=inspection.time_encoding)
    return Purge(
        context=context,
        conn=conn,
        store=store,
        params=params,
        inspection=inspection,
        cutoff=cutoff,
        local=local,
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
        return Cutoff(datetime.fromisoformat(known["at"]), known["retention_minutes"], known["source"])
    cutoff: Cutoff = _or_fail(partial(decide_cutoff, params, inspection))
    noted = {
        "at": cutoff.at.isoformat(),
        "retention_minutes": cutoff.retention_minutes,
        "source": cutoff.source,
    }
    context.save_checkpoint(CHECKPOINT_CUTOFF, noted)
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


def _check_limits(purge: Purge) -> None:
    """Fail before the first delete when the plan exceeds the store's limits.

    The limits are those of the submission, or tighter ones that the store has got since (a retry, a long
    queue). What was counted by an attempt that stopped before its first unit is counted again.
    """
    context = purge.context
    limits = StoreLimits.model_validate(purge.store.limits)
    params = purge.params.model_copy(
        update={
            "max_rows": _tighter(purge.params.max_rows, limits.max_rows),
            "max_fraction": _tighter(purge.params.max_fraction, limits.max_fraction),
        }
    )
    if params.max_rows is None and params.max_fraction is None:
        return
    if context.checkpoint(CHECKPOINT_LOOP) is not None:
        return
    plan = _plan(purge) if purge.reviewed is None else purge.reviewed.plan
    exceeded = exceeded_limits(params, plan)
    if exceeded:
        raise JobFailed("LIMIT_EXCEEDED", "; ".join(exceeded))
    context.save_checkpoint(CHECKPOINT_LIMITS, {"rows": plan.rows, "rows_to_remove": plan.rows_to_remove})


def _check_drift(purge: Purge) -> None:
    """Fail before the first delete when too few rows of the plan would go now."""
    if purge.context.checkpoint(CHECKPOINT_LOOP) is not None:
        return
    fault = _unless_stopped(purge, partial(drift_of, purge, _kind(purge)))
    if fault is not None:
        raise JobFailed("PLAN_NO_LONGER_HOLDS", fault)


def _tighter(ours: Bound | None, now: Bound | None) -> Bound | None:
    return min((bound for bound in (ours, now) if bound is not None), default=None)


def _kind(purge: Purge) -> Kind:
    return KINDS[purge.params.kind]


def _note_start(purge: Purge) -> dict[str, Any]:
    """What was so before the first unit; the first attempt's holds for all."""
    known = purge.context.checkpoint(CHECKPOINT_START)
    if known is not None:
        return known
    start = {"total_rows": _total_rows(purge.inspection), **_kind(purge).start(purge)}
    if purge.reviewed is not None:
        start |= purge.reviewed.noted["start"]
    purge.context.check()
    purge.context.save_checkpoint(CHECKPOINT_START, start)
    return start


def _run_loop(
    purge: Purge, claimed: Claimed, engine: Engine, plan: LoopPlan, archive: Path | None
) -> LoopState:
    context = purge.context
    alone = purge.conn.dialect.name == "sqlite" or not claimed.has_ledger
    workers = 1 if alone else context.settings.purge_workers
    work: UnitWork[AnyUnit, UnitResult] = UnitWork(
        target=target_of(purge.store, context.settings, context.database),
        limits=session_limits(context.settings),
        application_name=application_name(context.job.id, UNITS_NAME, context.job.token),
        run=_kind(purge).run_unit,
        # The lock lives in the database: that is in its key already, under whatever name it was reached.
        advisory_key=None if claimed.has_ledger else claimed.resource,
        place=claimed.identity,
        folder=_made(archive) if archive is not None and engine.name == "SPARK" else None,
    )
    with engine.lease(work, workers=workers, borrower=borrower_of(context)) as lease:
        forget = context.on_cancel(lease.cancel)
        try:
            return PurgeLoop(context, purge.conn, lease, plan).run()
        finally:
            forget()


def _open_archive(purge: Purge, claimed: Claimed) -> Path | None:
    if purge.params.archive is None:
        return None
    return open_archive(purge.context, retention=purge.params.archive_retention, resource=claimed.resource)


def _made(archive: Path) -> str:
    """The archive's folder, made here: a worker elsewhere that does not see it must not write.

    Raises: ArchiveFailed.
    """
    try:
        prepare_directory(archive)
    except OSError as error:
        raise archive_failure(archive, error) from error
    return str(archive)


def _close_archive(purge: Purge, claimed: Claimed, archive: Path) -> dict[str, Any]:
    retention = purge.params.archive_retention
    return close_archive(
        purge.context, purge.conn, archive, has_ledger=claimed.has_ledger, retention=retention
    )


def prove_purge_silent(context: JobContext) -> None:
    """The proof of silence; then what was done so far is shown, and the archive gets its manifest.

    Raises: JobWaiting.
    """
    prove_silence(context, then=partial(_note_partial, context))


def _note_partial(context: JobContext, conn: Connection) -> None:
    kind = KINDS[PurgeParams.model_validate(context.job.params).kind]
    give_back(context, conn, kind)
    rows, units, counted = _done_so_far(context, conn)
    result = {
        "counts": "EXACT" if counted else "AT_LEAST",
        "removed": kind.removed(rows),
        **({"stranded": {"marked": rows.get("STRANDED", 0)}} if kind is OUTGOING else {}),
        "archive": _partial_archive(context, conn, counted=counted),
        "units": units,
    }
    context.write(lambda db: context.change(db, {"result": result}))


def _done_so_far(context: JobContext, conn: Connection) -> tuple[dict[str, int], int, bool]:
    """Rows by step and units; by the ledger, or by what finished windows told."""
    if counts_by_ledger(context) and has_ledger(conn):
        totals = ledger_totals(conn, context.job.id)
        rows = {step: total.rows for step, total in totals.items()}
        return rows, sum(total.units for total in totals.values()), True
    state = LoopState.load(context.checkpoint(CHECKPOINT_LOOP), first="")
    return state.rows, state.units, False


def _partial_archive(context: JobContext, conn: Connection, *, counted: bool) -> dict[str, Any] | None:
    """The archive as far as it is. A folder that cannot be written does not make the target less silent."""
    directory = archive_directory(context)
    if directory is None:
        return None
    retention = PurgeParams.model_validate(context.job.params).archive_retention
    try:
        return close_archive(context, conn, directory, has_ledger=counted, retention=retention)
    except ArchiveFailed as error:
        data = {"code": error.code, "detail": error.detail}
        context.note(EVENT_WARNING, data)
        return {"directory": str(directory), "error": data}


def _loop_plan(purge: Purge, claimed: Claimed, archive: Path | None, start: Mapping[str, Any]) -> LoopPlan:
    kind, job, settings = _kind(purge), purge.context.job, purge.context.settings
    head = UnitHead(job.id, job.token, claimed.resource, claimed.has_ledger, archive)
    walk, make_unit = kind.walk(purge.params, purge.local, start), kind.units(purge, head, start)
    keys = purge.reviewed
    if keys is not None:
        walk = PlannedWalk(walk.steps, keys, node_by_node=purge.params.kind is PurgeKind.INCOMING)
        make_unit = partial(unit_of_plan, keys, make_unit)
    return LoopPlan(
        walk=walk,
        make_unit=make_unit,
        removed=kind.removed,
        most_rows=kind.most_rows(purge.params, settings),
        total_rows=start["total_rows"],
        target_s=settings.purge_unit_target_ms / 1000,
        window_units=settings.purge_window_units,
        retries_max=settings.purge_unit_retries_max,
    )


def _total_rows(inspection: Inspection) -> int | None:
    estimates = [rows for rows, _bytes in inspection.sizes.values()]
    return sum(rows for rows in estimates if rows is not None) if None not in estimates else None


def _result(
    purge: Purge, claimed: Claimed, archive: Path | None, state: LoopState, start: Mapping[str, Any]
) -> dict[str, Any]:
    totals = ledger_totals(purge.conn, purge.context.job.id) if claimed.has_ledger else None
    rows = state.rows if totals is None else {step: total.rows for step, total in totals.items()}
    units = state.units if totals is None else sum(total.units for total in totals.values())
    more = _kind(purge).finish(purge, state, rows, start)
    kept = _close_archive(purge, claimed, archive) if archive else None
    return {
        "cutoff": instant_text(purge.cutoff.at),
        "cutoff_local": local_text(purge.local),
        "retention_minutes": purge.cutoff.retention_minutes,
        "retention_source": purge.cutoff.source,
        "layout": purge.inspection.layout.version,
        "counts": "EXACT" if claimed.has_ledger else "AT_LEAST",
        "removed": _kind(purge).removed(rows),
        **beside(purge, _kind(purge), rows),
        **more,
        "archive": kept,
        "units": units,
        "longest_hold_ms": round(state.longest_s * 1000),
    }
