"""A whole cleanup in one thread, unit after unit, without a job around it."""

from collections import Counter
from collections.abc import Callable

from spark.events.cleaning.records import CleanupPlan, Step
from spark.events.cleanup import ROWS_IN_TX, CleanupWalk
from spark.events.records import Catalog
from spark.events.unit import CleanupUnit, UnitJob, UnitResult, run_unit
from spark.targets.connection import Connection


def clean_up(
    conn: Connection,
    plan: CleanupPlan,
    catalog: Catalog,
    job: UnitJob,
    *,
    rows_max: int = ROWS_IN_TX,
    run: Callable[[Connection, CleanupUnit], UnitResult] = run_unit,
) -> dict[Step, int]:
    """Do all units of a plan; rows that went, by step."""
    walk = CleanupWalk(plan, catalog, job)
    removed: Counter[Step] = Counter()
    while (unit := walk.next_unit(conn, rows_max=rows_max)) is not None:
        result = run(conn, unit)
        walk.note(unit, result)
        removed[unit.step] += result.rows
    return dict(removed)
