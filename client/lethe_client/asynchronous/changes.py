"""Made by `make client` from lethe_client/changes.py: change that, not this."""

import uuid
from collections.abc import AsyncIterator, Iterable

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.changes import (
    BLOCK_CHANGES,
    BLOCK_TIMEOUT_S,
    NDJSON,
    Block,
    Change,
    Record,
    Written,
    _blocks,
    _json_of,
    _line_of,
    _RecordText,
    bytes_of,
)
from lethe_client.decoding import decode
from lethe_client.paths import resource
from lethe_client.transport import Call


class Changes:
    """`/v1/stores/{store}/changes`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def put(
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
        return await self._written(call)

    async def write(
        self, store_id: str, changes: Iterable[Change], *, idempotency_key: str | None = None
    ) -> Written:
        """Write several in one request, in their order: all or none. Their number is bounded by the body."""
        lines = b"".join(_line_of(change) for change in changes)
        return await self._send(store_id, lines, idempotency_key)

    async def import_blocks(
        self,
        store_id: str,
        changes: Iterable[Change],
        *,
        label: str | None = None,
        block_changes: int = BLOCK_CHANGES,
    ) -> AsyncIterator[Block]:
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
            yield Block(number, await self._send(store_id, block, f"{name}-{number}"))

    async def list(
        self, store_id: str, *, rid: int | None = None, after: str | None = None
    ) -> AsyncIterator[Record]:
        """The records of the changelog in the order of RID and CSN."""
        path = resource("stores", store_id, "changes")
        async for item in pages.items(
            self._transport, path, _RecordText, params={"rid": rid, "after": after}
        ):
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

    async def _send(self, store_id: str, lines: bytes, idempotency_key: str | None) -> Written:
        call = Call(
            method="POST",
            path=resource("stores", store_id, "changes"),
            content=lines,
            headers={"Content-Type": NDJSON},
            creates=True,
            idempotency_key=idempotency_key,
            timeout_s=BLOCK_TIMEOUT_S,
        )
        return await self._written(call)

    async def _written(self, call: Call) -> Written:
        answer = await self._transport.request(call)
        replayed = "idempotency-replayed" in answer.headers
        return decode(Written, {**answer.body, "replayed": replayed})
