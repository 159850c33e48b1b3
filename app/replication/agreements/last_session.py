"""The last session of an agreement, as its row, its job or the agreement itself remembers it."""

from sqlmodel import Session

from app.jobs.rows import Job
from app.jobs.states import TERMINAL, JobState
from app.replication.agreements.service import active_job
from app.replication.agreements.sessions.service import ENDS
from app.replication.rows import Agreement, ReplicationSession, SessionOutcome, SessionState
from spark.replication.records import SessionMode


def last_session(db: Session, row: Agreement) -> tuple[ReplicationSession | None, bool]:
    """The last session; None: there never was one. And whether one is at work."""
    last = None if row.last_session_id is None else db.get(ReplicationSession, row.last_session_id)
    last = _remembered(row) if last is None else _settled(last, db.get(Job, last.job_id))
    return last, active_job(db, row.id) is not None


def _settled(session: ReplicationSession, job: Job | None) -> ReplicationSession:
    """A session as its job says, where that has ended without a word of its own: aborted while it waited."""
    if job is None or job.state not in TERMINAL or session.state == SessionState.ENDED:
        return session
    values = {name: getattr(session, name) for name in ReplicationSession.model_fields}
    ended = {"outcome": ENDS[JobState(job.state)], "ended_at": job.finished_at}
    return ReplicationSession(**(values | ended))


def _remembered(row: Agreement) -> ReplicationSession | None:
    """The last session as its agreement remembers it, where its own row has gone with its job."""
    if row.last_outcome is None or row.last_ended_at is None:
        return None
    return ReplicationSession(
        id=row.last_session_id or "",
        store=row.store,
        agreement_id=row.id,
        job_id="",
        mode=SessionMode.INCREMENTAL,
        strategy=row.strategy,
        outcome=SessionOutcome(row.last_outcome),
        problem=None if row.last_code is None else {"code": row.last_code, "detail": row.last_detail},
        started_at=row.last_started_at,
        ended_at=row.last_ended_at,
        created_at=row.last_started_at or row.last_ended_at,
        updated_at=row.last_ended_at,
    )
