"""Writes to a job's row: one INSERT or one guarded UPDATE, and one event row, in the caller's transaction.

Nothing else writes the state of a job, so that each transition has its event and its line in the log.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, update
from sqlmodel import Session, col

from app.db import after_commit
from app.feed.writing import announce
from app.jobs.counting import QUEUED, count_end, times_of
from app.jobs.lines import LINES, Step
from app.jobs.rows import Job, JobEvent
from app.jobs.states import TERMINAL, JobState
from app.kit.instants import instant_text
from app.outbox.facts import Fact
from app.outbox.writing import note_success, tell
from app.tracing import TRACING

EVENT_STATE = "state"
EVENT_PROGRESS = "progress"
EVENT_WARNING = "warning"
EVENT_THROTTLE = "throttle"
LOOKS_QUIETLY: Final = frozenset({"EVENT_WAIT"})
"""Kinds that look again and again for one thing: a look that finds nothing new has no event."""
EPOCH_AHEAD = "EPOCH_AHEAD"
"""Why a job failed whose target has seen a greater token than this metadata ever gave."""
_TOLD: Final = (
    col(Job.event_seq),
    col(Job.kind),
    col(Job.store),
    col(Job.requested_by),
    col(Job.state),
    col(Job.attempt),
    col(Job.retries),
    col(Job.result),
    col(Job.abort_asked_at),
    col(Job.error),
    col(Job.silence_proved),
    col(Job.parent_id),
    col(Job.token_id),
    col(Job.created_at),
    col(Job.started_at),
    col(Job.finished_at),
)
"""What figures, the log and webhooks are told of a change; nothing is read again for them."""


def add_job(db: Session, job: Job, *, now: datetime, event: tuple[str, Mapping[str, Any]]) -> None:
    """Insert a job and its first event."""
    job.event_seq = 1
    if job.state == JobState.QUEUED:
        job.waiting_cause, job.waiting_since = QUEUED, now
    db.add(job)
    db.flush()
    _add_event(db, job.id, job, event, now=now)
    _tell(db, _step(job.id, job, {}, event))


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
    if values.get("state") == JobState.QUEUED:  # it waits for a runner, whatever it has waited for before
        values = {**values, "waiting_on": []}
    advanced = _is_advance(values, event)
    times = times_of(values, advanced=advanced, now=now)
    changed = db.execute(
        update(Job)
        .where(col(Job.id) == job_id, *guards)
        .values(**times, **values, version=Job.version + 1, event_seq=Job.event_seq + step, updated_at=now)
        .returning(*_TOLD)
        .execution_options(synchronize_session=False)
    ).first()
    if changed is None:
        return False
    if event is not None:
        _add_event(db, job_id, changed, event, now=now)
    if values.get("state") in TERMINAL:
        count_end(db, changed, now=now)
        _tell_end(db, job_id, changed, now=now)
    _tell(db, _step(job_id, changed, values, event))
    return True


def _add_event(
    db: Session, job_id: str, row: Any, event: tuple[str, Mapping[str, Any]], *, now: datetime
) -> None:
    """The event in the job's own list and in the feed, under its sequence."""
    what, data = event
    db.add(JobEvent(job_id=job_id, seq=row.event_seq, at=now, type=what, data=dict(data)))
    announce(
        db,
        f"job.{what}",
        kind=row.kind,
        store=row.store,
        subject=f"jobs/{job_id}",
        seq=row.event_seq,
        data=data,
        now=now,
        token_id=row.token_id,
    )
    db.flush()


def _is_advance(values: Mapping[str, Any], event: tuple[str, Mapping[str, Any]] | None) -> bool:
    """Whether the job has gained something: what it waited for is over."""
    return (event is not None and event[0] == EVENT_PROGRESS) or values.get("retries") == 0


def _step(
    job_id: str, row: Any, values: Mapping[str, Any], event: tuple[str, Mapping[str, Any]] | None
) -> Step:
    kind, data = event or ("", {})
    return Step(
        job_id=job_id,
        kind=row.kind,
        store=row.store,
        caller=row.requested_by,
        state=JobState(row.state),
        attempt=row.attempt,
        retries=row.retries,
        facts=data if kind == EVENT_STATE else None,
        waiting_on=values.get("waiting_on"),
        advanced=_is_advance(values, event),
    )


def _tell(db: Session, step: Step) -> None:
    if step.is_news:
        after_commit(db, partial(LINES.say, step))


def _tell_end(db: Session, job_id: str, row: Any, *, now: datetime) -> None:
    """The one place where webhooks learn that a job has ended: every end is written above.

    Args:
        row: `_TOLD` as it was written.
    """
    code = None if row.error is None else row.error.get("code")
    data = {
        "job_id": job_id,
        "kind": row.kind,
        "store": row.store,
        "state": str(row.state),
        "error_code": code,
        "silence_proved": row.silence_proved,
        "parent_id": row.parent_id,
        "token_id": row.token_id,  # its name is what somebody else has written
        "attempts": row.attempt,
        "created_at": instant_text(row.created_at),
        "started_at": None if row.started_at is None else instant_text(row.started_at),
        "finished_at": None if row.finished_at is None else instant_text(row.finished_at),
    }
    tell(db, Fact.JOB_ENDED, store=row.store, subject=f"jobs/{job_id}", data=data, now=now)
    if code == EPOCH_AHEAD:
        ahead = {"store": row.store, "job_id": job_id, "kind": row.kind}
        tell(db, Fact.EPOCH_AHEAD, store=row.store, subject=f"stores/{row.store}", data=ahead, now=now)
    if TRACING.is_on:
        after_commit(db, partial(TRACING.job_ended, data, row.created_at, row.finished_at))
    if row.state == JobState.SUCCEEDED and row.store is not None:
        note_success(db, store=row.store, kind=row.kind, now=now)


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
