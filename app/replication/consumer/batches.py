"""The body of a batch: read within its bound, and told apart as changes or as entries of a copy."""

from __future__ import annotations

import json

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from app.errors import UnsupportedMediaType
from app.replication.peer.content_digest import HEADER, require_digest
from app.settings import Settings
from spark.formats.arrow import pa
from spark.formats.changes.batch import (
    ARROW_MEDIA_TYPE,
    NDJSON_MEDIA_TYPE,
    decode_arrow,
    decode_ndjson,
)
from spark.formats.changes.json_form import LINE_MAX_BYTES
from spark.formats.csn import Csn
from spark.replication.entry_batches import bound_in
from spark.replication.proofs.proved_batches import proof_in
from spark.replication.proofs.values import BatchProof
from spark.replication.records import entry_schema, record_schema

_ENTRIES_ONLY = "is_tombstone"


def media_type_of(request: Request) -> str:
    """How the body is written, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request) -> bytes:
    """The body as it arrived and was sent; its bound is that of its path.

    Raises: BodyDamaged.
    """
    body = b"".join([part async for part in request.stream()])
    await run_in_threadpool(require_digest, request.headers.get(HEADER), body)
    return body


def read_batch(body: bytes, media_type: str, settings: Settings) -> tuple[pa.RecordBatch, BatchProof | None]:
    """Read a batch, and the proof beside its records.

    Raises: UnsupportedMediaType, BatchUnreadable, BatchTooLarge.
    """
    batch = decode_batch(body, media_type, settings)
    has_proof = media_type == ARROW_MEDIA_TYPE and batch.schema == record_schema()
    return batch, proof_in(body) if has_proof else None


def bound_of(body: bytes, media_type: str) -> Csn | None:
    """Up to where tombstones may be missing among the entries of a body that was read.

    Raises: BatchUnreadable.
    """
    return bound_in(body) if media_type == ARROW_MEDIA_TYPE else None


def decode_batch(body: bytes, media_type: str, settings: Settings) -> pa.RecordBatch:
    """Read a batch of record_schema(), or of entry_schema() where it has that one's columns.

    Raises: UnsupportedMediaType, BatchUnreadable, BatchTooLarge.
    """
    limits = {
        "rows_max": settings.replication_batch_rows,
        "bytes_max": settings.replication_batch_max_bytes,
    }
    if media_type == ARROW_MEDIA_TYPE:
        return decode_arrow(body, _schema_of(_arrow_names(body)), **limits)
    if media_type == NDJSON_MEDIA_TYPE:
        return decode_ndjson(body, _schema_of(_ndjson_names(body)), **limits)
    raise UnsupportedMediaType(f"a batch is {ARROW_MEDIA_TYPE} or {NDJSON_MEDIA_TYPE}")


def _schema_of(names: list[str]) -> pa.Schema:
    return entry_schema() if _ENTRIES_ONLY in names else record_schema()


def _arrow_names(body: bytes) -> list[str]:
    """What cannot be read is the decoder's to complain of."""
    try:
        with pa.ipc.open_stream(body) as reader:
            return list(reader.schema.names)
    except (pa.ArrowException, OSError, EOFError, ValueError):
        return []


def _ndjson_names(body: bytes) -> list[str]:
    line = body.lstrip()[:LINE_MAX_BYTES].partition(b"\n")[0]
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(found) if isinstance(found, dict) else []
