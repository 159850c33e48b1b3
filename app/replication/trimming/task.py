"""The task of a purge CHANGELOG: short transactions from the oldest records on, resumable at every one.

What has been removed is told by the ledger, where there is one; where reading goes on is told by the
changelog itself, whose lowest records are the next.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from app.kit.instants import instant_text
from app.replication.agreements.service import register_missing
from app.replication.agreements.sessions.service import target_of_store
from app.replication.replica.replicas import compare_with_memory
from app.replication.trimming.loop import Trim, TrimCourse, trim_once
from app.replication.trimming.models import TrimParams
from app.replication.trimming.report import plan_read, reach_of, rids_result
from app.replication.trimming.service import fault_of, trim_resource
from app.sweeps.counts import Counts, ledger_counts, noted_counts
from app.sweeps.cutoff import check_cutoff, fixed_instant
from app.sweeps.frame import Sweeping, asked, beside_plan, run_sweep
from app.sweeps.limits import check_limits
from app.sweeps.loop import sweep_here
from app.sweeps.purging import CHANGELOG
from app.sweeps.silence import prove_sweep_silent
from spark.replication.agreements import forget_removed
from spark.replication.errors import ReplicationRefused
from spark.replication.records import TRIMMED, ReplicaStatus
from spark.replication.replica.replica import find_replica
from spark.replication.trimming.plan import TrimPlan
from spark.replication.trimming.units import ReplicaNotTrimmed, step_of
from spark.targets.advisory import hold
from spark.targets.connection import Connection, target_now

CHECKPOINT_LIMITS = "limits"


def run_trimming(context: JobContext) -> Mapping[str, Any]:
    """Trim, and return the result that clients see.

    Raises: JobSignal.
    """
    with _prepared(context) as trim:
        return _nothing(context) if trim is None else run_sweep(TRIMMING, trim)


def run_trim_plan(context: JobContext) -> Mapping[str, Any]:
    """Plan a trimming: the same checks, nothing written to the target.

    Raises: JobSignal.
    """
    with _prepared(context) as trim:
        params = TrimParams.model_validate(context.job.params)
        plan = TrimPlan((), 0) if trim is None else trim.plan()
        shown = plan_read(
            plan,
            params,
            plan_id=context.job.id,
            store=str(context.job.store),
            cutoff=None if trim is None else trim.cutoff,
            valid_s=context.settings.plan_valid_s,
            now=context.clock.now(),
        )
        return shown.model_dump(mode="json")


def prove_trimming_silent(context: JobContext) -> None:
    """The proof of silence; then what was done so far is shown, and the archive gets its manifest.

    Raises: JobWaiting.
    """
    prove_sweep_silent(context, tell=_removed_so_far)


def _removed_so_far(done: Counts) -> dict[str, Any]:
    return {
        "kind": CHANGELOG,
        "removed": {"changelog": sum(done.rows.values())},
        "rids": [{"rid": rid, "rows_removed": rows} for rid, rows in sorted(_by_rid(done).items())],
    }


@contextmanager
def _prepared(context: JobContext) -> Iterator[Trim | None]:
    """The replica of a job, ready to be planned; None: it has no tables yet, so there is nothing to trim."""
    try:
        with asked(context, TrimParams, target_fields=target_of_store) as (conn, store, params):
            if find_replica(conn) is None:
                yield None
                return
            status = compare_with_memory(context.database, conn, store.id)
            if status not in TRIMMED:
                raise _not_whole(status)
            cutoff = fixed_instant(context, partial(_decide_cutoff, conn, params))
            yield Trim(context, conn, store, params, cutoff)
    except ReplicaNotTrimmed as error:
        raise _not_whole(error.status) from error
    except ReplicationRefused as error:
        raise JobFailed(error.code, error.detail) from error


def _not_whole(status: str) -> JobFailed:
    detail = f"a replica that is {status} is not trimmed: what it still needs is not known"
    return JobFailed(f"REPLICA_{ReplicaStatus(status)}", detail, retryable=True)


def _decide_cutoff(conn: Connection, params: TrimParams) -> datetime | None:
    now = target_now(conn)
    cutoff = params.cutoff
    if cutoff is None and params.retention is not None:
        cutoff = now - params.retention
    if cutoff is not None:
        check_cutoff(cutoff, now)
    return cutoff


def _resource(trim: Trim) -> str:
    return trim_resource(trim.store)


def _claimed(trim: Trim) -> None:
    if not trim.claim.has_ledger:
        hold(trim.conn, trim.claim.resource)
        trim.tally.rows = dict(noted_counts(trim.context).rows)


def _check(trim: Trim) -> None:
    register_missing(trim.context.database, trim.conn, trim.store.id)
    trim.planned = trim.plan(is_reviewed=True)
    _check_start(trim, trim.planned)


def _sweep(trim: Trim) -> None:
    assert trim.planned is not None, "planned when it was checked"
    course = TrimCourse(trim, trim.planned, before=sum(_so_far(trim).rows.values()))
    sweep_here(trim.conn, trim_once, course, trim.context)
    forget_removed(trim.conn, now_s=trim.now_s())


def _check_start(trim: Trim, plan: TrimPlan) -> None:
    """Fail before the first delete when a reviewed plan does not hold, or a limit is exceeded.

    Counted once: an attempt that goes on has removed some already.
    """
    if trim.context.checkpoint(CHECKPOINT_LIMITS) is not None:
        return
    fault = fault_of(plan, trim.params)
    if fault is not None:
        raise JobFailed("PLAN_NO_LONGER_HOLDS", fault)
    check_limits(trim.store, trim.params, reach_of(plan))
    noted = {"rows": plan.rows, "rows_to_remove": plan.rows_to_remove}
    trim.context.save_checkpoint(CHECKPOINT_LIMITS, noted)


# -- the end


def _by_rid(done: Counts) -> dict[int, int]:
    """Rows by replica id: the ledger has them by its step, the job by the id alone."""
    return {step_of(step): rows for step, rows in done.rows.items()}


def _so_far(trim: Trim) -> Counts:
    if trim.claim.has_ledger:
        return ledger_counts(trim.context, trim.conn)
    return Counts(trim.tally.rows, trim.tally.units, is_exact=False)


def _tell(trim: Trim, done: Counts) -> dict[str, Any]:
    left, removed, planned = trim.plan(), _by_rid(done), trim.params.planned
    gone = sum(removed.values())
    return {
        **_head(trim.params, trim.cutoff),
        "removed": {"changelog": gone},
        **beside_plan(
            trim.params.plan_id, None if planned is None else {"changelog": sum(planned.values())}, gone
        ),
        "rows_left": left.rows,
        "rows_over_max_entries": left.excess,
        "rids": rids_result(left, removed),
        "warnings": [],
    }


def _nothing(context: JobContext) -> dict[str, Any]:
    """Of a replica that has no tables yet."""
    return {
        **_head(TrimParams.model_validate(context.job.params), None),
        "counts": "EXACT",
        "removed": {"changelog": 0},
        "rows_left": 0,
        "rows_over_max_entries": 0,
        "rids": [],
        "archive": None,
        "units": 0,
        "longest_hold_ms": 0,
        "warnings": [],
    }


def _head(params: TrimParams, cutoff: datetime | None) -> dict[str, Any]:
    return {
        "kind": CHANGELOG,
        "cutoff": None if cutoff is None else instant_text(cutoff),
        "retention_minutes": params.retention_minutes,
        "retention_source": params.retention_source,
        "max_entries": params.max_entries,
        "max_entries_source": params.max_entries_source,
    }


TRIMMING: Final[Sweeping[Trim]] = Sweeping(
    resource=_resource,
    claimed=_claimed,
    check=_check,
    sweep=_sweep,
    counts=_so_far,
    tell=_tell,
)
