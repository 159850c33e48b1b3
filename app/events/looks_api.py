"""`/v1/stores/{s}/node-state`: a node of Slony-I as its last check saw it."""

from typing import Annotated

from fastapi import Depends

from app.auth.access import DatabaseDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.events.api import slony_store
from app.events.looks import read_look
from app.events.models import NodeStateRead
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.stores.api import StoreId

router = new_router(tags=["events"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]


@router.get(
    "/v1/stores/{store_id}/node-state",
    response_model=NodeStateRead,
    summary="Get a node as its last check saw it",
    operation_id="get_node_state",
    responses=problems(404, 409),
)
def get_node_state(store_id: StoreId, caller: Reader, database: DatabaseDep) -> NodeStateRead:
    """Confirmations and log tables, kept by `:check` and checks that come by themselves; no node is asked.

    `GET confirmations` and `GET log-switches/status` ask the node now.
    """
    store = slony_store(database, store_id, caller)
    with database.reading() as db:
        return read_look(db, store)
