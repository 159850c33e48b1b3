"""`/v1/stores/{s}/backlog`: what waits to be delivered by SymmetricDS, and whether it grows."""

from typing import Annotated

from fastapi import Depends, Query

from app.auth.access import DatabaseDep, SettingsDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.kit.values import Instant, Text
from app.parameters.service import global_values
from app.purge.backlog.known import require_known
from app.purge.backlog.models import BacklogRead
from app.purge.backlog.service import backlog_of, limits_of, look_of
from app.stores.api import StoreId, read_row
from app.stores.models import StoreKind
from app.stores.service import require_kind

router = new_router(tags=["purges"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
NODE_MAX_CHARS = 128
Node = Annotated[Text | None, Query(max_length=NODE_MAX_CHARS, description="Only what waits for this node.")]
Channel = Annotated[Text | None, Query(max_length=NODE_MAX_CHARS, description="Only of this channel.")]
Since = Annotated[
    Instant | None,
    Query(description="List looks from then on; left out: those of the last day. 31 days are kept."),
]


@router.get(
    "/v1/stores/{store_id}/backlog",
    response_model=BacklogRead,
    summary="What waits to be delivered, and whether it grows",
    operation_id="get_backlog",
    responses=problems(404, 409),
)
def get_backlog(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
    node: Node = None,
    channel: Channel = None,
    since: Since = None,
) -> BacklogRead:
    """As checks of the store have seen it, once in `backlog.period`; no target is asked.

    `POST :check` looks now, where the last look is that old. A node or channel that the look found nowhere is
    404 NODE_NOT_FOUND or CHANNEL_NOT_FOUND.
    """
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.SYMMETRICDS)
    with database.reading() as db:
        limits = limits_of(db, store, global_values(db), settings)
        now = database.now(db)
        look = look_of(db, store)
        require_known(look, node=node, channel=channel, prefix=store.table_prefix, now=now)
        return backlog_of(db, store, limits, node=node, channel=channel, since=since, now=now)
