"""Extinctions for tests: of one database, and their records as they travel."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark.formats.csn import Csn
from spark.formats.extinction import Extinction
from spark.formats.extinction_filter import Filter
from spark.replication.consumer.extinctions import write_extinction
from spark.replication.records import SessionMode, local_schema
from spark.replication.replica.local_write import (
    Expected,
    GroupWritten,
    LocalRequest,
    RequestKey,
    write_group,
)
from spark.replication.replica.replica import mark_restored
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Completion, complete_total, release
from spark.targets.connection import Connection
from tests.spark.replication.consumer_side import GENERATION, OWN_RID, SESSION, ConsumerSide, Row
from tests.spark.replication.replica_tables import NOW_S, csn

SOUND = Expected("inc_first", None)
ID = "ext_01k9x2m4c6d8e0f2g4h6j8k0mn"


def extinction(
    start: bytes | None = b"b", end: bytes | None = b"d", *, name: str = ID, found: Filter | None = None
) -> Extinction:
    """The keys from `start` to `end` of the database that all tests use."""
    return Extinction(name, frozenset([b"db"]), start, end, found, "old ones")


def record(at: Csn, prev: Csn | None, found: Extinction) -> Row:
    """An extinction as it travels."""
    return (at, prev, "EXTINCTION", b"", b"", found.to_json())


def local(rows: Sequence[tuple[bytes, bytes | None]], *, key: str | None = None) -> LocalRequest:
    """A request with changes of the database, (key, value)."""
    columns = [[b"db"] * len(rows), [name for name, _ in rows], [value for _, value in rows]]
    arrays = [pa.array(column, pa.binary()) for column in columns]
    batch = pa.RecordBatch.from_arrays(arrays, schema=local_schema())
    return LocalRequest(batch, None if key is None else RequestKey(key, "same"))


def write(conn: Connection, *requests: LocalRequest, expected: Expected = SOUND) -> GroupWritten:
    """A group of local writes."""
    return write_group(conn, requests, now_s=NOW_S, expected=expected)


def discard_beside_a_loss(side: ConsumerSide, origin: int, *, upto: Csn) -> str:
    """The CSN of an extinction whose record a discarding copy took, at a replica that stayed RESTORED."""
    if origin == OWN_RID:
        at = write_extinction(side.conn, extinction(), now_s=NOW_S, expected=SOUND)
    else:
        at, epoch = csn(1, 3), side.acquire().epoch
        side.apply([record(at, None, extinction())], epoch=epoch, seq=1)
        side.release(epoch=epoch)
    mark_restored(side.conn, upto=upto)
    ruv = {1: csn(5, 1)}
    epoch = side.acquire(mode=SessionMode.TOTAL, ruv=ruv, discard=True).epoch
    complete_total(side.conn, Ticket(SESSION, epoch), ruv=ruv, generation=GENERATION, now_s=NOW_S)
    completion = Completion("inc_second", lambda *_: None)
    release(side.conn, Ticket(SESSION, epoch), now_s=NOW_S, complete=completion)
    assert (side.status()[0], side.logged()) == ("RESTORED", [])
    return at
