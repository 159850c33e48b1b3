"""The task of a purge CHANGELOG: short transactions from the oldest records on, resumable at every one.

What has been removed is told by the ledger, where there is one; where reading goes on is told by the
changelog itself, whose lowest records are the next.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Final

from app.jobs.running.context import JobContext
from app.kit.instants import instant_text
from app.replication.purges.attempt import prepared
from app.replication.purges.looking import cutoff_of
from app.replication.trimming.loop import Trim, TrimCourse, trim_once
from app.replication.trimming.models import TrimParams
from app.replication.trimming.report import plan_read, rids_result
from app.replication.trimming.service import not_trimmed, trim_resource
from app.sweeps.counts import Counts
from app.sweeps.frame import Sweeping, beside_plan, run_sweep
from app.sweeps.loop import sweep_here
from app.sweeps.purging import CHANGELOG
from app.sweeps.silence import prove_sweep_silent
from spark.replication.agreements import forget_removed
from spark.replication.trimming.plan import TrimPlan
from spark.replication.trimming.units import step_of


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


def _prepared(context: JobContext) -> AbstractContextManager[Trim | None]:
    return prepared(context, TrimParams, Trim, cutoff=cutoff_of, not_whole=not_trimmed)


def _resource(trim: Trim) -> str:
    return trim_resource(trim.store)


def _sweep(trim: Trim) -> None:
    course = TrimCourse(trim, before=sum(trim.so_far().rows.values()))
    sweep_here(trim.conn, trim_once, course, trim.context)
    forget_removed(trim.conn, now_s=trim.now_s())


# -- the end


def _by_rid(done: Counts) -> dict[int, int]:
    """Rows by replica id: the ledger has them by its step, the job by the id alone."""
    return {step_of(step): rows for step, rows in done.rows.items()}


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
    claimed=Trim.was_claimed,
    check=Trim.check,
    sweep=_sweep,
    counts=Trim.so_far,
    tell=_tell,
)
