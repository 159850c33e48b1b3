"""Changes of a REPLICA store: written one by one or in blocks, and listed as its changelog."""

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lethe_client import pages
from lethe_client.change_feed import follow
from lethe_client.decoding import decode
from lethe_client.feed_records import (
    FeedChange,
    FeedPage,
    FeedPageText,
    Overwritten,
    OverwrittenText,
    Record,
    RecordText,
    overwritten_of,
    record_of,
    text64,
    url64,
)
from lethe_client.paths import resource
from lethe_client.results import Result
from lethe_client.transport import Call, Transport

NDJSON: Final = "application/x-ndjson"
BLOCK_CHANGES: Final = 10_000
BLOCK_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of a block as it is sent; the service takes 32 MiB by default."""
BLOCK_TIMEOUT_S: Final = 120.0
EARLIEST: Final = "earliest"
FEED_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Change:
    """What a key has from now on; `value` None deletes it.

    Attributes:
        if_csn: written only where the entry is at this CSN, or `none`: where there is none.
    """

    database: bytes
    key: bytes
    value: bytes | None
    if_csn: str | None = None


@dataclass(frozen=True, kw_only=True)
class Written(Result):
    """What was written; both CSNs are None where there was no change."""

    rid: int
    changes: int
    first_csn: str | None = None
    last_csn: str | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """One block of an import: its number from 1, and what became of it."""

    number: int
    written: Written


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
        if_csn: str | None = None,
        idempotency_key: str | None = None,
    ) -> Written:
        """Write one change; None deletes. The answer comes when it is durable.

        Args:
            if_csn: write only where the entry is at this CSN, or `none`: where there is none.
        Raises: PreconditionFailed, code CSN_MISMATCH: `document["current_csn"]` says what stands there.
        """
        body = _json_of(Change(database, key, value, if_csn))
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
        for item in pages.items(self._transport, path, RecordText, params={"rid": rid, "after": after}):
            yield record_of(item)

    def feed(
        self,
        store_id: str,
        cursor: str | None = None,
        *,
        starting: str = EARLIEST,
        wait_s: int = 0,
        database: bytes | None = None,
        prefix: bytes | None = None,
        page_size: int | None = None,
    ) -> FeedPage:
        """The changes that follow a cursor, of each replica id in the order of its CSNs.

        Keep `cursor` of the page together with what was made of its items: so each change counts once.

        Args:
            cursor: None: from `starting` on, `earliest`, `newest` or `latest`.
            wait_s: so long it waits for a first change, 60 at most.
            prefix: with `database`: only keys that begin with it.
        Raises: Gone, codes CURSOR_TRIMMED, CURSOR_PARTED, CURSOR_GENERATION; Conflict, code CURSOR_AHEAD:
            what follows the cursor is not all there. NotFound.
        """
        params = _feed_params(starting, database, prefix) | {"cursor": cursor, "page_size": page_size}
        call = Call(
            method="GET",
            path=resource("stores", store_id, "changes", "feed"),
            params=params,
            headers={"Prefer": f"wait={wait_s}"},
            repeatable=True,
            timeout_s=wait_s + FEED_TIMEOUT_S,
        )
        found = decode(FeedPageText, self._transport.request(call).body)
        items = tuple(record_of(item) for item in found.items)
        return FeedPage(items=items, cursor=found.cursor, more=found.more)

    def follow(
        self,
        store_id: str,
        cursor: str | None = None,
        *,
        starting: str = EARLIEST,
        database: bytes | None = None,
        prefix: bytes | None = None,
    ) -> Iterator[FeedChange]:
        """Yield each change once as it comes, over lost connections and restarts, without end.

        Args:
            cursor: of the last change that was taken; None: from `starting` on, `earliest`, `newest` or
                `latest`.
            prefix: with `database`: only keys that begin with it.
        Raises: as `feed`; TransportFailed: the service cannot be reached.
        """
        path = resource("stores", store_id, "changes", "feed")
        return follow(self._transport, path, _feed_params(starting, database, prefix), cursor=cursor)

    def overwritten(
        self,
        store_id: str,
        *,
        since: datetime | None = None,
        verdicts: Iterable[str] = (),
        database: bytes | None = None,
    ) -> Iterator[Overwritten]:
        """Changes that lost against one of another replica id, by the loser's CSN.

        Args:
            since: None: of the last day.
            verdicts: CONCURRENT, UNCERTAIN, SEEN; none: the first two.
        """
        params: dict[str, Any] = {"verdict": list(verdicts)}
        if since is not None:
            params["since"] = since.isoformat()
        if database is not None:
            params["database"] = url64(database)
        path = resource("stores", store_id, "changes", "overwritten")
        for item in pages.items(self._transport, path, OverwrittenText, params=params):
            yield overwritten_of(item)

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


def _feed_params(starting: str, database: bytes | None, prefix: bytes | None) -> dict[str, Any]:
    found: dict[str, Any] = {"starting": starting}
    if database is not None:
        found["database"] = url64(database)
    if prefix:
        found["prefix"] = url64(prefix)
    return found


def _json_of(change: Change) -> dict[str, Any]:
    value = None if change.value is None else text64(change.value)
    found = {"database": text64(change.database), "key": text64(change.key), "value": value}
    return found if change.if_csn is None else found | {"if_csn": change.if_csn}


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
