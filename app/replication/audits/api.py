"""`/v1/stores/{s}/audits`: a replica compared with a consumer."""

from typing import Annotated

from fastapi import Query, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import DatabaseDep, clock_of, database_of, settings_of
from app.auth.actions import Action
from app.auth.mutation import IdempotencyKeyHeader
from app.jobs.hidden import page_seen_by
from app.jobs.job_answer import job_answer
from app.jobs.models import JobRead
from app.jobs.queries import list_jobs_of
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.replication.agreements.sessions.api import Reader, Writer, replica_store
from app.replication.audits.models import JOB_AUDIT, AuditRequest
from app.replication.audits.submitting import submit_audit
from app.stores.api import StoreId
from app.stores.service import get_store

router = new_router(tags=["replication"])


@router.post(
    "/v1/stores/{store_id}/audits",
    status_code=202,
    response_model=JobRead,
    summary="Compare what a replica and a consumer hold",
    operation_id="create_audit",
    responses=problems(404, 409, 429),
)
def post_audit(
    store_id: StoreId,
    body: AuditRequest,
    request: Request,
    caller: Writer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with the job; its result says `agrees`, and where not, what differs. Nothing is written."""
    replica_store(database_of(request), store_id, caller)
    settings, now = settings_of(request), clock_of(request).now()

    def queue(db: Session) -> Job:
        store = get_store(db, store_id)
        return submit_audit(db, store, body, caller=caller, settings=settings, now=now)

    audit = {"agreement_id": body.agreement_id, "entries": body.entries, "reason": body.reason}
    return job_answer(
        request, caller, queue, action=Action.AUDIT_CREATE, store_id=store_id, body=body, audit=audit
    )


@router.get(
    "/v1/stores/{store_id}/audits",
    response_model=Page[JobRead],
    summary="List a store's audits",
    operation_id="list_audits",
    responses=problems(404, 409),
)
def get_audits(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    state: Annotated[list[JobState], Query(max_length=20, description="Any of these.")] = [],  # noqa: B006
) -> Page[JobRead]:
    """The jobs that compare this store with a consumer, newest first; differing keys need `data:read`."""
    store = replica_store(database, store_id, caller)
    found = list_jobs_of(database, store, JOB_AUDIT, states=state, page_size=page_size, page_token=page_token)
    return page_seen_by(caller, found)
