"""`/v1/stores/{s}/events:precondition`: whether slonik's command would have to wait, and until when."""

from typing import Annotated

from fastapi import Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from app.auth.access import SettingsDep, database_of, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.events.preconditions import waiting
from app.events.preconditions.models import PreconditionRead, PreconditionRequest
from app.events.preconditions.question import check_request
from app.kit.http.routing import new_router
from app.kit.prefer import PreferHeader, wait_seconds
from app.kit.problems import problems
from app.stores.api import StoreId, read_row
from app.stores.rows import StoreKind
from app.stores.service import require_kind

router = new_router(tags=["events"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]


@router.post(
    "/v1/stores/{store_id}/events:precondition",
    response_model=PreconditionRead,
    summary="Ask whether a command of slonik may be submitted, or wait until it may",
    operation_id="evaluate_precondition",
    responses=problems(404, 409, 429, 502, 503),
)
async def post_precondition(
    store_id: StoreId,
    body: PreconditionRequest,
    request: Request,
    response: Response,
    caller: Reader,
    settings: SettingsDep,
    prefer: PreferHeader = None,
) -> PreconditionRead:
    """Asks every node of the cluster that is registered as a store; nothing is changed.

    With `Prefer: wait=N` it answers as soon as the command may be submitted, after N seconds at the latest:
    `met` says which. Ask again with `awaited` of the answer to go on with the same wait. Nothing of a wait is
    kept, and no lock is held: a client that goes away leaves nothing. A node that is not registered or does
    not answer leaves the precondition unmet.
    """
    wait_s = wait_seconds(prefer, default_s=0, max_s=settings.wait_max_s)
    check_request(body)
    store = await run_in_threadpool(read_row, database_of(request), store_id, caller)
    require_kind(store, StoreKind.SLONY)
    found = await waiting.answer(request, store, body, caller=caller, wait_s=wait_s)
    if wait_s:
        response.headers["Preference-Applied"] = f"wait={wait_s}"
    return found
