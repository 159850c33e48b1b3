"""The result of a cleanup: what went, what stays and why, what became of the log tables."""

from dataclasses import replace
from typing import Any, Final

from app.events.cleanup.loop import Cleanup
from app.events.cleanup.report import by_table, hold_text
from app.events.cleanup.switch.report import blocked_result, healed_warning
from app.kit.durations import format_duration
from app.kit.instants import instant_text
from app.sweeps.counts import Counts, ledger_counts, noted_counts
from app.sweeps.frame import beside_plan
from spark.events.cleaning.native import STEP as NATIVE_STEP
from spark.events.cleaning.records import (
    STEPS,
    TABLE_OF,
    Blocked,
    CleanupPlan,
    Finished,
    Healed,
    NativeResult,
    Started,
)

COUNTED: Final = (*STEPS, NATIVE_STEP)
"""Steps of the ledger; a call of the cluster's function is one unit, its rows are told by its result."""


def removed_of(done: Counts) -> dict[str, int]:
    """Rows by table, as results tell them."""
    return by_table({step: done.rows.get(step, 0) for step in TABLE_OF})


def counts_of(cleanup: Cleanup) -> Counts:
    """What all attempts have done so far."""
    if cleanup.claim.has_ledger:
        return ledger_counts(cleanup.context, cleanup.conn, steps=COUNTED)
    return noted_counts(cleanup.context)


def cleanup_result(cleanup: Cleanup, done: Counts, *, left: CleanupPlan) -> dict[str, Any]:
    """What clients see of a finished cleanup beside its archive.

    Args:
        done: by all attempts.
        left: planned again when everything was done, or what remains of the plan.
    """
    params, start, native = cleanup.params, cleanup.start, cleanup.native
    removed = removed_of(done)
    if native is not None:
        removed = {table: native.removed.get(step, 0) for step, table in TABLE_OF.items()}
    return {
        "via": start["via"],
        "rule": params.rule,
        "confirmed_before": instant_text(cleanup.confirmed_before),
        "interval": None if params.interval is None else format_duration(params.interval),
        "interval_source": params.interval_source,
        "counts": "EXACT" if done.is_exact and native is None else "PLANNED" if native else "AT_LEAST",
        "removed": removed,
        "planned_rows": _planned_rows(start, native),
        **beside_plan(params.plan_id, params.planned, sum(removed.values())),
        "origins": _origins(start, left),
        "log_switch": cleanup.log,
        "classification": _classification(native),
        "differences": [] if native is None else list(native.differences),
        "units": done.units or cleanup.tally.units,
        "warnings": [*start["warnings"], *cleanup.warnings],
    }


def _planned_rows(start: dict[str, Any], native: NativeResult | None) -> int | None:
    """Rows of all tables that the plan counted; None: no limit asked for that, and nobody counted."""
    planned: int | None = start["rows_to_remove"]
    if planned is None and native is not None and native.plan is not None:
        planned = native.plan.rows_to_remove
    return planned


def remaining(plan: CleanupPlan) -> CleanupPlan:
    """A plan that was carried out by rule PROGRAM, without what it removed: nobody need count again."""
    origins = (
        replace(
            item,
            rows=item.rows - item.rows_to_remove,
            rows_to_remove=0,
            syncs_to_remove=0,
            first_seqno=max(item.first_seqno, item.bound or 0),
        )
        for item in plan.origins
    )
    return replace(plan, origins=tuple(origins))


def _classification(native: NativeResult | None) -> str:
    """BUILTIN proves each unit again under the lock, and counts what went; there is nothing to explain."""
    if native is None:
        return "AS_PLANNED"
    return "NOT_COMPARED" if native.repeated else native.classification


def _origins(start: dict[str, Any], left: CleanupPlan) -> list[dict[str, Any]]:
    return [
        {
            "origin": item.origin,
            "bound": start["bounds"].get(str(item.origin)),
            "rows_left": item.rows,
            "first_seqno": item.first_seqno,
            "last_seqno": item.last_seqno,
            "oldest_sync": item.oldest_sync,
            "held": None if item.held is None else hold_text(item, item.held),
        }
        for item in left.origins
    ]


def log_step_result(done: Started | Finished | Blocked | Healed) -> dict[str, Any]:
    """What the step of the log switch came to."""
    if isinstance(done, Blocked):
        return {"step": "BLOCKED", "status": int(done.status), "blocked": blocked_result(done)}
    shown = {"status_before": int(done.before), "status": int(done.after)}
    if isinstance(done, Started):
        return {"step": done.outcome} | shown
    if isinstance(done, Healed):
        return {"step": "HEALED"} | shown | {"warning": healed_warning(done)}
    problem = {} if done.index_problem is None else {"index_problem": done.index_problem}
    return {"step": done.outcome, "emptied": done.table} | shown | problem
