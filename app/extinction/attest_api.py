"""`/v1/stores/{s}/extinctions/{id}:attest`: an admin's word that the application's filter is installed."""

from typing import Annotated

from fastapi import Depends, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import clock_of, requires
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.extinction.api import ALL, ExtinctionId
from app.extinction.models import AttestRequest, ExtinctionRead
from app.extinction.queries import get_extinction, read_extinction
from app.extinction.records import note_attested
from app.extinction.service import check_attestable
from app.kit.conditional import etag
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.stores.api import StoreId
from app.stores.service import get_store

router = new_router(tags=["extinction"])
Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]


@router.post(
    f"{ALL}/{{extinction_id}}:attest",
    response_model=ExtinctionRead,
    summary="Attest that the application's extinction filter is installed",
    operation_id="attest_extinction",
    responses=problems(404, 409),
)
def attest_extinction(
    store_id: StoreId,
    extinction_id: ExtinctionId,
    body: AttestRequest,
    request: Request,
    caller: Admin,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """JE stores: from now on entries of this extinction are erased though slots still lead to them.

    JE dies of such an entry unless its own filter says EXTINCT. Named in the certificate of each cycle.
    """
    caller.require_store(store_id)
    now = clock_of(request).now()

    def effect(db: Session) -> Answer:
        store = get_store(db, store_id, lock=True)
        row = get_extinction(db, store_id, extinction_id)
        check_attestable(store, row)
        note_attested(db, row, now=now, caller=caller.name, reason=body.reason)
        shown = read_extinction(row, store)
        return Answer(body=shown, headers={"ETag": etag(row.version)}, audit=body.model_dump())

    return mutate(
        request,
        caller,
        effect,
        action=Action.EXTINCTION_ATTEST,
        subject=("extinction", extinction_id),
        store=store_id,
        body=body,
    )
