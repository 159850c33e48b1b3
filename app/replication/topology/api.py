"""`/v1/replication/topology`: every replica and every agreement in one answer."""

from typing import Annotated

from fastapi import Depends

from app.auth.access import ClockDep, DatabaseDep, SettingsDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.topology.models import TopologyRead
from app.replication.topology.service import read_topology

router = new_router(tags=["replication"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]


@router.get(
    "/v1/replication/topology",
    response_model=TopologyRead,
    summary="Look at all replicas and their agreements",
    operation_id="get_topology",
    responses=problems(),
)
def get_topology(
    caller: Reader, database: DatabaseDep, settings: SettingsDep, clock: ClockDep
) -> TopologyRead:
    """Nodes, agreements, lag by RID and the last session of each, as far as the token sees their stores.

    Suppliers are looked at, consumers are not asked. A supplier that cannot be read has `target_code`.
    """
    return read_topology(database, settings, visible=caller.visible_stores(), now=clock.now())
