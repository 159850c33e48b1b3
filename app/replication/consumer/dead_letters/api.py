"""`GET /v1/stores/{s}/dead-letters`: records that a consumer refused, or that this replica did."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Query

from app.auth.access import DatabaseDep, SettingsDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken, decode_token, make_page
from app.kit.problems import problems
from app.replication.agreements.sessions.api import replica_store
from app.replication.consumer.dead_letters.models import DeadLetterRead
from app.replication.replica.refusals import NoReplicaYet
from app.replication.replica.replicas import opened_replica
from app.stores.api import StoreId
from spark.replication.dead_letters import DeadLetter, list_dead_letters

router = new_router(tags=["replication"])
Reader = Annotated[Caller, Depends(requires(Scope.DATA_READ))]


@router.get(
    "/v1/stores/{store_id}/dead-letters",
    response_model=Page[DeadLetterRead],
    summary="List refused records",
    operation_id="list_dead_letters",
    responses=problems(404, 409, 502),
)
def get_dead_letters(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    open_only: Annotated[bool, Query(description="Without those that were accepted since.")] = False,
) -> Page[DeadLetterRead]:
    """By direction, peer and CSN. Asks the target; a replica that has no tables yet has none."""
    store = replica_store(database, store_id, caller)
    filters = {"list": "dead-letters", "store": store_id, "open": open_only}
    key = decode_token(page_token, filters, types=[str, str, str])
    after = None if key is None else (key[0], key[1], key[2])
    rows: list[DeadLetter] = []
    try:
        with opened_replica(database, settings, store, purpose="read", create=False) as conn:
            rows = list_dead_letters(conn, rows_max=page_size + 1, after=after, open_only=open_only)
    except NoReplicaYet:
        rows = []
    return make_page(
        rows, page_size=page_size, filters=filters, key=lambda row: row.position, item=_read_letter
    )


def _read_letter(letter: DeadLetter) -> DeadLetterRead:
    refused = letter.refused
    database_bytes, key_bytes, payload_bytes = letter.sizes
    return DeadLetterRead(
        direction=letter.direction,
        peer=letter.peer,
        rid=refused.csn.rid,
        csn=refused.csn,
        kind=refused.kind,
        database=refused.database,
        key=refused.key,
        payload=refused.payload,
        database_bytes=database_bytes,
        key_bytes=key_bytes,
        payload_bytes=payload_bytes,
        code=refused.code,
        detail=refused.detail,
        attempts=letter.attempts,
        first_at=_instant(letter.first_at_s),
        last_at=_instant(letter.last_at_s),
        resolved_at=None if letter.resolved_at_s is None else _instant(letter.resolved_at_s),
    )


def _instant(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
