"""Progress that says what the result says, whatever an attempt came to show before it ended.

Progress is shown once in a while, by what the attempt knows; the result is counted at the end, over all
attempts. What a kind without `removed` shows as done are rows that are gone.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlmodel import Session

from app.jobs.queries import get_job
from app.jobs.running.context import JobContext
from app.jobs.running.pace import fraction_of
from app.jobs.writing import EVENT_PROGRESS

REMOVED: Final = "removed"


def settle(context: JobContext, db: Session, told: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Change the job's row, its progress with it where that says something else.

    Args:
        told: the result; one that counts no rows by table changes no progress.
        values: what else is written.
    Raises: LeaseLost.
    """
    before = get_job(db, context.job.id).progress
    shown = settled(before, told)
    if shown == before:
        if values:
            context.change(db, values)
        return
    context.change(db, {**values, "progress": shown}, (EVENT_PROGRESS, shown or {}))


def settled(progress: Mapping[str, Any] | None, told: Mapping[str, Any]) -> dict[str, Any] | None:
    """Progress as the result has it; None: nothing was shown yet."""
    if progress is None:
        return None
    shown = dict(progress)
    if not isinstance(told.get(REMOVED), Mapping):
        return shown
    gone = sum(told[REMOVED].values())
    if REMOVED in shown:
        shown |= {REMOVED: gone, "done": max(shown["done"], gone)}  # what is gone was looked at
    else:
        shown["done"] = gone
    if shown["total"] is not None:
        shown["total"] = max(shown["total"], shown["done"])
    return shown | {"fraction": fraction_of(shown["done"], shown["total"])}
