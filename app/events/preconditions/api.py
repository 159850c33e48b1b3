"""`/v1/stores/{s}/events:precondition`: whether slonik's command would have to wait."""

from typing import Annotated

from fastapi import Depends

from app.auth.access import DatabaseDep, SettingsDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.events.preconditions.models import PreconditionRead, PreconditionRequest
from app.events.preconditions.service import check_request, evaluate
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.stores.api import StoreId, read_row
from app.stores.rows import StoreKind
from app.stores.service import require_kind

router = new_router(tags=["events"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]


@router.post(
    "/v1/stores/{store_id}/events:precondition",
    response_model=PreconditionRead,
    summary="Ask whether a command of slonik may be submitted",
    operation_id="evaluate_precondition",
    responses=problems(404, 409, 502, 503),
)
def post_precondition(
    store_id: StoreId,
    body: PreconditionRequest,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
) -> PreconditionRead:
    """Asks every node of the cluster that is registered as a store; nothing is changed, and nothing waits.

    A node that is not registered or does not answer leaves the precondition unmet.
    """
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.SLONY)
    check_request(body)
    return evaluate(database, settings, store, body, caller=caller)
