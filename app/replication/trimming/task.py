"""The task of a purge CHANGELOG: short transactions from the oldest records on, resumable at every one.

What has been removed is told by the ledger, where there is one; where reading goes on is told by the
changelog itself, whose lowest records are the next.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from app.archives.housekeeping import trim_old_ledgers
from app.archives.service import close_or_tell, open_archive
from app.errors import ServiceError
from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import claim, controlled, counts_by_ledger, prove_silence, read_store_of
from app.jobs.running.suspension import suspended_wait
from app.kit.instants import instant_text
from app.replication.agreements.service import register_missing
from app.replication.agreements.sessions.service import target_of_store
from app.replication.replica.replicas import compare_with_memory
from app.replication.trimming.loop import CHECKPOINT_REMOVED, Trim, run_units
from app.replication.trimming.models import TrimParams
from app.replication.trimming.report import exceeded_limits, plan_read, rids_result
from app.replication.trimming.service import TRIMMABLE, check_cutoff, trim_resource
from app.stores.models import StoreLimits
from app.stores.rows import is_suspended
from spark.replication.agreements import forget_removed
from spark.replication.errors import ReplicationRefused
from spark.replication.records import ReplicaStatus
from spark.replication.replica.replica import find_replica
from spark.replication.trimming.plan import TrimPlan
from spark.replication.trimming.units import ReplicaNotTrimmed, step_of
from spark.targets.advisory import hold
from spark.targets.connection import Connection, target_now
from spark.targets.ledger import has_ledger, ledger_totals

CHECKPOINT_CUTOFF = "cutoff"
CHECKPOINT_LIMITS = "limits"


def run_trimming(context: JobContext) -> Mapping[str, Any]:
    """Trim, and return the result that clients see.

    Raises: JobSignal.
    """
    with _prepared(context) as trim:
        if trim is None:
            return _nothing(context)
        params = trim.params
        resource = trim_resource(trim.store)
        trim.claimed = claim(context, trim.conn, resource=resource, queue=params.overlap == "QUEUE")
        if trim.claimed.has_ledger:
            trim_old_ledgers(context, trim.conn)
        else:
            hold(trim.conn, resource)
            trim.removed = _known_removed(context)
        register_missing(context.database, trim.conn, trim.store.id)
        plan = trim.plan()
        _check_limits(trim, plan)
        if params.archive:
            trim.archive = open_archive(context, retention=params.archive_retention, resource=resource)
        run_units(trim, plan, before=sum(_so_far(trim).values()))
        forget_removed(trim.conn, now_s=trim.now_s())
        return _result(trim)


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

    def note(conn: Connection) -> None:
        exact = counts_by_ledger(context) and has_ledger(conn)
        removed, units = _counted(context, conn) if exact else (_known_removed(context), 0)
        result = {
            "kind": "CHANGELOG",
            "counts": "EXACT" if exact else "AT_LEAST",
            "removed": {"changelog": sum(removed.values())},
            "rids": [{"rid": rid, "rows_removed": rows} for rid, rows in sorted(removed.items())],
            "archive": _close_archive(context, conn, exact=exact),
            "units": units,
        }
        context.write(lambda db: context.change(db, {"result": result}))

    prove_silence(context, then=note)


@contextmanager
def _prepared(context: JobContext) -> Iterator[Trim | None]:
    """The replica of a job, ready to be planned; None: it has no tables yet, so there is nothing to trim."""
    store = read_store_of(context)
    now = context.clock.now()
    if is_suspended(store, now=now):
        raise suspended_wait(store.id, now=now, until=store.suspended_until)
    params = TrimParams.model_validate(context.job.params)
    if params.target != target_of_store(store):  # a retry of a job from before the store was changed
        raise JobFailed("STORE_CHANGED", "the store names another target than when this was submitted")
    try:
        with controlled(context, store) as conn:
            if find_replica(conn) is None:
                yield None
                return
            status = compare_with_memory(context.database, conn, store.id)
            if status not in TRIMMABLE:
                raise _not_whole(status)
            yield Trim(context, conn, store, params, _fixed_cutoff(context, conn, params))
    except ReplicaNotTrimmed as error:
        raise _not_whole(error.status) from error
    except (ReplicationRefused, ServiceError) as error:
        raise JobFailed(error.code, error.detail) from error


def _not_whole(status: str) -> JobFailed:
    detail = f"a replica that is {status} is not trimmed: what it still needs is not known"
    return JobFailed(f"REPLICA_{ReplicaStatus(status)}", detail, retryable=True)


def _fixed_cutoff(context: JobContext, conn: Connection, params: TrimParams) -> datetime | None:
    """The cut-off of the first attempt holds for all."""
    known = context.checkpoint(CHECKPOINT_CUTOFF)
    if known is not None:
        return None if known["at"] is None else datetime.fromisoformat(known["at"])
    now = target_now(conn)
    cutoff = params.cutoff
    if cutoff is None and params.retention is not None:
        cutoff = now - params.retention
    if cutoff is not None:
        check_cutoff(cutoff, now)
    context.save_checkpoint(CHECKPOINT_CUTOFF, {"at": None if cutoff is None else cutoff.isoformat()})
    return cutoff


def _check_limits(trim: Trim, plan: TrimPlan) -> None:
    """Fail before the first delete when the plan exceeds the store's limits, as submitted or tighter since.

    Counted once: an attempt that goes on has removed some already.
    """
    if trim.context.checkpoint(CHECKPOINT_LIMITS) is not None:
        return
    now = StoreLimits.model_validate(trim.store.limits)
    asked = trim.params
    rows = [bound for bound in (asked.max_rows, now.max_rows) if bound is not None]
    fractions = [bound for bound in (asked.max_fraction, now.max_fraction) if bound is not None]
    exceeded = exceeded_limits(
        plan, max_rows=min(rows, default=None), max_fraction=min(fractions, default=None)
    )
    if exceeded:
        raise JobFailed("LIMIT_EXCEEDED", "; ".join(exceeded))
    noted = {"rows": plan.rows, "rows_to_remove": plan.rows_to_remove}
    trim.context.save_checkpoint(CHECKPOINT_LIMITS, noted)


# -- the end


def _known_removed(context: JobContext) -> dict[int, int]:
    noted = context.checkpoint(CHECKPOINT_REMOVED) or {}
    return {int(rid): int(rows) for rid, rows in noted.items()}


def _counted(context: JobContext, conn: Connection) -> tuple[dict[int, int], int]:
    """Rows by replica id and units, as the ledger has them."""
    totals = ledger_totals(conn, context.job.id)
    by_rid = {step_of(step): total.rows for step, total in totals.items()}
    return by_rid, sum(total.units for total in totals.values())


def _so_far(trim: Trim) -> dict[int, int]:
    assert trim.claimed is not None
    return _counted(trim.context, trim.conn)[0] if trim.claimed.has_ledger else trim.removed


def _close_archive(
    context: JobContext, conn: Connection, *, exact: bool, is_end: bool = False
) -> dict[str, Any] | None:
    retention = TrimParams.model_validate(context.job.params).archive_retention
    return close_or_tell(context, conn, has_ledger=exact, retention=retention, is_end=is_end)


def _result(trim: Trim) -> dict[str, Any]:
    context, claimed = trim.context, trim.claimed
    assert claimed is not None
    exact = claimed.has_ledger
    removed, units = _counted(context, trim.conn) if exact else (trim.removed, trim.units)
    left = trim.plan()
    return {
        **_head(trim.params, trim.cutoff),
        "counts": "EXACT" if exact else "AT_LEAST",
        "removed": {"changelog": sum(removed.values())},
        **_beside(trim.params, sum(removed.values())),
        "rows_left": left.rows,
        "rows_over_max_entries": left.excess,
        "rids": rids_result(left, removed),
        "archive": _close_archive(context, trim.conn, exact=exact, is_end=True),
        "units": units,
        "longest_hold_ms": round(trim.longest_s * 1000),
        "warnings": [],
    }


def _beside(params: TrimParams, removed: int) -> dict[str, Any]:
    """What was planned, beside what has gone."""
    if params.planned is None:
        return {}
    planned = sum(params.planned.values())
    return {
        "plan_id": params.plan_id,
        "planned": {"changelog": planned},
        "fewer_than_planned": planned - removed,
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
        "kind": "CHANGELOG",
        "cutoff": None if cutoff is None else instant_text(cutoff),
        "retention_minutes": params.retention_minutes,
        "retention_source": params.retention_source,
        "max_entries": params.max_entries,
        "max_entries_source": params.max_entries_source,
    }
