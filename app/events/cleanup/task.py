"""The task of an event cleanup: heal, plan, limits, rows, log switch, result; resumable at every step.

Invariants:
- the instant that confirmations are measured by is fixed by the first attempt, by the target's clock;
- nothing is removed before the plan is held against the store's limits;
- what has been removed is told by the target's ledger, where there is one;
- the log is switched once per job: the status before is noted, and what is not that any more was done.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

import structlog

from app.events.cleanup.loop import WORKERS, Cleanup, CleanupCourse, wait_for_lock
from app.events.cleanup.models import CleanupLogSwitch, CleanupParams, CleanupRule, CleanupVia
from app.events.cleanup.native_call import call_native
from app.events.cleanup.node_claims import claim_node
from app.events.cleanup.report import plan_read, plan_warnings, reach_of, texts
from app.events.cleanup.result import (
    COUNTED,
    cleanup_result,
    counts_of,
    log_step_result,
    remaining,
    removed_of,
)
from app.events.cleanup.service import (
    CLEANUP_FUNCTION,
    check_functions,
    check_instant,
    cleanup_resource,
    target_fields,
)
from app.events.cleanup.switch.report import healed_warning
from app.events.cleanup_reviewed import bounded, fault_of
from app.events.lags import look_at_lags
from app.events.nodes import refuse_copy
from app.jobs.engines.choice import Engines, Work
from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import read_store_of
from app.stores.limits import is_limited
from app.stores.targets import place_of, session_limits, target_of
from app.sweeps.archive import folder_of, open_archive
from app.sweeps.counts import Counts, noted_counts
from app.sweeps.cutoff import fixed_instant
from app.sweeps.frame import Sweeping, asked, run_sweep
from app.sweeps.limits import check_limits, limits_in_effect
from app.sweeps.loop import sweep_on
from app.sweeps.silence import prove_sweep_silent
from spark.events.catalog import read_catalog
from spark.events.cleaning.errors import ClusterLocked
from spark.events.cleaning.log_switch import heal_status
from spark.events.cleaning.log_tables import read_status
from spark.events.cleaning.plan import plan_cleanup
from spark.events.cleaning.records import CleanupPlan
from spark.events.cleanup import log_step
from spark.events.rights import is_able
from spark.events.run import cleanup_work
from spark.events.unit import UnitJob, make_durable
from spark.formats.slony import LogStatus
from spark.targets.connection import Connection, target_now
from spark.targets.silence import application_name
from spark.targets.target import is_on_this_machine

CHECKPOINT_INSTANT: Final = "confirmed_before"
CHECKPOINT_START: Final = "start"
CHECKPOINT_LOG: Final = "log_step"
CHECKPOINT_WARNINGS: Final = "warnings"
UNITS_NAME: Final = "units"
logger = structlog.get_logger("lethe.events")


def run_cleanup(context: JobContext, *, engines: Engines) -> Mapping[str, Any]:
    """Clean, and return the result that clients see.

    Raises: JobSignal.
    """
    with _prepared(context) as cleanup:
        refuse_copy(context.database, context.settings, cleanup.store, cleanup.conn, cleanup.catalog)
        try:
            result = run_sweep(_sweeping(engines), cleanup)
        except ClusterLocked as error:
            raise wait_for_lock(cleanup, error) from error
        return _ended(cleanup, result)


def run_cleanup_plan(context: JobContext) -> Mapping[str, Any]:
    """Plan a cleanup: the same checks, nothing written to the target.

    Raises: JobSignal.
    """
    with _prepared(context) as cleanup:
        plan = _plan(cleanup)
        shown = plan_read(
            plan,
            cleanup.params,
            plan_id=context.job.id,
            store=cleanup.store,
            via=_possible_via(cleanup, plan),
            valid_s=context.settings.plan_valid_s,
            now=context.clock.now(),
        )
        return shown.model_dump(mode="json")


def prove_cleanup_silent(context: JobContext) -> None:
    """The proof of silence; then log status and archive are made whole, and what was done is shown.

    Raises: JobWaiting.
    """

    def heal(conn: Connection) -> None:
        store = read_store_of(context)
        assert store.cluster is not None, "a store of kind SLONY names its cluster"
        # A call of the cluster's function that was cut off has rolled everything back but the status.
        heal_status(conn, read_catalog(conn, store.cluster))

    prove_sweep_silent(context, tell=lambda done: {"removed": removed_of(done)}, heal=heal, steps=COUNTED)


# -- before anything is removed


@contextmanager
def _prepared(context: JobContext) -> Iterator[Cleanup]:
    """The node of a job, ready to be planned."""
    with asked(context, CleanupParams, target_fields=target_fields) as (conn, store, params):
        assert store.cluster is not None, "a store of kind SLONY names its cluster"
        catalog = read_catalog(conn, store.cluster)
        check_functions(params.via, catalog)
        instant = fixed_instant(context, partial(_decide, conn, params), checkpoint=CHECKPOINT_INSTANT)
        assert instant is not None, "a cleanup goes by an instant"
        yield Cleanup(context, conn, store, params, catalog, instant)


def _decide(conn: Connection, params: CleanupParams) -> datetime:
    now = target_now(conn)
    check_instant(params.confirmed_before, now)
    if params.confirmed_before is not None:
        return params.confirmed_before
    assert params.interval is not None, "one of the two is known"
    return now - params.interval


def _resource(cleanup: Cleanup) -> str:
    return cleanup_resource(cleanup.store)


def _claimed(cleanup: Cleanup) -> None:
    queue = cleanup.params.overlap == "QUEUE"
    claim_node(cleanup.context, cleanup.catalog, identity=cleanup.claim.identity, queue=queue)
    look_at_lags(cleanup.context, cleanup.conn, cleanup.catalog)


def _check(cleanup: Cleanup) -> None:
    _heal(cleanup)
    cleanup.plan = _within_reviewed(cleanup, _plan(cleanup, is_counted=_has_to_count(cleanup)))
    cleanup.start = _start(cleanup, cleanup.plan)
    cleanup.context.check()


def _plan(cleanup: Cleanup, *, is_counted: bool = True) -> CleanupPlan:
    return plan_cleanup(
        cleanup.conn,
        cleanup.catalog,
        confirmed_before=cleanup.confirmed_before,
        rule=cleanup.params.rule.value,
        is_counted=is_counted,
    )


def _within_reviewed(cleanup: Cleanup, plan: CleanupPlan) -> CleanupPlan:
    """What goes now of the plan that is executed; the program's own function cannot be held to that.

    Raises: JobFailed: more would go, and only the function may do it; less would than somebody wants.
    """
    found = bounded(cleanup.conn, cleanup.catalog, plan, cleanup.params)
    cleanup.is_cut_short = found != plan
    if cleanup.context.checkpoint(CHECKPOINT_START) is None:  # else some has been removed already
        fault = fault_of(found, cleanup.params, is_cut_short=cleanup.is_cut_short)
        if fault is not None:
            raise JobFailed("PLAN_NO_LONGER_HOLDS", fault)
    return found


def _has_to_count(cleanup: Cleanup) -> bool:
    """Whether somebody asks how many rows would go: to count means to read the whole table."""
    params = cleanup.params
    is_asked = is_limited(limits_in_effect(cleanup.store, params)) or params.max_drift is not None
    return is_asked or params.rule is not CleanupRule.PROGRAM


def _heal(cleanup: Cleanup) -> None:
    """Repair a status that somebody's rollback left; before anything else."""
    known = cleanup.context.checkpoint(CHECKPOINT_WARNINGS)
    cleanup.warnings = [] if known is None else list(known["items"])
    healed = heal_status(cleanup.conn, cleanup.catalog)
    if healed is not None:
        logger.warning("log status healed", store=cleanup.store.id, before=healed.before, after=healed.after)
        cleanup.warnings.append(healed_warning(healed))
        cleanup.context.save_checkpoint(CHECKPOINT_WARNINGS, {"items": cleanup.warnings})


def _start(cleanup: Cleanup, plan: CleanupPlan) -> dict[str, Any]:
    """Hold the first plan against the limits, and note what the job sets out to do.

    Counted once: an attempt that goes on has removed some already.
    """
    known = cleanup.context.checkpoint(CHECKPOINT_START)
    if known is not None:
        return known
    check_limits(cleanup.store, cleanup.params, reach_of(plan))
    via = _possible_via(cleanup, plan)
    start = {
        "via": via.value,
        "rows_to_remove": plan.rows_to_remove if plan.is_counted else None,
        "bounds": {str(item.origin): item.bound for item in plan.origins},
        "warnings": texts(plan_warnings(plan, via)),
    }
    cleanup.context.save_checkpoint(CHECKPOINT_START, start)
    return start


def _possible_via(cleanup: Cleanup, plan: CleanupPlan) -> CleanupVia:
    """Who does it where the client leaves that open: the cluster's function, where it may and is safe."""
    if cleanup.params.via is not None:
        return cleanup.params.via
    is_native = CLEANUP_FUNCTION in cleanup.catalog.functions and not plan.hazards
    is_native = is_native and not cleanup.is_cut_short
    if is_native and is_able(cleanup.conn, cleanup.catalog.cluster, "CLEANUP_NATIVE"):
        return CleanupVia.NATIVE
    return CleanupVia.BUILTIN


# -- the work


def _archives(_cleanup: Cleanup) -> bool:
    """Not before it is known that the cluster's own function does not do it: that keeps nothing."""
    return False


def _sweep(cleanup: Cleanup, *, engines: Engines) -> None:
    start, plan = cleanup.start, cleanup.plan
    assert plan is not None, "planned when it was checked"
    if start["via"] == CleanupVia.NATIVE:
        cleanup.native = call_native(cleanup)
    if cleanup.native is not None:
        cleanup.log = {"step": "BY_PROGRAM", "status": int(cleanup.native.status)}
        return
    if start["via"] != CleanupVia.BUILTIN:  # for good: a later attempt must not call the function too
        start["via"] = CleanupVia.BUILTIN.value
        cleanup.context.save_checkpoint(CHECKPOINT_START, start)
    cleanup.log = _clean_builtin(cleanup, engines, plan)


def _tell(cleanup: Cleanup, done: Counts) -> dict[str, Any]:
    plan = cleanup.plan
    assert plan is not None, "planned when it was checked"
    left = remaining(plan) if cleanup.is_as_planned else _plan(cleanup)
    return cleanup_result(cleanup, done, left=left)


def _sweeping(engines: Engines) -> Sweeping[Cleanup]:
    return Sweeping(
        resource=_resource,
        claimed=_claimed,
        check=_check,
        archives=_archives,
        sweep=partial(_sweep, engines=engines),
        counts=counts_of,
        tell=_tell,
    )


def _ended(cleanup: Cleanup, result: dict[str, Any]) -> dict[str, Any]:
    """Raise JobFailed when the cluster's own function left something else than was planned."""
    native, told = cleanup.native, {"removed": result["removed"], "log": cleanup.log["step"]}
    logger.info("events cleaned", store=cleanup.store.id, via=cleanup.start["via"], **told)
    if native is not None and native.classification == "ALARM":
        detail = "; ".join(native.differences)
        raise JobFailed("CLEANUP_DIFFERS", f"what is left is not what was planned: {detail}", result=result)
    return result


def _clean_builtin(cleanup: Cleanup, engines: Engines, plan: CleanupPlan) -> dict[str, Any]:
    context, claimed, params = cleanup.context, cleanup.claim, cleanup.params
    archive = None
    if params.archive:
        archive = folder_of(open_archive(context, resource=claimed.resource))
    before = 0
    if claimed.has_ledger:
        before = sum(removed_of(counts_of(cleanup)).values())
    else:
        cleanup.tally.rows = dict(noted_counts(context).rows)
    work = cleanup_work(
        target_of(cleanup.store, context.settings, context.database),
        limits=session_limits(context.settings),
        application_name=application_name(context.job.id, UNITS_NAME, context.job.token),
        advisory_key=None if claimed.has_ledger else claimed.resource,
        folder=archive,
    )
    engine = engines.choose(context, _work(cleanup, plan, archives=archive is not None))
    job = UnitJob(context.job.id, context.job.token, claimed.resource, claimed.has_ledger, archive)
    course = CleanupCourse(cleanup, plan, job, before=before)
    sweep_on(engine, work, course, context, workers=WORKERS)
    if claimed.has_ledger:
        make_durable(cleanup.conn, job)
    held = course.held
    cleanup.is_as_planned = not held and not cleanup.is_cut_short and params.rule is CleanupRule.PROGRAM
    cleanup.warnings += [
        {
            "code": "HELD_MEANWHILE",
            "detail": f"events of node {origin} stay: a confirmation that the plan went by is gone",
        }
        for origin in held
    ]
    return _switch_log(
        cleanup,
        bounds={
            item.origin: item.bound
            for item in plan.origins
            if item.bound is not None and item.origin not in held
        },
    )


def _work(cleanup: Cleanup, plan: CleanupPlan, *, archives: bool) -> Work:
    """What the choice of an engine goes by.

    Few units of one cluster may go at once, and they work in the database: Spark would only be in between, so
    it is taken where it is asked for, never by itself.
    """
    asked = cleanup.params.engine or cleanup.context.settings.engine
    return Work(
        "INLINE" if asked == "AUTO" else asked,
        plan.rows_to_remove,
        cleanup.claim.has_ledger,
        archives=archives,
        is_here=is_on_this_machine(place_of(cleanup.store)),
    )


def _switch_log(cleanup: Cleanup, *, bounds: Mapping[int, int]) -> dict[str, Any]:
    """The step of the log switch, unless an attempt that was cut off has done it.

    Args:
        bounds: by origin, where its events begin now.
    """
    status = read_status(cleanup.conn, cleanup.catalog.schema)
    if cleanup.params.log_switch is CleanupLogSwitch.NONE:
        return {"step": "NONE", "status": int(status)}
    context = cleanup.context
    context.check()
    known = context.checkpoint(CHECKPOINT_LOG)
    if known is None:
        context.save_checkpoint(CHECKPOINT_LOG, {"before": int(status)})
    elif LogStatus(known["before"]) != status:
        return {"step": "DONE_BEFORE", "status_before": known["before"], "status": int(status)}
    return log_step_result(log_step(cleanup.conn, cleanup.catalog, bounds=bounds))
