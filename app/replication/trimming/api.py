"""`/v1/stores/{s}/purges/recurring`: the trimming that Lethe submits by itself."""

from typing import Annotated

from fastapi import Depends

from app.auth.access import ClockDep, DatabaseDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.trimming.tick import TrimTickRead, read_tick
from app.stores.api import StoreId, read_row
from app.stores.models import StoreKind
from app.stores.service import require_kind

router = new_router(tags=["replication"])
StoreReader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]


@router.get(
    "/v1/stores/{store_id}/purges/recurring",
    response_model=TrimTickRead | None,
    summary="Get the trimming that Lethe submits by itself",
    operation_id="get_recurring_trimming",
    responses=problems(404, 409),
)
def get_recurring(
    store_id: StoreId, caller: StoreReader, database: DatabaseDep, clock: ClockDep
) -> TrimTickRead | None:
    """Of a REPLICA store: when the next one comes, and what became of the last; null: it is off.

    The recurring purges of a SYMMETRICDS store stand in its `purge-stats`.
    """
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.REPLICA)
    with database.reading() as db:
        return read_tick(db, store, now=clock.now())
