"""A page of a replica's change feed: what is asked for, and what the replica has of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from app.db import Database
from app.errors import InvalidRequest
from app.replication.feed.refusals import cursor_refusal
from app.replication.replica.models import ChangeRead
from app.replication.replica.refusals import NoReplicaYet, ReplicaInitializing
from app.replication.replica.replicas import opened_replica
from app.settings import Settings
from app.stores.rows import Store
from spark.formats.arrow import pa
from spark.formats.changes.batch import encode_arrow
from spark.replication.feed.errors import CursorAhead, CursorRefused
from spark.replication.feed.position import Position, PositionUnreadable
from spark.replication.feed.reading import FeedPage, FeedRecord, Keys, Starting, read_feed
from spark.replication.replica.history import history_schema

PAGE_MAX_BYTES: Final = 4_194_304
STREAM_MAX_BYTES: Final = 262_144
"""Of a page of a stream: each of many slow readers may hold one."""
Start = Position | Starting


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reader wants of which replica, a page at a time."""

    store: Store
    keys: Keys | None
    rows_max: int
    bytes_max: int = PAGE_MAX_BYTES

    def read(self, database: Database, settings: Settings, start: Start) -> FeedPage:
        """Read what follows a position now.

        Raises: Gone, Conflict: as `cursor_refusal` says; ReplicaInitializing, and as `opened_replica`.
        """
        try:
            with opened_replica(database, settings, self.store, purpose="read", create=False) as conn:
                try:
                    found = read_feed(
                        conn, start, keys=self.keys, rows_max=self.rows_max, bytes_max=self.bytes_max
                    )
                except CursorRefused as error:
                    raise cursor_refusal(error) from error
        except NoReplicaYet:
            found = _of_nothing(start)
        if found.is_initializing:
            raise ReplicaInitializing("a total initialisation is under way: what is there is not complete")
        return found


def start_of(cursor: str, starting: Starting, *, pointer: str) -> Start:
    """Where a reader begins.

    Raises: InvalidRequest: the cursor is none.
    """
    if not cursor:
        return starting
    try:
        return Position.of(cursor)
    except PositionUnreadable as error:
        detail = f"no cursor of a change feed: {error}; send one exactly as it was given"
        errors = [{"pointer": pointer, "detail": detail}]
        raise InvalidRequest("1 field(s) are not valid", errors=errors) from error


def _of_nothing(start: Start) -> FeedPage:
    """A replica that was never written to has no changes; whoever has some of it is ahead."""
    begin = start if isinstance(start, Position) else Position()
    if begin.places:
        raise cursor_refusal(
            CursorAhead("the cursor has changes, and the target holds no replica", sorted(begin.places))
        )
    return FeedPage(begin, begin)


def shown(record: FeedRecord) -> ChangeRead:
    """A record as lists of the changelog show it."""
    return ChangeRead(
        rid=record.rid,
        csn=record.csn,
        prev=record.prev,
        kind=record.kind,
        database=record.database,
        key=record.key,
        payload=record.payload,
        logged_at=datetime.fromtimestamp(record.logged_at_s, UTC),
    )


def encode_records(records: Sequence[FeedRecord]) -> bytes:
    """An Arrow IPC stream of history_schema()."""
    names = history_schema().names
    columns = [[getattr(record, name) for record in records] for name in names]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, history_schema(), strict=True)]
    return encode_arrow(pa.RecordBatch.from_arrays(arrays, schema=history_schema()))
