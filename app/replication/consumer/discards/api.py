"""`/v1/stores/{s}/discard-grants`: an admin's word that a supplier may discard what only this replica has."""

from typing import Annotated

from fastapi import Depends, Path, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import ClockDep, DatabaseDep, clock_of, database_of, requires
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.replication.agreements.sessions.api import replica_store
from app.replication.consumer.discards.grants import (
    SUBJECT_TYPE,
    get_grant,
    insert_grant,
    list_grants,
    read_grant,
    revoke_grant,
)
from app.replication.consumer.discards.models import GRANT_PATTERN, DiscardGrantCreate, DiscardGrantRead
from app.stores.api import StoreId
from app.stores.rows import StoreKind
from app.stores.service import get_store, require_kind

router = new_router(tags=["replication"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]
DiscardGrantId = Annotated[str, Path(pattern=GRANT_PATTERN)]
ALL = "/v1/stores/{store_id}/discard-grants"
ONE = f"{ALL}/{{discard_grant_id}}"


@router.post(
    ALL,
    status_code=201,
    response_model=DiscardGrantRead,
    summary="Grant a supplier to discard what only this replica has",
    operation_id="create_discard_grant",
    responses=problems(404, 409),
)
def post_grant(
    store_id: StoreId,
    body: DiscardGrantCreate,
    request: Request,
    caller: Admin,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Given at the consumer; spent by one acquire of that supplier's total initialisation, if any is lost."""
    replica_store(database_of(request), store_id, caller)

    def effect(db: Session) -> Answer:
        require_kind(get_store(db, store_id, lock=True), StoreKind.REPLICA)
        now = clock_of(request).now()
        row = insert_grant(db, store_id, body, caller=caller, now=now)
        location = f"/v1/stores/{store_id}/discard-grants/{row.id}"
        return Answer(
            body=read_grant(row, now=now),
            status=201,
            headers={"Location": location},
            subject_id=row.id,
            audit=body.model_dump(mode="json"),
        )

    return mutate(
        request,
        caller,
        effect,
        action=Action.DISCARD_GRANT_CREATE,
        subject=(SUBJECT_TYPE, ""),
        store=store_id,
        body=body,
    )


@router.get(
    ALL,
    response_model=Page[DiscardGrantRead],
    summary="List a store's grants to discard",
    operation_id="list_discard_grants",
    responses=problems(404, 409),
)
def get_grants(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    clock: ClockDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[DiscardGrantRead]:
    """Newest first, those that are over too."""
    replica_store(database, store_id, caller)
    with database.reading() as db:
        return list_grants(db, store_id, page_size=page_size, page_token=page_token, now=clock.now())


@router.get(
    ONE,
    response_model=DiscardGrantRead,
    summary="Look at a grant to discard",
    operation_id="get_discard_grant",
    responses=problems(404, 409),
)
def get_one_grant(
    store_id: StoreId,
    discard_grant_id: DiscardGrantId,
    caller: Reader,
    database: DatabaseDep,
    clock: ClockDep,
) -> DiscardGrantRead:
    """Whether it is open, and for which session it was spent."""
    replica_store(database, store_id, caller)
    with database.reading() as db:
        return read_grant(get_grant(db, store_id, discard_grant_id), now=clock.now())


@router.post(
    f"{ONE}:revoke",
    response_model=DiscardGrantRead,
    summary="Revoke a grant to discard",
    operation_id="revoke_discard_grant",
    responses=problems(404, 409),
)
def post_revoke(
    store_id: StoreId,
    discard_grant_id: DiscardGrantId,
    request: Request,
    caller: Admin,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """409 DISCARD_GRANT_OVER where it was used already."""
    replica_store(database_of(request), store_id, caller)

    def effect(db: Session) -> Answer:
        now = clock_of(request).now()
        return Answer(body=revoke_grant(db, store_id, discard_grant_id, caller=caller, now=now))

    return mutate(
        request,
        caller,
        effect,
        action=Action.DISCARD_GRANT_REVOKE,
        subject=(SUBJECT_TYPE, discard_grant_id),
        store=store_id,
    )
