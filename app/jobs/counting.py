"""What the end of a job adds to the figures: by which changes of its row, in the same transaction."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import case, func, literal
from sqlmodel import Session, col

from app.db import UtcDateTime
from app.figures.series import Series
from app.figures.sums import Name, count, note
from app.jobs.rows import Job
from app.jobs.states import TERMINAL, JobState

ABORT_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
BEYOND: Final = "+Inf"
CAUSE_MAX_CHARS: Final = 40
PURGE: Final = "PURGE"
QUEUED: Final = JobState.QUEUED.value
"""What a job waits for that no runner has taken yet, or again."""
_RESTING: Final = TERMINAL | {JobState.PAUSED}


def times_of(values: Mapping[str, Any], *, advanced: bool, now: datetime) -> dict[str, Any]:
    """The columns that tell since when a job waits, and since when it is to be aborted."""
    state = values.get("state")
    waiting_on = values.get("waiting_on")
    times: dict[str, Any] = {}
    if waiting_on:
        cause = str(waiting_on[0]["kind"])[:CAUSE_MAX_CHARS]
        is_same = (col(Job.waiting_cause) == cause) & col(Job.waiting_since).is_not(None)
        since = case((is_same, col(Job.waiting_since)), else_=literal(now, UtcDateTime()))
        times = {"waiting_cause": cause, "waiting_since": since}
    elif state == JobState.QUEUED:
        times = {"waiting_cause": QUEUED, "waiting_since": now}
    elif advanced or state in _RESTING or (waiting_on is not None and state is None):
        times = {"waiting_cause": None, "waiting_since": None}
    elif (
        state is not None
    ):  # it stands in the queue no more; what it waits for otherwise it may wait for again
        is_queue = col(Job.waiting_cause) == QUEUED
        times = {
            "waiting_cause": case((is_queue, None), else_=col(Job.waiting_cause)),
            "waiting_since": case((is_queue, None), else_=col(Job.waiting_since)),
        }
    if state == JobState.ABORTING:
        times["abort_asked_at"] = func.coalesce(col(Job.abort_asked_at), literal(now, UtcDateTime()))
    return times


def count_end(db: Session, row: Any, *, now: datetime) -> None:
    """Count a job that has just ended.

    Args:
        row: kind, store, state, result and abort_asked_at as they were written.
    """
    state, store = JobState(row.state), row.store
    assert state in TERMINAL
    count(db, Name.JOBS_ENDED, row.kind, state.value, store=store, now=now)
    if state is JobState.SUCCEEDED:
        count(db, Name.LAST_SUCCESS, row.kind, store=store, value=now.timestamp(), now=now)
    if state is JobState.ABORTED:
        asked_at = row.abort_asked_at
        took_s = 0.0 if asked_at is None else max(0.0, (now - asked_at).total_seconds())
        count(db, Name.ABORTS, row.kind, bucket_of(took_s), store=store, now=now)
        count(db, Name.ABORT_SECONDS, row.kind, store=store, value=took_s, now=now)
    removed = (row.result or {}).get("removed") or {}
    if row.kind == PURGE:
        for table, rows in removed.items():
            count(db, Name.PURGE_ROWS_REMOVED, str(table), store=store, value=int(rows), now=now)
    elif removed and store is not None:
        note(db, Series.ROWS_REMOVED, float(sum(removed.values())), store=store, now=now)


def bucket_of(took_s: float) -> str:
    """The upper bound of the bucket that a latency falls into."""
    return next((str(bound) for bound in ABORT_BUCKETS_S if took_s <= bound), BEYOND)
