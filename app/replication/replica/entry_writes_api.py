"""PUT and DELETE of `/v1/stores/{s}/entries/{database}/{key}`: one change, named by its key."""

from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.responses import Response

from app.auth.access import requires
from app.auth.mutation import IdempotencyKeyHeader
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.replica.changes_api import batch_of, writers_of, written
from app.replication.replica.entries_api import Base64Path, bytes_in
from app.replication.replica.models import ENTRY_BODY_MAX_BYTES, ChangesWritten, ChangeWrite, EntryWrite
from app.stores.api import StoreId
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES
from spark.replication.replica.conditions import NONE

router = new_router(tags=["replication"])
ChangesWriter = Annotated[Caller, Depends(requires(Scope.CHANGES_WRITE))]


@router.put(
    "/v1/stores/{store_id}/entries/{database}/{key}",
    response_model=ChangesWritten,
    summary="Write an entry",
    operation_id="put_entry",
    responses=problems(404, 409, 412, 502),
)
async def put_entry(
    store_id: StoreId,
    database: Base64Path,
    key: Base64Path,
    body: EntryWrite,
    request: Request,
    caller: ChangesWriter,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """One change; the answer comes when it is durable. With `if_csn` only where the entry is at that CSN."""
    return await _write(request, caller, store_id, _change(database, key, body.value, body.if_csn))


@router.delete(
    "/v1/stores/{store_id}/entries/{database}/{key}",
    response_model=ChangesWritten,
    summary="Delete an entry",
    operation_id="delete_entry",
    responses=problems(404, 409, 412, 502),
)
async def delete_entry(
    store_id: StoreId,
    database: Base64Path,
    key: Base64Path,
    request: Request,
    caller: ChangesWriter,
    if_csn: Annotated[
        str | None,
        Query(
            pattern=f"^({NONE}|[0-9a-f]{{20}})$", description="Delete only where the entry is at this CSN."
        ),
    ] = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """One change, which leaves a tombstone; the answer comes when it is durable."""
    return await _write(request, caller, store_id, _change(database, key, None, if_csn))


def _change(database: str, key: str, value: bytes | None, if_csn: str | None) -> ChangeWrite:
    return ChangeWrite.model_construct(
        database=bytes_in(database, "path:database", most=DATABASE_MAX_BYTES),
        key=bytes_in(key, "path:key", most=KEY_MAX_BYTES),
        value=value,
        if_csn=if_csn,
    )


async def _write(request: Request, caller: Caller, store_id: str, change: ChangeWrite) -> Response:
    caller.require_store(store_id)
    with writers_of(request).admitted(ENTRY_BODY_MAX_BYTES):
        return await written(request, caller, store_id, lambda: batch_of([change]))
