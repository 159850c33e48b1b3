"""What was so before the first unit of a sweep: the first attempt's holds for all.

A total that a later attempt counted would lack what the earlier ones have removed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from app.jobs.running.context import JobContext
from app.sweeps.counts import noted_counts

CHECKPOINT_START: Final = "start"
TOTAL: Final = "total_rows"


def noted_start(context: JobContext, look: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """What the first attempt has noted, or notes now.

    Args:
        look: finds it out.
    Raises: JobStopped.
    """
    known = context.checkpoint(CHECKPOINT_START)
    if known is not None:
        return known
    start = dict(look())
    context.check()
    context.save_checkpoint(CHECKPOINT_START, start)
    return start


def total_at_start(context: JobContext, rows_now: int | None) -> int | None:
    """Rows that there were before the first unit, by those that there are; None: nobody knows.

    A job that an earlier version has begun has noted no start, but what it has removed.
    """
    return None if rows_now is None else rows_now + sum(noted_counts(context).rows.values())
