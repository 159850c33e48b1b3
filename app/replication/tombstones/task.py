"""The task of a purge TOMBSTONES: short transactions in the order of the keys, resumable at every one.

What has been removed is told by the ledger, where there is one; an attempt that goes on reads the entries
from the first key again: what is gone is not there.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Final

from app.jobs.running.context import JobContext
from app.kit.instants import instant_text
from app.replication.purges.attempt import prepared
from app.replication.tombstones.loop import Burial, BurialCourse, bury_once
from app.replication.tombstones.models import TombstoneParams
from app.replication.tombstones.report import left_result, plan_read
from app.replication.tombstones.service import decide_cutoff, not_purged, tombstone_resource
from app.sweeps.counts import Counts
from app.sweeps.frame import Sweeping, beside_plan, run_sweep
from app.sweeps.loop import sweep_here
from app.sweeps.purging import TOMBSTONES
from app.sweeps.silence import prove_sweep_silent
from spark.replication.agreements import forget_removed
from spark.replication.replica.replica import snapshot
from spark.replication.tombstones.plan import TombstonePlan

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


def _prepared(context: JobContext) -> AbstractContextManager[Burial | None]:
    return prepared(context, TombstoneParams, Burial, cutoff=decide_cutoff, not_whole=not_purged)


def _resource(burial: Burial) -> str:
    return tombstone_resource(burial.store)


def _sweep(burial: Burial) -> None:
    course = BurialCourse(burial, before=sum(burial.so_far().rows.values()))
    sweep_here(burial.conn, bury_once, course, burial.context)
    forget_removed(burial.conn, now_s=burial.now_s())


# -- the end


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
    claimed=Burial.was_claimed,
    check=Burial.check,
    sweep=_sweep,
    counts=Burial.so_far,
    tell=_tell,
)
