"""The health of a node of Slony-I, and of a whole cluster, for monitoring."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends, Query
from sqlmodel import col, select

from app.auth.access import DatabaseDep, SettingsDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.events.api import slony_store
from app.events.errors import ClusterNotFound
from app.events.health.models import SlonyHealthRead
from app.events.health.service import look
from app.events.nodes import NODES_MAX
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.stores.api import StoreId
from app.stores.models import StoreKind
from app.stores.rows import Store
from spark.formats.slony import CLUSTER_MAX_CHARS

router = new_router(tags=["events"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
ClusterName = Annotated[
    str, Query(min_length=1, max_length=CLUSTER_MAX_CHARS, description="The name that the stores have.")
]


@router.get(
    "/v1/stores/{store_id}/slony-health",
    response_model=SlonyHealthRead,
    summary="Whether a node of Slony-I is well",
    operation_id="get_node_health",
    responses=problems(404, 409),
)
def get_node_health(
    store_id: StoreId, caller: Reader, database: DatabaseDep, settings: SettingsDep
) -> SlonyHealthRead:
    """Asks the node now; nothing is written there. A node that cannot be asked is UNKNOWN, and no error.

    The limits are the store's parameters `health.*`. `/metrics` tells the last look.
    """
    store = slony_store(database, store_id, caller)
    return look(database, settings, [store], is_whole=False)


@router.get(
    "/v1/slony-health",
    response_model=SlonyHealthRead,
    summary="Whether a cluster of Slony-I is well",
    operation_id="get_cluster_health",
    responses=problems(404),
)
def get_cluster_health(
    cluster: ClusterName, caller: Reader, database: DatabaseDep, settings: SettingsDep
) -> SlonyHealthRead:
    """Asks all registered nodes of this cluster name at the same time; a node that does not answer is named.

    Only stores that the token may see are asked. Each fault is named once, with the nodes that see it.
    """
    visible = caller.visible_stores()
    stores = _stores_of(database, cluster, visible)
    if not stores:
        raise ClusterNotFound(f"no store of kind SLONY has the cluster {cluster!r}")
    return look(database, settings, stores, is_whole=visible is None)


def _stores_of(database: Database, cluster: str, visible: Sequence[str] | None) -> Sequence[Store]:
    query = select(Store).where(Store.kind == StoreKind.SLONY, Store.cluster == cluster)
    if visible is not None:
        query = query.where(col(Store.id).in_(visible))
    with database.reading() as db:
        return list(db.exec(query.order_by(col(Store.id)).limit(NODES_MAX)).all())
