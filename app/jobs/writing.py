"""Writes to a job's row: one guarded UPDATE and one event row, in the caller's transaction."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, update
from sqlmodel import Session, col

from app.jobs.rows import Job, JobEvent
from app.jobs.states import TERMINAL, JobState

EVENT_STATE = "state"
EVENT_PROGRESS = "progress"
EVENT_WARNING = "warning"
EVENT_THROTTLE = "throttle"


def change_job(
    db: Session,
    job_id: str,
    *,
    guards: Sequence[ColumnElement[bool]],
    values: Mapping[str, Any],
    now: datetime,
    event: tuple[str, Mapping[str, Any]] | None = None,
) -> bool:
    """Update a job if the guards hold, and tell whether they did.

    Args:
        values: column name to new value; version and updated_at follow by themselves.
        event: type and data of the event row of this change; its sequence is assigned here, under
            the row's lock, so that a stream that resumes after a sequence misses nothing.
    """
    step = 0 if event is None else 1
    changed = db.execute(
        update(Job)
        .where(col(Job.id) == job_id, *guards)
        .values(**values, version=Job.version + 1, event_seq=Job.event_seq + step, updated_at=now)
        .returning(col(Job.event_seq))
        .execution_options(synchronize_session=False)
    ).first()
    if changed is None:
        return False
    if event is not None:
        kind, data = event
        db.add(JobEvent(job_id=job_id, seq=changed[0], at=now, type=kind, data=dict(data)))
        db.flush()
    return True


def state_event(state: JobState, **facts: Any) -> tuple[str, dict[str, Any]]:
    """The event of a transition."""
    return EVENT_STATE, {"state": str(state)} | {
        name: value for name, value in facts.items() if value is not None
    }


def end_values(state: JobState, now: datetime) -> dict[str, Any]:
    """The columns that every end of a job sets; that of one whose silence is not proved says so."""
    assert state in TERMINAL
    return {
        "state": state,
        "finished_at": now,
        "lease_instance": None,
        "lease_expires_at": None,
        "unproven": False,
        "silence_proved": True,
        "not_before": None,
        "wake_key": None,
        "waiting_on": [],
    }
