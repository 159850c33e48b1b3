"""The task of a purge TOMBSTONES: short transactions in the order of the keys, resumable at every one.

What has been removed is told by the ledger, where there is one; an attempt that goes on reads the entries
from the first key again: what is gone is not there.
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
from app.replication.tombstones.loop import Burial, BurialCourse, bury_once
from app.replication.tombstones.models import TombstoneParams
from app.replication.tombstones.report import left_result, plan_read, reach_of
from app.replication.tombstones.service import decide_cutoff, fault_of, not_purged, tombstone_resource
from app.sweeps.counts import Counts, ledger_counts, noted_counts
from app.sweeps.cutoff import fixed_instant
from app.sweeps.frame import Sweeping, asked, beside_plan, run_sweep
from app.sweeps.limits import check_limits
from app.sweeps.loop import sweep_here
from app.sweeps.purging import TOMBSTONES
from app.sweeps.silence import prove_sweep_silent
from spark.replication.agreements import forget_removed
from spark.replication.errors import ReplicationRefused
from spark.replication.records import TRIMMED, ReplicaStatus
from spark.replication.replica.replica import find_replica, snapshot
from spark.replication.tombstones.plan import TombstonePlan
from spark.replication.tombstones.units import ReplicaNotPurged
from spark.targets.advisory import hold
from spark.targets.connection import Connection, target_now

CHECKPOINT_LIMITS = "limits"
_NOTHING: Final = TombstonePlan(0, (), None, (), None)


def run_tombstone_purge(context: JobContext) -> Mapping[str, Any]:
    """Purge tombstones, and return the result that clients see.

    Raises: JobSignal.
    """
    with _prepared(context) as burial:
        return _nothing(context) if burial is None else run_sweep(BURYING, burial)


def run_tombstone_plan(context: JobContext) -> Mapping[str, Any]:
    """Plan a purge of tombstones: the same checks, nothing written to the target.

    Raises: JobSignal.
    """
    with _prepared(context) as burial:
        params = TombstoneParams.model_validate(context.job.params)
        shown = plan_read(
            _NOTHING if burial is None else burial.plan(),
            params,
            plan_id=context.job.id,
            store=str(context.job.store),
            cutoff=None if burial is None else burial.cutoff,
            valid_s=context.settings.plan_valid_s,
            now=context.clock.now(),
        )
        return shown.model_dump(mode="json")


def prove_tombstones_silent(context: JobContext) -> None:
    """The proof of silence; then what was done so far is shown, and the archive gets its manifest.

    Raises: JobWaiting.
    """
    prove_sweep_silent(context, tell=_removed_so_far)


def _removed_so_far(done: Counts) -> dict[str, Any]:
    return {"kind": TOMBSTONES, "removed": {"entries": sum(done.rows.values())}}


@contextmanager
def _prepared(context: JobContext) -> Iterator[Burial | None]:
    """The replica of a job, ready to be planned; None: it has no tables yet, so there is nothing to purge."""
    try:
        with asked(context, TombstoneParams, target_fields=target_of_store) as (conn, store, params):
            if find_replica(conn) is None:
                yield None
                return
            status = compare_with_memory(context.database, conn, store.id)
            if status not in TRIMMED:
                raise _not_whole(status)
            cutoff = fixed_instant(context, partial(_decide_cutoff, conn, params))
            yield Burial(context, conn, store, params, cutoff)
    except ReplicaNotPurged as error:
        raise _not_whole(error.status) from error
    except ReplicationRefused as error:
        raise JobFailed(error.code, error.detail) from error


def _not_whole(status: str) -> JobFailed:
    return JobFailed(f"REPLICA_{ReplicaStatus(status)}", not_purged(status), retryable=True)


def _decide_cutoff(conn: Connection, params: TombstoneParams) -> datetime | None:
    return decide_cutoff(params, target_now(conn))


def _resource(burial: Burial) -> str:
    return tombstone_resource(burial.store)


def _claimed(burial: Burial) -> None:
    if not burial.claim.has_ledger:
        hold(burial.conn, burial.claim.resource)
        burial.tally.rows = dict(noted_counts(burial.context).rows)


def _check(burial: Burial) -> None:
    register_missing(burial.context.database, burial.conn, burial.store.id)
    burial.planned = burial.plan(is_reviewed=True)
    _check_start(burial, burial.planned)


def _sweep(burial: Burial) -> None:
    assert burial.planned is not None, "planned when it was checked"
    course = BurialCourse(burial, burial.planned, before=sum(_so_far(burial).rows.values()))
    sweep_here(burial.conn, bury_once, course, burial.context)
    forget_removed(burial.conn, now_s=burial.now_s())


def _check_start(burial: Burial, plan: TombstonePlan) -> None:
    """Fail before the first delete when a reviewed plan does not hold, or a limit is exceeded.

    Counted once: an attempt that goes on has removed some already.
    """
    if burial.context.checkpoint(CHECKPOINT_LIMITS) is not None:
        return
    fault = fault_of(plan, burial.params)
    if fault is not None:
        raise JobFailed("PLAN_NO_LONGER_HOLDS", fault)
    check_limits(burial.store, burial.params, reach_of(plan))
    noted = {"rows": plan.rows, "rows_to_remove": plan.rows_to_remove}
    burial.context.save_checkpoint(CHECKPOINT_LIMITS, noted)


# -- the end


def _so_far(burial: Burial) -> Counts:
    if burial.claim.has_ledger:
        return ledger_counts(burial.context, burial.conn)
    return Counts(burial.tally.rows, burial.tally.units, is_exact=False)


def _tell(burial: Burial, done: Counts) -> dict[str, Any]:
    gone, planned = sum(done.rows.values()), burial.params.planned
    reviewed = None if planned is None else {"entries": sum(planned.values())}
    return {
        **_head(burial.params, burial.cutoff),
        "removed": {"entries": gone},
        **beside_plan(burial.params.plan_id, reviewed, gone),
        **left_result(burial.plan(), snapshot(burial.conn).replica.buried),
        "warnings": [],
    }


def _nothing(context: JobContext) -> dict[str, Any]:
    """Of a replica that has no tables yet."""
    return {
        **_head(TombstoneParams.model_validate(context.job.params), None),
        "counts": "EXACT",
        "removed": {"entries": 0},
        **left_result(_NOTHING, None),
        "archive": None,
        "units": 0,
        "longest_hold_ms": 0,
        "warnings": [],
    }


def _head(params: TombstoneParams, cutoff: datetime | None) -> dict[str, Any]:
    return {
        "kind": TOMBSTONES,
        "cutoff": None if cutoff is None else instant_text(cutoff),
        "retention_minutes": params.retention_minutes,
        "retention_source": params.retention_source,
        "gone_rids": params.gone_rids,
    }


BURYING: Final[Sweeping[Burial]] = Sweeping(
    resource=_resource,
    claimed=_claimed,
    check=_check,
    sweep=_sweep,
    counts=_so_far,
    tell=_tell,
)
