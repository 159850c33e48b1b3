"""From the lower floor's plan of a purge of tombstones to what clients see."""

from datetime import datetime, timedelta
from typing import Any

from app.replication.tombstones.models import TombstoneParams
from app.stores.models import Reach, exceeded
from app.sweeps.limits import limits_as_submitted
from app.sweeps.models import RidTombstonesRead, TombstonePlanRead, TrimLimitsRead
from app.sweeps.purging import TOMBSTONES
from spark.replication.tombstones.plan import TombstonePlan


def reach_of(plan: TombstonePlan) -> Reach:
    """What a plan would remove: a part of all entries, live ones among them."""
    return Reach(rows=plan.rows_to_remove, part=plan.rows_to_remove, whole=plan.entries)


def plan_read(
    plan: TombstonePlan,
    params: TombstoneParams,
    *,
    plan_id: str,
    store: str,
    cutoff: datetime | None,
    valid_s: int,
    now: datetime,
) -> TombstonePlanRead:
    """Show a plan."""
    return TombstonePlanRead(
        plan_id=plan_id,
        store=store,
        kind=TOMBSTONES,
        cutoff=cutoff,
        retention_minutes=params.retention_minutes,
        retention_source=params.retention_source,
        gone_rids=params.gone_rids,
        entries=plan.entries,
        rows=plan.rows,
        rows_to_remove=plan.rows_to_remove,
        ceiling=plan.ceiling,
        held_by=list(plan.held_by),
        upto=plan.upto,
        rids=[
            RidTombstonesRead(
                rid=item.rid,
                rows=item.rows,
                rows_eligible_by_age=item.rows_eligible_by_age,
                rows_to_remove=item.rows_to_remove,
                rows_held=item.rows_held,
            )
            for item in plan.rids
        ],
        limits=TrimLimitsRead(
            max_rows=params.max_rows,
            max_fraction=params.max_fraction,
            exceeded=exceeded(limits_as_submitted(params), reach_of(plan)),
        ),
        expires_at=now + timedelta(seconds=valid_s),
    )


def left_result(left: TombstonePlan, buried: str | None) -> dict[str, Any]:
    """What a finished purge says of what stays, and who holds it.

    Args:
        left: planned again when everything was done.
    """
    return {
        "rows_left": left.rows,
        "ceiling": left.ceiling,
        "held_by": list(left.held_by),
        "buried": buried,
        "rids": [
            {"rid": item.rid, "rows_left": item.rows, "rows_held": item.rows_held} for item in left.rids
        ],
    }
