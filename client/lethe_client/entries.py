"""Entries of a REPLICA store: the newest state of each key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.feed_records import KeyChange, KeyChangeText, bytes_of, key_change_of, url64
from lethe_client.paths import resource
from lethe_client.results import Result
from lethe_client.transport import Call, Transport


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The newest state of a key; a tombstone has no value. `rid` is the replica that made the change."""

    database: bytes
    key: bytes
    value: bytes | None
    csn: str
    rid: int
    is_tombstone: bool
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class _EntryText(Result):
    database: str
    key: str
    csn: str
    rid: int
    value: str | None = None
    is_tombstone: bool = False


def _entry(found: _EntryText) -> Entry:
    return Entry(
        database=bytes_of(found.database),
        key=bytes_of(found.key),
        value=None if found.value is None else bytes_of(found.value),
        csn=found.csn,
        rid=found.rid,
        is_tombstone=found.is_tombstone,
        raw=found.raw,
    )


class Entries:
    """`/v1/stores/{store}/entries`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, store_id: str, database: bytes, key: bytes, *, tombstones: bool = False) -> Entry:
        """The entry of a key.

        Args:
            tombstones: show a deleted one too.
        Raises: NotFound: there is none, code ENTRY_NOT_FOUND. Conflict: the replica is being made anew.
        """
        path = resource("stores", store_id, "entries", url64(database), url64(key))
        call = Call(method="GET", path=path, params={"tombstones": tombstones}, repeatable=True)
        return _entry(decode(_EntryText, self._transport.request(call).body))

    def list(
        self,
        store_id: str,
        *,
        database: bytes | None = None,
        prefix: bytes | None = None,
        tombstones: bool = False,
    ) -> Iterator[Entry]:
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
        for item in pages.items(self._transport, path, _EntryText, params=params):
            yield _entry(item)

    def history(self, store_id: str, database: bytes, key: bytes) -> Iterator[KeyChange]:
        """The changes of a key that the changelog holds, the greatest CSN first.

        Raises: NotFound, Conflict. A key without changes has none.
        """
        path = resource("stores", store_id, "entries", url64(database), url64(key), "history")
        for item in pages.items(self._transport, path, KeyChangeText, params={}):
            yield key_change_of(item)
