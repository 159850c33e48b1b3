"""`POST /v1/stores/{s}/changes`: local writes, one or many, in groups."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, cast

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from app.auth.access import database_of, requires, settings_of
from app.auth.mutation import IdempotencyKeyHeader, idempotency_key_of
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import InvalidJson, TooLarge, Unprocessable, UnsupportedMediaType
from app.kit.http.routing import new_router
from app.kit.json_bodies import TwiceNamed, loads
from app.kit.problems import problems
from app.replication.replica.grouping import ChangeWriters, Waiting, Writer
from app.replication.replica.models import ChangesWrite, ChangesWritten, ChangeWrite, base64_text
from app.settings import Settings
from app.stores.api import StoreId, read_row
from app.stores.rows import StoreKind
from app.stores.service import require_kind
from spark.formats.arrow import pa
from spark.formats.changes.batch import (
    ARROW_MEDIA_TYPE,
    NDJSON_MEDIA_TYPE,
    BatchTooLarge,
    BatchUnreadable,
    decode_arrow,
    decode_ndjson,
)
from spark.formats.csn import Csn, CsnInvalid
from spark.replication.records import local_schema, write_schema
from spark.replication.replica.conditions import NONE, conditions_of
from spark.replication.replica.local_write import LocalRequest, RequestKey

router = new_router(tags=["replication"])
ChangesWriter = Annotated[Caller, Depends(requires(Scope.CHANGES_WRITE))]

JSON_MEDIA_TYPE: Final = "application/json"
ROWS_MAX: Final = 1_000_000
IF_CSN: Final = "if_csn"


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """A model's schema with nothing beside it; those of a body that is read here are in no component."""
    found = model.model_json_schema()
    definitions = found.pop("$defs", {})
    text = json.dumps(found)
    for name, definition in definitions.items():
        text = text.replace(json.dumps({"$ref": f"#/$defs/{name}"}), json.dumps(definition))
    return cast(dict[str, Any], json.loads(text))


_LINE: Final = '{"database":"b3JkZXJz","key":"MTAwMQ==","value":null}\n'
_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        JSON_MEDIA_TYPE: {"schema": {"oneOf": [_schema(ChangeWrite), _schema(ChangesWrite)]}},
        NDJSON_MEDIA_TYPE: {
            "schema": {
                "type": "string",
                "description": "A change on each line. All are written, or none.",
            },
            "example": _LINE,
        },
        ARROW_MEDIA_TYPE: {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "An Arrow IPC stream with the columns database and key (binary), value"
                " (binary, null deletes), and if_csn (text) where a change depends on it; buffers may be"
                " compressed. All rows are written, or none.",
            },
            "example": "(Arrow IPC stream)",
        },
    },
}
_BODY["content"][JSON_MEDIA_TYPE]["examples"] = {
    "one": {"summary": "One change", "value": ChangeWrite.model_json_schema()["examples"][0]},
    "many": {"summary": "Several, together", "value": ChangesWrite.model_json_schema()["examples"][0]},
}


def writers_of(request: Request) -> ChangeWriters:
    """The groups of this application."""
    return cast(ChangeWriters, request.app.state.change_writers)


@router.post(
    "/v1/stores/{store_id}/changes",
    response_model=ChangesWritten,
    summary="Write changes",
    operation_id="write_changes",
    responses=problems(404, 409, 412, 415, 502),
    openapi_extra={"requestBody": _BODY},
)
async def post_changes(
    store_id: StoreId,
    request: Request,
    caller: ChangesWriter,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Each change gets a CSN of this replica; the answer comes when all are durable, or none is.

    Requests of several writers share a transaction. An Idempotency-Key lies with the changes at the target:
    a repeated request writes nothing and answers the same for 7 days, also after a crash. A change with
    `if_csn` is written only where its entry is at that CSN; else 412 CSN_MISMATCH, and nothing is written.
    """
    caller.require_store(store_id)
    writers = writers_of(request)
    with writers.admitted(_announced_bytes(request)):
        body = await request.body()
        media_type = request.headers.get("content-type", JSON_MEDIA_TYPE).partition(";")[0].strip().lower()
        read = partial(_read_batch, media_type, body, settings_of(request))
        answer = written(request, caller, store_id, read, media_type=media_type, body=body)
        del body, read
        return await answer


async def written(
    request: Request,
    caller: Caller,
    store_id: str,
    read: Callable[[], pa.RecordBatch],
    *,
    media_type: str = JSON_MEDIA_TYPE,
    body: bytes = b"",
) -> Response:
    """Hand changes to the writer of their store, and answer when they are durable.

    Args:
        read: gives them, of write_schema(); called once the store is known to be a replica.
        body: as it came, where it is not JSON: an Idempotency-Key is compared by it.
    Raises: ServiceError: nothing of them was written, or nobody knows.
    """
    writers = writers_of(request)
    with writers.arriving(store_id):
        rid, waiting = await run_in_threadpool(_waiting, request, caller, store_id, read, media_type, body)
        del read, body
        writers.submit(store_id, waiting)
    done = await asyncio.wrap_future(waiting.answer)
    found = ChangesWritten(rid=rid, changes=done.changes, first_csn=done.first_csn, last_csn=done.last_csn)
    headers = {"Idempotency-Replayed": "true"} if done.replayed else {}
    return JSONResponse(found.model_dump(mode="json"), headers=headers)


def _announced_bytes(request: Request) -> int:
    """How large the body says it will be; one that does not say may become as large as any."""
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isdigit() else settings_of(request).replication_bulk_max_bytes


def _waiting(
    request: Request,
    caller: Caller,
    store_id: str,
    read: Callable[[], pa.RecordBatch],
    media_type: str,
    body: bytes,
) -> tuple[int, Waiting]:
    """The store's RID, and the request as its group takes it.

    Raises: ServiceError: the store is not there or of another kind, or the body is not right.
    """
    key = idempotency_key_of(request)
    store = read_row(database_of(request), store_id, caller)
    require_kind(store, StoreKind.REPLICA)
    assert store.rid is not None, "a store of kind REPLICA has a RID"
    batch = read()
    found = None
    if key is not None:
        found = RequestKey(key=f"{caller.token_id}:{key}", fingerprint=_fingerprint(media_type, body, batch))
    writer = Writer(caller.token_id, caller.name, request.state.request_id)
    return store.rid, Waiting(_request_of(batch, found), writer)


def _request_of(batch: pa.RecordBatch, key: RequestKey | None) -> LocalRequest:
    """The changes of a batch of write_schema(), and what they depend on.

    Raises: Unprocessable: an `if_csn` is neither a CSN nor `none`.
    """
    conditions = conditions_of(batch.column(IF_CSN))
    for one in conditions:
        if one.csn is not None:
            try:
                Csn(one.csn)
            except CsnInvalid as error:
                detail = f"if_csn of change {one.row} is neither a CSN nor `{NONE}`: {error.detail}"
                wrong = BatchUnreadable(detail)
                raise Unprocessable(wrong.detail, code=wrong.code) from error
    return LocalRequest(batch.select(local_schema().names), key, conditions)


def _read_batch(media_type: str, body: bytes, settings: Settings) -> pa.RecordBatch:
    """The changes of a body, of write_schema(), in their order."""
    if media_type == JSON_MEDIA_TYPE:
        return batch_of(_read_json(body))
    read = {NDJSON_MEDIA_TYPE: decode_ndjson, ARROW_MEDIA_TYPE: decode_arrow}.get(media_type)
    if read is None:
        known = f"{JSON_MEDIA_TYPE}, {NDJSON_MEDIA_TYPE} or {ARROW_MEDIA_TYPE}"
        raise UnsupportedMediaType(f"changes come as {known}")
    try:
        return read(body, write_schema(), rows_max=ROWS_MAX, bytes_max=settings.replication_bulk_max_bytes)
    except BatchUnreadable as error:
        raise Unprocessable(error.detail, code=error.code) from error
    except BatchTooLarge as error:
        raise TooLarge(error.detail, code=error.code) from error


def _read_json(body: bytes) -> list[ChangeWrite]:
    try:
        found = loads(body)
    except TwiceNamed as error:
        raise InvalidJson(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise InvalidJson("the body is not valid JSON") from error
    model = ChangesWrite if isinstance(found, Mapping) and "changes" in found else ChangeWrite
    try:
        read = model.model_validate(found)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)]
        raise RequestValidationError(faults) from error
    return read.changes if isinstance(read, ChangesWrite) else [read]


def batch_of(changes: list[ChangeWrite]) -> pa.RecordBatch:
    """Changes as columns of write_schema()."""
    names = write_schema().names
    columns = {name: [getattr(change, name) for change in changes] for name in names}
    return pa.RecordBatch.from_pydict(columns, schema=write_schema())


def _fingerprint(media_type: str, body: bytes, batch: pa.RecordBatch) -> str:
    """What makes two requests the same; of JSON its values, of the others their bytes."""
    if media_type != JSON_MEDIA_TYPE:
        return hashlib.sha256(f"{media_type}\n".encode() + body).hexdigest()
    rows = [
        # What depends on nothing has the fingerprint that it had before there were conditions.
        [None if row[name] is None else base64_text(row[name]) for name in local_schema().names]
        + ([] if row[IF_CSN] is None else [row[IF_CSN]])
        for row in batch.to_pylist()
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
