"""The records of extinctions as a replica logs its own, and those that were left without one.

A total initialisation may give up the changes that only its consumer had. Extinctions are never given up: one
whose record went with them is logged anew, as an own change. No supplier would bring it to others, and the
next own change would move the RUV past it.
Source: design.md, Extinction; decisions/0015.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark.formats.arrow import pa
from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables
from spark.replication.csn_generator import adjust
from spark.replication.proofs.chain import chain_of
from spark.replication.records import RecordKind, ReplicaRow, record_schema
from spark.replication.replica.appending import Own, give_csns, read_own
from spark.replication.replica.replica import advance_ruv, lock_replica, save_generator
from spark.replication.replica.upsert import put_changes
from spark.targets.connection import Connection

_KIND: Final = RecordKind.EXTINCTION.value


def extinction_records(rows: Sequence[tuple[str, str | None, bytes]]) -> pa.RecordBatch:
    """(csn, prev, payload) as records of kind EXTINCTION."""
    csns, prevs, payloads = zip(*rows, strict=True) if rows else ((), (), ())
    count = len(rows)
    columns = [csns, prevs, [_KIND] * count, [b""] * count, [b""] * count, payloads]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, record_schema(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=record_schema())


def log_extinction(
    conn: Connection, tables: ReplicaTables, payload: bytes, csn: Csn, row: ReplicaRow, own: Own
) -> None:
    """Append one record of this replica's own, with the RUV; under the locks of session and generator.

    Args:
        csn: given by its generator.
        row, own: as they stand under the locks.
    """
    record = extinction_records([(str(csn), own.max_csn or own.purged_csn, payload)])
    chain, _ = chain_of(record, {row.rid: own.chain_before(row.rid)})
    put_changes(conn, tables, record, logged_at_s=own.now_s, chain=chain)
    advance_ruv(conn, tables, row.rid, first=csn, last=csn, now_s=own.now_s)


def log_left_over(conn: Connection, tables: ReplicaTables, *, now_s: int) -> None:
    """Log the extinctions anew that no change up to the RUV stands for.

    In the transaction that makes the replica ONLINE, under the lock of the session.

    Args:
        now_s: as for `write_group`.
    Raises: ClockSkewExceeded, TimestampOutOfRange.
    """
    left_over = conn.execute(
        f"select e.id, e.payload from {tables.extinctions} e left join {tables.ruv} u on u.rid = e.rid"
        " where u.max_csn is null or u.max_csn < e.csn order by e.csn"
    )
    for name, payload in left_over:
        row, state = lock_replica(conn, tables)
        own = read_own(conn, tables, row.rid)
        if own.max_csn is not None:
            state = adjust(state, remote=Csn(own.max_csn), now_s=now_s)
        [given], state = give_csns(state, 1, now_s=now_s)
        save_generator(conn, tables, state)
        log_extinction(conn, tables, bytes(payload), Csn(given), row, own)
        conn.execute(
            f"update {tables.extinctions} set csn = :csn, rid = :rid where id = :id",
            {"csn": given, "rid": row.rid, "id": name},
        )
