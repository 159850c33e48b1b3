"""Replication sessions: the rules at their submission, and their rows."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlmodel import Session, col, select

from app.auth.service import Caller
from app.errors import InvalidRequest
from app.feed.writing import REPLICATION_SESSION, announce
from app.jobs.models import Subject
from app.jobs.rows import Job
from app.jobs.service import JobRequest, refuse_conflict, submit
from app.jobs.states import TERMINAL, JobState
from app.kit.ids import new_id
from app.kit.pagination import Page, read_page
from app.replication.agreements.errors import ReplicationSessionNotFound
from app.replication.agreements.service import check_address, get_agreement
from app.replication.agreements.sessions.models import SessionParams, SessionRead, SessionRequest
from app.replication.rows import Agreement, ReplicationSession, SessionOutcome, SessionState
from app.settings import Settings
from app.stores.rows import Store

JOB_SESSION: Final = "REPLICATION_SESSION"
SUBJECT_TYPE: Final = "replication_session"
ANCHORS_SHOWN: Final = 20
ENDS: Final = {
    JobState.ABORTED: SessionOutcome.ABORTED,
    JobState.ABANDONED: SessionOutcome.ABORTED,
    JobState.FAILED: SessionOutcome.FAILED,
    JobState.SUCCEEDED: SessionOutcome.UP_TO_DATE,
}
"""What an end of the job says of a session whose own end nobody wrote."""


def resource_of(agreement_id: str) -> str:
    """What a session claims at its target: two of one agreement never run."""
    return f"session:{agreement_id}"


def target_of_store(store: Store) -> dict[str, Any]:
    """What tells one target of a store from another."""
    return {
        "url": store.url,
        "schema": store.schema_name,
        "table_prefix": store.table_prefix,
        "rid": store.rid,
    }


def consumer_of(agreement: Agreement) -> dict[str, str]:
    """What tells one consumer of an agreement from another."""
    return {"url": agreement.consumer_url, "store": agreement.consumer_store}


def params_of(store: Store, agreement: Agreement, request: SessionRequest) -> SessionParams:
    """The snapshot of a request: what it leaves open is the agreement's."""
    given = request.max_duration
    if given is None and agreement.max_duration_s is not None:
        given = timedelta(seconds=agreement.max_duration_s)
    return SessionParams.model_validate(
        {
            "agreement_id": agreement.id,
            "mode": request.mode,
            "strategy": request.strategy or agreement.strategy,
            "max_changes": request.max_changes if request.max_changes is not None else agreement.max_changes,
            "max_duration": given,
            "discard_consumer_changes": request.discard_consumer_changes,
            "batch_rows": agreement.batch_rows,
            "batch_bytes": agreement.batch_bytes,
            "in_flight": agreement.in_flight,
            "engine": request.engine,
            "throttle": request.throttle,
            "consumer": consumer_of(agreement),
            "target": target_of_store(store),
        }
    )


def check_request(request: SessionRequest) -> None:
    """Refuse fields that make no sense together.

    Raises: InvalidRequest.
    """
    if request.discard_consumer_changes and request.mode != "TOTAL":
        wrong = {"pointer": "/discard_consumer_changes", "detail": "makes sense for TOTAL only"}
        raise InvalidRequest("1 field(s) are not valid", errors=[wrong])


def submit_session(
    db: Session,
    store: Store,
    request: SessionRequest,
    *,
    caller: Caller,
    settings: Settings,
    now: datetime,
) -> tuple[Job, ReplicationSession]:
    """Make a session's row and its job. The store's row is locked by the caller.

    Raises: AgreementNotFound, ConsumerRefused, ConflictingJob, QueueFull.
    """
    agreement = get_agreement(db, store.id, request.agreement_id, lock=True)
    check_address(db, agreement, settings)
    resource = resource_of(agreement.id)
    refuse_conflict(db, store=store.id, identity=store.target_identity, resource=resource)
    params = params_of(store, agreement, request)
    session_id = new_id("rps")
    job = submit(
        db,
        JobRequest(
            kind=JOB_SESSION,
            store=store.id,
            params=params.model_dump(mode="json"),
            requested_by=caller.name,
            token_id=caller.token_id or None,
            runs_on=store.runs_on,
            reason=request.reason,
            throttle=request.throttle,
            claim_identity=store.target_identity,
            claim_resource=resource,
            subject=subject_of(store.id, session_id),
        ),
        now=now,
        queued_max=settings.jobs_queued_max,
    )
    return job, add_row(db, store.id, session_id, job.id, params, now=now)


def subject_of(store_id: str, session_id: str) -> Subject:
    """The session as its job names it."""
    href = f"/v1/stores/{store_id}/replication-sessions/{session_id}"
    return Subject(type=SUBJECT_TYPE, id=session_id, href=href)


def add_row(
    db: Session, store_id: str, session_id: str, job_id: str, params: SessionParams, *, now: datetime
) -> ReplicationSession:
    """The row of a new session; its agreement names it as its last one."""
    row = ReplicationSession(
        id=session_id,
        store=store_id,
        agreement_id=params.agreement_id,
        job_id=job_id,
        mode=params.mode,
        strategy=params.strategy,
        max_changes=params.max_changes,
        max_duration_s=None if params.max_duration is None else params.max_duration.total_seconds(),
        discard_consumer_changes=params.discard_consumer_changes,
        created_at=now,
        updated_at=now,
    )
    db.add(row)
    agreement = db.get(Agreement, params.agreement_id)
    if agreement is not None:
        agreement.last_session_id = session_id
        db.add(agreement)
    announce_session(db, row, now=now)
    return row


def announce_session(db: Session, row: ReplicationSession, *, now: datetime) -> None:
    """Write a session that is new or changed, with its event in the feed."""
    data = {
        "state": str(row.state),
        "outcome": None if row.outcome is None else str(row.outcome),
        "agreement_id": row.agreement_id,
        "job_id": row.job_id,
        "batches": row.batches_sent,
        "bytes": row.bytes_sent,
        "code": (row.problem or {}).get("code"),
    }
    db.add(row)
    announce(
        db,
        "session",
        kind=REPLICATION_SESSION,
        store=row.store,
        subject=f"stores/{row.store}/replication-sessions/{row.id}",
        seq=row.version,
        data=data,
        now=now,
    )
    db.flush()


def session_of_job(db: Session, job_id: str) -> ReplicationSession | None:
    """The session of a job."""
    return db.exec(select(ReplicationSession).where(ReplicationSession.job_id == job_id)).first()


def get_session(db: Session, store_id: str, session_id: str) -> ReplicationSession:
    """The row of a session.

    Raises: ReplicationSessionNotFound.
    """
    row = db.get(ReplicationSession, session_id)
    if row is None or row.store != store_id:
        raise ReplicationSessionNotFound("there is no such session of this store")
    return row


def list_sessions(
    db: Session,
    store_id: str,
    *,
    agreement_id: str | None,
    states: Sequence[SessionState],
    page_size: int,
    page_token: str,
) -> Page[SessionRead]:
    """Sessions of a store, newest first."""
    filters = {
        "list": "replication-sessions",
        "store": store_id,
        "agreement": agreement_id,
        "states": sorted(states),
    }
    query = select(ReplicationSession).where(ReplicationSession.store == store_id)
    if agreement_id is not None:
        query = query.where(ReplicationSession.agreement_id == agreement_id)
    if states:
        query = query.where(col(ReplicationSession.state).in_(sorted(states)))
    return read_page(
        db,
        query,
        col(ReplicationSession.id),
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=lambda row: read_session(row, db.get(Job, row.job_id)),
    )


def read_session(row: ReplicationSession, job: Job | None) -> SessionRead:
    """Show a session's row to a client; one whose job has ended without a word has ended with it."""
    fields: dict[str, Any] = {
        name: getattr(row, name) for name in SessionRead.model_fields if hasattr(row, name)
    }
    if job is not None and job.state in TERMINAL and row.state != SessionState.ENDED:
        outcome = ENDS[JobState(job.state)]
        fields |= {"state": SessionState.ENDED, "outcome": outcome, "ended_at": job.finished_at}
    fields |= {
        "max_duration": None if row.max_duration_s is None else timedelta(seconds=row.max_duration_s),
        "anchors": row.anchors.get("loads", [])[-ANCHORS_SHOWN:],
        "total": None if row.cursor is None else row.cursor.get("total"),
    }
    return SessionRead.model_validate(fields)
