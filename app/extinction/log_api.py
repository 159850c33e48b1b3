"""`/v1/stores/{s}/extinction-log:accept`: an admin's word about files of a log that went unread."""

from typing import Annotated

from fastapi import Depends, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import clock_of, requires
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.extinction.log_reading import accept_gap
from app.extinction.models import AcceptedGapRead, AcceptGapRequest
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.stores.api import StoreId
from app.stores.rows import StoreKind
from app.stores.service import get_store, require_kind

router = new_router(tags=["extinction"])
Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]


@router.post(
    "/v1/stores/{store_id}/extinction-log:accept",
    response_model=AcceptedGapRead,
    summary="Accept that files of a JE log went before they were read",
    operation_id="accept_extinction_log",
    responses=problems(404, 409),
)
def accept_log(
    store_id: StoreId,
    body: AcceptGapRequest,
    request: Request,
    caller: Admin,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """JE stores with `maybe_because: LOG_GAP`: the log is read anew, and keys are judged by what it holds.

    A discard that only the lost files named stays unknown: give this word only where the application has
    discarded nothing meanwhile.
    """
    caller.require_store(store_id)

    def effect(db: Session) -> Answer:
        store = get_store(db, store_id, lock=True)
        require_kind(store, StoreKind.JE)
        gap = accept_gap(db, store, now=clock_of(request).now())
        shown = AcceptedGapRead(store=store_id, gap=gap)
        return Answer(body=shown, audit={"gap": gap, "reason": body.reason})

    return mutate(
        request,
        caller,
        effect,
        action=Action.EXTINCTION_ACCEPT_LOG,
        subject=("store", store_id),
        store=store_id,
        body=body,
    )
