"""What a session reads: the batches of windows, or CLASSIC's buffers, over a connection of their own.

The pipeline's reader reads; the job's thread opens the source before, and takes its counts after the reader
has ended.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa

from app.replication.replica.replicas import replica_limits
from app.replication.supplier.batches import Outgoing, at_most, without
from app.replication.supplier.ground import Ground
from app.replication.supplier.lease import Lease, consumer_side
from app.replication.supplier.record import Record
from app.stores.targets import target_of
from spark.formats.part import Part
from spark.replication.proofs.proved_batches import encode_with
from spark.replication.proofs.shown_proofs import proof_of
from spark.replication.records import Snapshot
from spark.replication.supplier.classic import ClassicReader
from spark.replication.supplier.decide import Anchor, Outcome, Supplier, Window
from spark.replication.supplier.skip import Verdict
from spark.replication.supplier.slices import ranges_of
from spark.replication.supplier.window import WindowReader
from spark.targets.connection import Connection, connect
from spark.targets.silence import application_name

UNIT_NAME: Final = "window"


class Source(Protocol):
    """Batches of a session."""

    def batches(self, rows_max: int | None) -> Iterator[Outgoing]:
        """Read them, up to a number of changes; the reader's thread."""

    def count_into(self, record: Record) -> None:
        """Add what was read to the session's counters, once, when the reader has ended."""


@contextmanager
def reading_connection(ground: Ground) -> Iterator[Connection]:
    """A connection that only reads; cancelled with the job."""
    context = ground.context
    name = application_name(context.job.id, UNIT_NAME, context.job.token)
    limits = replica_limits(context.settings)
    with connect(
        target_of(ground.store, context.settings, context.database),
        application_name=name,
        limits=limits,
        read_only=True,
    ) as conn:
        forget = context.on_cancel(lambda: conn.cancel())
        try:
            yield conn
        finally:
            forget()


def batch_bounds(ground: Ground, lease: Lease) -> tuple[int, int]:
    """Rows and bytes of a batch: what the agreement says, within what the consumer takes."""
    params, limits = ground.params, lease.acquired.limits
    return min(params.batch_rows, limits.batch_rows), min(params.batch_bytes, limits.batch_bytes)


def outgoing(conn: Connection, batch: pa.RecordBatch) -> Outgoing:
    """A batch of records as it is sent, with its proof."""
    proof = proof_of(conn, batch)
    return Outgoing(
        rows=batch.num_rows,
        ranges=ranges_of(batch),
        encode=partial(encode_with, batch, proof),
        records=lambda: batch,
    )


class WindowSource:
    """WINDOW: the changes of each window once, in the order of all their CSNs."""

    def __init__(
        self,
        conn: Connection,
        windows: Mapping[int, Window],
        *,
        rows_max: int,
        bytes_max: int,
        part: Part | None,
    ) -> None:
        self._conn = conn
        self._reader = WindowReader(conn, windows, rows_max=rows_max, bytes_max=bytes_max, part=part)

    def batches(self, rows_max: int | None) -> Iterator[Outgoing]:
        """Read them."""
        for batch in at_most(self._reader, rows_max):
            yield outgoing(self._conn, batch)

    def count_into(self, record: Record) -> None:
        """Every row that was read is one that is sent."""
        for rid, rows in self._reader.read.items():
            record.count(rid).read += rows
        record.row.rows_read += self._reader.rows_read


class ClassicSource:
    """CLASSIC: buffer after buffer from an anchor, each decided anew; what the skip rules leave.

    Args:
        look: gives a snapshot over the reader's connection.
        halted: replica ids whose records are left out.
    """

    def __init__(
        self,
        conn: Connection,
        ground: Ground,
        lease: Lease,
        *,
        look: Callable[[Connection], Snapshot],
        halted: Collection[int],
        rows_max: int,
        bytes_max: int,
    ) -> None:
        self._conn = conn
        self._ground = ground
        self._lease = lease
        self._look = look
        self._halted = frozenset(halted)
        self._reader = ClassicReader(conn, rows_max=rows_max, bytes_max=bytes_max, part=ground.part)
        self._anchors: list[dict[str, Any]] = []

    def batches(self, rows_max: int | None) -> Iterator[Outgoing]:
        """Load until nothing is missing, by what was picked; whether it arrived is asked after it."""
        for batch in at_most(self._loads(), rows_max):
            yield outgoing(self._conn, batch)

    def _loads(self) -> Iterator[pa.RecordBatch]:
        while True:
            seen = self._look(self._conn)
            vectors = seen.vectors
            # A halted replica is one that nothing is known of: CLASSIC never ends where it waits for one.
            ruv = {rid: csn for rid, csn in vectors.ruv.items() if rid not in self._halted}
            supplier = Supplier(ruv, vectors.min, vectors.purged, seen.replica.generation)
            load = self._reader.next_load(supplier, consumer_side(self._ground, self._lease))
            if load.decision.outcome is not Outcome.SEND:
                return
            self._anchors.append(shown_anchor(load.decision.anchor))
            batch = without(load.batch, self._halted)
            if batch.num_rows:
                yield batch

    def count_into(self, record: Record) -> None:
        """Every verdict of the skip rules has a counter."""
        for rid, verdicts in self._reader.counts.items():
            counted = record.count(rid)
            counted.read += verdicts.total()
            counted.covered += verdicts[Verdict.COVERED]
            counted.beyond_snapshot += verdicts[Verdict.BEYOND_SNAPSHOT]
            counted.new_rid += verdicts[Verdict.NEW_RID]
        record.row.rows_read += self._reader.rows_read
        record.keep_anchors(self._anchors)


def shown_anchor(anchor: Anchor | None) -> dict[str, Any]:
    """An anchor as the row keeps it."""
    assert anchor is not None, "CLASSIC sends from an anchor"
    return {"csn": anchor.csn, "inclusive": anchor.inclusive}
