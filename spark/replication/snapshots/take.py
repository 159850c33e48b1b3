"""Taking a snapshot: RUV, history and entries of one moment, however long the reading takes.

On PostgreSQL the snapshot of the transaction keeps dead rows from vacuum as long; on SQLite the write-ahead
log grows as long. Writers are not held up.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark.formats.replica import tables_of
from spark.replication.consumer.extinctions import read_records
from spark.replication.errors import ReplicaNotOnline
from spark.replication.proofs.identity import sign_introduction
from spark.replication.proofs.shown_proofs import shown_history
from spark.replication.proofs.values import History
from spark.replication.records import ReplicaStatus, Snapshot
from spark.replication.replica.entries import read_entries
from spark.replication.replica.layout import keep_filled
from spark.replication.replica.replica import snapshot
from spark.replication.snapshots.form import EXTINCTIONS, Manifest, SnapshotWriter
from spark.replication.supplier.backlog import count_fitting
from spark.targets.connection import Connection

PART_ROWS: Final = 50_000
PART_BYTES: Final = 16 * 1024 * 1024
Told = Callable[[int, int], None]
"""Told of the rows and bytes that were written so far, between two parts; what it raises ends the taking."""


def take_snapshot(
    conn: Connection,
    out: BinaryIO,
    *,
    now_s: int,
    shown: Callable[[Snapshot], None],
    told: Told,
    part_rows: int = PART_ROWS,
    part_bytes: int = PART_BYTES,
) -> Manifest:
    """Write a snapshot of an ONLINE replica, in one read transaction.

    Args:
        now_s: this service's clock.
        shown: told what the file is about to show, before anything of it is written.
    Raises: ReplicaNotOnline, ReplicaMissing, TargetError; OSError.
    """
    writer = SnapshotWriter(out)
    with conn.transaction(read_only=True):
        keep_filled(conn)
        seen = snapshot(conn)
        if seen.replica.status is not ReplicaStatus.ONLINE or seen.replica.generation is None:
            raise ReplicaNotOnline(seen.replica.status)
        shown(seen)
        history = shown_history(conn, seen.vectors.ruv, seen.replica.rid)
        manifest = _manifest(seen, seen.replica.generation, history, now_s)
        extinctions = read_records(conn)
        if extinctions.num_rows:
            writer.put(EXTINCTIONS, extinctions)
        rows = tombstones = size = 0
        after: tuple[bytes, bytes] | None = None
        while True:
            wanted = count_fitting(conn, after=after, rows_max=part_rows, bytes_max=part_bytes)
            page = read_entries(conn, after=after, rows_max=max(1, wanted))
            if not page.num_rows:
                break
            after = (page.column("database")[-1].as_py(), page.column("key")[-1].as_py())
            size += writer.put(f"entries-{len(writer.parts) + 1:06}.parquet", page)
            rows += page.num_rows
            tombstones += _count(page)
            told(rows, size)
        parts = tuple(writer.parts)
        manifest = replace(
            manifest, entries=rows, tombstones=tombstones, extinctions=extinctions.num_rows, parts=parts
        )
        signature = sign_introduction(conn, tables_of(conn), manifest.to_sign)
        manifest = replace(manifest, signature=signature)
        writer.end(manifest)
    return manifest


def _manifest(seen: Snapshot, generation: str, history: History, now_s: int) -> Manifest:
    return Manifest(
        seen.replica.rid, generation, seen.vectors.ruv, history, now_s, buried=seen.replica.buried
    )


def _count(page: pa.RecordBatch) -> int:
    return int(pc.sum(page.column("is_tombstone")).as_py() or 0)
