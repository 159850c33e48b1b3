"""Changes of a REPLICA store: written one by one or in blocks, and listed as its changelog."""

import base64
import binascii
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.errors import UnexpectedAnswer
from lethe_client.paths import resource
from lethe_client.results import Result
from lethe_client.transport import Call, Transport

NDJSON: Final = "application/x-ndjson"
BLOCK_CHANGES: Final = 10_000
BLOCK_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of a block as it is sent; the service takes 32 MiB by default."""
BLOCK_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Change:
    """What a key has from now on; `value` None deletes it."""

    database: bytes
    key: bytes
    value: bytes | None


@dataclass(frozen=True, kw_only=True)
class Written(Result):
    """What was written; both CSNs are None where there was no change."""

    rid: int
    changes: int
    first_csn: str | None = None
    last_csn: str | None = None
    replayed: bool = False


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record of the changelog; of a CHANGE `payload` is the value, None where it deletes."""

    rid: int
    csn: str
    prev: str | None
    kind: str
    database: bytes
    key: bytes
    payload: bytes | None
    logged_at: datetime
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class _RecordText(Result):
    rid: int
    csn: str
    kind: str
    database: str
    key: str
    logged_at: datetime
    prev: str | None = None
    payload: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One block of an import: its number from 1, and what became of it."""

    number: int
    written: Written


def text64(value: bytes) -> str:
    """Bytes as bodies have them."""
    return base64.b64encode(value).decode()


def bytes_of(text: str) -> bytes:
    """Bytes that an answer has in base64.

    Raises: UnexpectedAnswer.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UnexpectedAnswer(f"no base64: {text[:80]!r}") from None


class Changes:
    """`/v1/stores/{store}/changes`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def put(
        self,
        store_id: str,
        database: bytes,
        key: bytes,
        value: bytes | None,
        *,
        idempotency_key: str | None = None,
    ) -> Written:
        """Write one change; None deletes. The answer comes when it is durable."""
        body = _json_of(Change(database, key, value))
        call = Call(
            method="POST",
            path=resource("stores", store_id, "changes"),
            json=body,
            creates=True,
            idempotency_key=idempotency_key,
        )
        return self._written(call)

    def write(
        self, store_id: str, changes: Iterable[Change], *, idempotency_key: str | None = None
    ) -> Written:
        """Write several in one request, in their order: all or none. Their number is bounded by the body."""
        lines = b"".join(_line_of(change) for change in changes)
        return self._send(store_id, lines, idempotency_key)

    def import_blocks(
        self,
        store_id: str,
        changes: Iterable[Change],
        *,
        label: str | None = None,
        block_changes: int = BLOCK_CHANGES,
    ) -> Iterator[Block]:
        """Write any number in blocks, each all or none; yields each block when it is durable.

        Each block has an Idempotency-Key of the label and its number: the same changes with the same label
        and block size again, within 7 days, write only what was not written yet.

        Args:
            label: None: one that nobody has used.
            block_changes: at most so many in a block, and at most 16 MiB.
        Raises: RequestInvalid, code IDEMPOTENCY_KEY_REUSED: other changes were imported under the label.
        """
        name = label or uuid.uuid4().hex
        for number, block in enumerate(_blocks(changes, block_changes), start=1):
            yield Block(number, self._send(store_id, block, f"{name}-{number}"))

    def list(self, store_id: str, *, rid: int | None = None, after: str | None = None) -> Iterator[Record]:
        """The records of the changelog in the order of RID and CSN."""
        path = resource("stores", store_id, "changes")
        for item in pages.items(self._transport, path, _RecordText, params={"rid": rid, "after": after}):
            yield Record(
                rid=item.rid,
                csn=item.csn,
                prev=item.prev,
                kind=item.kind,
                database=bytes_of(item.database),
                key=bytes_of(item.key),
                payload=None if item.payload is None else bytes_of(item.payload),
                logged_at=item.logged_at,
                raw=item.raw,
            )

    def _send(self, store_id: str, lines: bytes, idempotency_key: str | None) -> Written:
        call = Call(
            method="POST",
            path=resource("stores", store_id, "changes"),
            content=lines,
            headers={"Content-Type": NDJSON},
            creates=True,
            idempotency_key=idempotency_key,
            timeout_s=BLOCK_TIMEOUT_S,
        )
        return self._written(call)

    def _written(self, call: Call) -> Written:
        answer = self._transport.request(call)
        replayed = "idempotency-replayed" in answer.headers
        return decode(Written, {**answer.body, "replayed": replayed})


def _json_of(change: Change) -> dict[str, Any]:
    value = None if change.value is None else text64(change.value)
    return {"database": text64(change.database), "key": text64(change.key), "value": value}


def _line_of(change: Change) -> bytes:
    return json.dumps(_json_of(change), separators=(",", ":")).encode() + b"\n"


def _blocks(changes: Iterable[Change], block_changes: int) -> Iterator[bytes]:
    lines: list[bytes] = []
    size = 0
    for change in changes:
        line = _line_of(change)
        if lines and (len(lines) >= block_changes or size + len(line) > BLOCK_MAX_BYTES):
            yield b"".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield b"".join(lines)
