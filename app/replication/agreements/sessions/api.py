"""`/v1/stores/{s}/replication-sessions`: the supplier's sessions."""

from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import Condition, DatabaseDep, clock_of, database_of, requires, settings_of, tell_changed
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.jobs.api import accepted
from app.jobs.engines.choice import check_engine
from app.jobs.models import JobRead
from app.jobs.rows import Job
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.replication.agreements.sessions.models import AGREEMENT_PATTERN, SessionRead, SessionRequest
from app.replication.agreements.sessions.service import (
    check_request,
    get_session,
    list_sessions,
    read_session,
    submit_session,
)
from app.replication.rows import SessionState
from app.stores.api import StoreId, read_row
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import get_store, require_kind

router = new_router(tags=["replication"])
ReplicationSessionId = Annotated[str, Path(pattern=r"^rps_[0-9a-z]{26}$")]
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.REPLICATION_WRITE))]
DISCARD = Condition(Scope.ADMIN, "`discard_consumer_changes` is true")
Supplier = Annotated[Caller, Depends(requires(Scope.REPLICATION_WRITE, DISCARD))]


def replica_store(database: Database, store_id: str, caller: Caller) -> Store:
    """The row of a REPLICA store that the caller may see.

    Raises: StoreForbidden, StoreNotFound, StoreKindWrong.
    """
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.REPLICA)
    return store


@router.post(
    "/v1/stores/{store_id}/replication-sessions",
    status_code=202,
    response_model=JobRead,
    summary="Bring a consumer up to date",
    operation_id="create_replication_session",
    responses=problems(404, 409, 429),
)
def post_session(
    store_id: StoreId,
    body: SessionRequest,
    request: Request,
    caller: Supplier,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with the job, whose subject is the session. One session of an agreement at a time."""
    if body.discard_consumer_changes:
        caller.require(DISCARD.scope)
    check_request(body)
    replica_store(database_of(request), store_id, caller)
    check_engine(body.engine, settings_of(request))

    def effect(db: Session) -> Answer:
        store = get_store(db, store_id, lock=True)
        require_kind(store, StoreKind.REPLICA)
        job, session = submit_session(
            db, store, body, caller=caller, settings=settings_of(request), now=clock_of(request).now()
        )
        audit = {
            "agreement_id": body.agreement_id,
            "mode": body.mode,
            "discard_consumer_changes": body.discard_consumer_changes,
            "reason": body.reason,
        }
        return replace(accepted(job), subject_id=session.id, audit=audit)

    response = mutate(
        request,
        caller,
        effect,
        action=Action.REPLICATION_SESSION_CREATE,
        subject=("replication_session", ""),
        store=store_id,
        body=body,
    )
    tell_changed(request, store_id)
    return response


@router.get(
    "/v1/stores/{store_id}/replication-sessions",
    response_model=Page[SessionRead],
    summary="List a store's replication sessions",
    operation_id="list_replication_sessions",
    responses=problems(404, 409),
)
def get_sessions(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    agreement_id: Annotated[
        str | None, Query(pattern=AGREEMENT_PATTERN, description="Only sessions of this agreement.")
    ] = None,
    state: Annotated[list[SessionState], Query(max_length=20, description="Any of these.")] = [],  # noqa: B006
) -> Page[SessionRead]:
    """As supplier, newest first; they are remembered as long as their jobs."""
    replica_store(database, store_id, caller)
    with database.reading() as db:
        return list_sessions(
            db,
            store_id,
            agreement_id=agreement_id,
            states=state,
            page_size=page_size,
            page_token=page_token,
        )


@router.get(
    "/v1/stores/{store_id}/replication-sessions/{replication_session_id}",
    response_model=SessionRead,
    summary="Look at a replication session",
    operation_id="get_replication_session",
    responses=problems(404, 409),
)
def get_one_session(
    store_id: StoreId, replication_session_id: ReplicationSessionId, caller: Reader, database: DatabaseDep
) -> SessionRead:
    """Vectors, windows and anchors of its last decision, and what became of the changes of each RID."""
    replica_store(database, store_id, caller)
    with database.reading() as db:
        row = get_session(db, store_id, replication_session_id)
        return read_session(row, db.get(Job, row.job_id))
