"""The execution of a reviewed plan of a cleanup: what of it would go now, and whether that is enough."""

from typing import Final

from app.events.cleanup.models import CleanupParams, CleanupVia
from app.events.cleanup.report import by_table
from app.jobs.plans.reviewed_plan import drift_fault
from spark.events.cleaning.records import TABLE_OF, CleanupPlan, Reviewed, within
from spark.events.records import Catalog
from spark.events.reviewed import count_within
from spark.targets.connection import Connection

HOUSEKEEPING: Final = TABLE_OF["NODELOCK"]
"""Rows of sessions that have ended; that some of them are gone by now makes no plan another one."""
MORE_CONFIRMED: Final = "more has been confirmed since the plan, and NATIVE would remove that too: plan again"


def reviewed_of(params: CleanupParams) -> Reviewed | None:
    """What the executed plan would remove at most; None: no plan is executed."""
    if params.planned is None:
        return None
    return Reviewed(
        events=params.planned_bounds,
        confirmations={(origin, receiver): below for origin, receiver, below in params.planned_confirmations},
        nodelock_rows=params.planned.get(HOUSEKEEPING, 0),
    )


def bounded(conn: Connection, catalog: Catalog, plan: CleanupPlan, params: CleanupParams) -> CleanupPlan:
    """The part of a plan that was reviewed, counted where the plan is; all of it where none is executed."""
    reviewed = reviewed_of(params)
    if reviewed is None:
        return plan
    return count_within(conn, catalog, plan, reviewed) if plan.is_counted else within(plan, reviewed)


def fault_of(plan: CleanupPlan, params: CleanupParams, *, is_cut_short: bool) -> str | None:
    """Why a reviewed plan does not hold any more; None: it does, or none is executed.

    Args:
        plan: what would go now, within the reviewed.
        is_cut_short: more would go now than was reviewed.
    """
    if params.planned is None:
        return None
    if is_cut_short and params.via is CleanupVia.NATIVE:
        return MORE_CONFIRMED
    if params.max_drift is None:
        return None
    now = {table: rows for table, rows in by_table(plan.to_remove).items() if table != HOUSEKEEPING}
    planned = sum(params.planned.get(table, 0) for table in now)
    still = sum(min(rows, params.planned.get(table, 0)) for table, rows in now.items())
    return drift_fault(planned, still, max_drift=params.max_drift)
