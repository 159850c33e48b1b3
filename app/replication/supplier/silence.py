"""The proof that nothing of a session writes at its consumer any more.

A session writes by its lease: it is silent when the lease is released, when the consumer knows another epoch
or none, or when it has run out. An attempt that has lost its job sends nothing in an epoch that it could not
note (supplier_work), so the noted one is the last.
"""

from datetime import datetime, timedelta
from typing import Final

from sqlmodel import Session

from app.errors import ServiceError
from app.jobs.errors import JobWaiting
from app.jobs.rows import Job
from app.jobs.running.context import JobContext
from app.jobs.states import JobState
from app.replication.agreements.service import address_of
from app.replication.agreements.sessions.service import announce_session, session_of_job
from app.replication.peer.answers import PeerError, PeerRefused
from app.replication.peer.client import PeerClient
from app.replication.rows import Agreement, ReplicationSession, SessionOutcome, SessionState
from app.replication.supplier.record import show_end
from app.replication.supplier.signals import OVER
from app.replication.supplier.slices import remove_spool
from spark.replication.sessions.row import OVERDUE_MAX_S

ANSWER_TIMEOUT_S: Final = 5.0


def prove_session_silent(context: JobContext) -> None:
    """Return when the session's epoch can write no more; then note what was ordered in its row.

    Raises: JobWaiting: it could not be proved now.
    """
    row = context.read(lambda db: session_of_job(db, context.job.id))
    if row is None:
        return
    remove_spool(context)
    lease = (row.cursor or {}).get("lease")
    if lease is not None:
        # Renewed without a note: by an attempt until it stops by itself, and by a batch that was under way.
        settings = context.settings
        more = timedelta(seconds=settings.lease_self_stop_s + settings.replication_lease_s + OVERDUE_MAX_S)
        _prove(context, row, until=datetime.fromisoformat(lease) + more)
    context.write(lambda db: _note(db, context))


def _prove(context: JobContext, row: ReplicationSession, *, until: datetime) -> None:
    """Release the lease; an answer that says it is over proves it too, and so does its time."""
    try:
        agreement = context.read(lambda db: db.get(Agreement, row.agreement_id))
        if agreement is not None:
            address = address_of(agreement, context.settings, context.database)
            with PeerClient(address, answer_timeout_s=ANSWER_TIMEOUT_S) as client:
                client.release(row.id, epoch=row.epoch)
                return
        trouble = "the agreement is gone"
    except PeerRefused as error:
        if error.code in OVER:
            return
        trouble = f"{error.code}: {error.detail}"
    except (PeerError, ServiceError) as error:
        trouble = f"{error.code}: {error.detail}"
    if context.clock.now() <= until:
        raise JobWaiting([], not_before=None, detail=f"the consumer's lease may run still; {trouble}")


def _note(db: Session, context: JobContext) -> None:
    """The lease is over; a session whose job is being aborted ends with it."""
    row = session_of_job(db, context.job.id)
    if row is None or row.state == SessionState.ENDED:
        return
    now = context.database.now(db)
    row.cursor = {name: value for name, value in (row.cursor or {}).items() if name != "lease"}
    row.state = SessionState.PENDING
    if db.get_one(Job, context.job.id).state == JobState.ABORTING:
        row.state, row.outcome, row.ended_at = SessionState.ENDED, SessionOutcome.ABORTED, now
        agreement = db.get(Agreement, row.agreement_id)
        if agreement is not None:
            show_end(agreement, row, now=now)
            db.add(agreement)
    row.version += 1
    row.updated_at = now
    announce_session(db, row, now=now)
