"""Made by `make client` from lethe_client/entries.py: change that, not this."""

from collections.abc import AsyncIterator
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.entries import Entry, _entry, _EntryText
from lethe_client.feed_records import KeyChange, KeyChangeText, key_change_of, url64
from lethe_client.paths import resource
from lethe_client.transport import Call


class Entries:
    """`/v1/stores/{store}/entries`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self, store_id: str, database: bytes, key: bytes, *, tombstones: bool = False) -> Entry:
        """The entry of a key.

        Args:
            tombstones: show a deleted one too.
        Raises: NotFound: there is none, code ENTRY_NOT_FOUND. Conflict: the replica is being made anew.
        """
        path = resource("stores", store_id, "entries", url64(database), url64(key))
        call = Call(method="GET", path=path, params={"tombstones": tombstones}, repeatable=True)
        return _entry(decode(_EntryText, (await self._transport.request(call)).body))

    async def list(
        self,
        store_id: str,
        *,
        database: bytes | None = None,
        prefix: bytes | None = None,
        tombstones: bool = False,
    ) -> AsyncIterator[Entry]:
        """Entries in the order of database and key, byte by byte; each page is one moment.

        Args:
            prefix: with `database`: only keys that begin with it.
        """
        params: dict[str, Any] = {"tombstones": tombstones}
        if database is not None:
            params["database"] = url64(database)
        if prefix:
            params["prefix"] = url64(prefix)
        path = resource("stores", store_id, "entries")
        async for item in pages.items(self._transport, path, _EntryText, params=params):
            yield _entry(item)

    async def history(self, store_id: str, database: bytes, key: bytes) -> AsyncIterator[KeyChange]:
        """The changes of a key that the changelog holds, the greatest CSN first.

        Raises: NotFound, Conflict. A key without changes has none.
        """
        path = resource("stores", store_id, "entries", url64(database), url64(key), "history")
        async for item in pages.items(self._transport, path, KeyChangeText, params={}):
            yield key_change_of(item)
