"""From the lower floor's plan of a trimming to what clients see."""

from datetime import datetime, timedelta
from typing import Any

from app.replication.trimming.models import TrimParams
from app.stores.models import Reach, exceeded
from app.sweeps.limits import limits_as_submitted
from app.sweeps.models import ChangelogPlanRead, RidTrimRead, TrimLimitsRead
from app.sweeps.purging import CHANGELOG
from spark.replication.trimming.plan import RidPlan, TrimPlan


def reach_of(plan: TrimPlan) -> Reach:
    """What a plan would remove."""
    return Reach(rows=plan.rows_to_remove, part=plan.rows_to_remove, whole=plan.rows)


def plan_read(
    plan: TrimPlan,
    params: TrimParams,
    *,
    plan_id: str,
    store: str,
    cutoff: datetime | None,
    valid_s: int,
    now: datetime,
) -> ChangelogPlanRead:
    """Show a plan."""
    return ChangelogPlanRead(
        plan_id=plan_id,
        store=store,
        kind=CHANGELOG,
        cutoff=cutoff,
        retention_minutes=params.retention_minutes,
        retention_source=params.retention_source,
        max_entries=params.max_entries,
        max_entries_source=params.max_entries_source,
        rows=plan.rows,
        rows_to_remove=plan.rows_to_remove,
        rows_over_max_entries=plan.excess,
        rids=[_rid_read(item) for item in plan.rids],
        limits=TrimLimitsRead(
            max_rows=params.max_rows,
            max_fraction=params.max_fraction,
            exceeded=exceeded(limits_as_submitted(params), reach_of(plan)),
        ),
        expires_at=now + timedelta(seconds=valid_s),
    )


def _rid_read(item: RidPlan) -> RidTrimRead:
    return RidTrimRead(
        rid=item.rid,
        rows=item.rows,
        rows_eligible_by_age=item.rows_eligible_by_age,
        rows_to_remove=item.rows_to_remove,
        rows_held=item.rows_held,
        held_by=list(item.held_by),
        floor=item.floor,
        upto=item.upto,
        purged=item.purged,
        purge_headroom=item.headroom,
    )


def rids_result(left: TrimPlan, removed: dict[int, int]) -> list[dict[str, Any]]:
    """What a finished trimming says of each replica id: what it removed, what stays and who holds it.

    Args:
        left: planned again when everything was done.
        removed: rows by replica id.
    """
    return [
        {
            "rid": item.rid,
            "rows_removed": removed.get(item.rid, 0),
            "rows_left": item.rows,
            "rows_eligible_by_age": item.rows_eligible_by_age + removed.get(item.rid, 0),
            "rows_held": item.rows_held,
            "held_by": list(item.held_by),
            "floor": item.floor,
            "purged": item.purged,
            "purge_headroom": item.headroom,
        }
        for item in left.rids
    ]
