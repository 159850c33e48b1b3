"""The bulk path into a replica's tables: whole batches of columns, on PostgreSQL and SQLite.

Invariants:
- `entries` never goes back: a row is replaced only by a greater CSN, whatever arrives when;
- rows are written in the order of their keys, so two writers at once do not wait for each other in a circle;
- both run inside the caller's transaction and change nothing but the one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from spark.formats.arrow import pa, pc
from spark.formats.replica import ReplicaTables
from spark.replication.records import entry_schema, record_schema
from spark.targets.connection import Connection
from spark.targets.dialects.postgresql_copy import encode_rows
from spark.targets.errors import TargetRowConflict

_CHANGELOG: Final = ("rid", "csn", "prev", "kind", "database", "key", "payload", "logged_at_s", "chain")
_ENTRY: Final = ("database", "key", "value", "csn", "is_tombstone")
_STAGING: Final = "lethe_entries"
_FEW_ROWS: Final = 16
# Fewer rows are merged as quickly as they are sampled and inserted.
_DIRECT_MIN_ROWS: Final = 500
_SAMPLE_ROWS: Final = 32
# A try that met an older row was in vain; where one was, the next is not far.
_BATCHES_BETWEEN_TRIES: Final = 16
_MET: Final = "replica entries met: batches before the next try"
_NEWER_WINS: Final = (
    "on conflict (database, key) do update"
    " set value = excluded.value, csn = excluded.csn, is_tombstone = excluded.is_tombstone"
)


def put_changes(
    conn: Connection,
    tables: ReplicaTables,
    batch: pa.RecordBatch,
    *,
    logged_at_s: int | None = None,
    chain: pa.Array | None = None,
) -> None:
    """Append records to the changelog, inside the caller's transaction.

    Args:
        batch: of record_schema(), without records that are there already.
        logged_at_s: seconds since 1970 by the target's clock; None asks it.
        chain: of each record (chain.py).
    Raises: TargetRowConflict: one of the CSNs is there already.
    """
    assert conn.in_transaction, "records and the RUV share one transaction"
    assert batch.schema.equals(record_schema()), batch.schema
    if batch.num_rows == 0:
        return
    at_s = clock_s(conn) if logged_at_s is None else logged_at_s
    rows = pa.RecordBatch.from_arrays(
        [
            rids_of(batch.column("csn")),
            *batch.columns,
            pa.repeat(pa.scalar(at_s, pa.int64()), batch.num_rows),
            pa.nulls(batch.num_rows, pa.binary()) if chain is None else chain,
        ],
        names=list(_CHANGELOG),
    )
    if conn.dialect.name == "postgresql":
        conn.copy_in(_copy_of(tables.changelog, _CHANGELOG), encode_rows(rows))
        return
    marks = ", ".join("?" * len(_CHANGELOG))
    conn.execute_rows(
        f"insert into {tables.changelog} ({', '.join(_CHANGELOG)}) values ({marks})", _rows(rows)
    )


def put_entries(conn: Connection, tables: ReplicaTables, batch: pa.RecordBatch) -> None:
    """Bring entries up to the greatest CSN of each key, inside the caller's transaction.

    Args:
        batch: of entry_schema(), in any order, keys as often as they come.
    """
    assert conn.in_transaction, "entries and the RUV share one transaction"
    assert batch.schema.equals(entry_schema()), batch.schema
    if batch.num_rows == 0:
        return
    rows = newest_of(batch)
    if conn.dialect.name == "postgresql":
        if rows.num_rows <= _FEW_ROWS:
            _merge_few(conn, tables, rows)
        elif not (_seem_new(conn, tables, rows) and _insert_new(conn, tables, rows)):
            _merge(conn, tables, rows)
        return
    marks = ", ".join("?" * len(_ENTRY))
    conn.execute_rows(
        f"insert into {tables.entries} as old ({', '.join(_ENTRY)}) values ({marks})"
        f" {_NEWER_WINS} where excluded.csn > old.csn",
        _rows(rows),
    )


def entries_of(records: pa.RecordBatch) -> pa.RecordBatch:
    """The entries that records of kind CHANGE make; record_schema() in, entry_schema() out, row by row."""
    payload = records.column("payload")
    columns = [records.column("database"), records.column("key"), payload, records.column("csn")]
    return pa.RecordBatch.from_arrays([*columns, payload.is_null()], schema=entry_schema())


def newest_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Of each key the row with the greatest CSN, in the order of (database, key)."""
    order = pc.sort_indices(
        batch, sort_keys=[("database", "ascending"), ("key", "ascending"), ("csn", "ascending")]
    )
    rows = batch.take(order)
    if rows.num_rows < 2:
        return rows
    database, key = rows.column("database"), rows.column("key")
    same_as_next = pc.and_(pc.equal(database[:-1], database[1:]), pc.equal(key[:-1], key[1:]))
    if not same_as_next.true_count:
        return rows
    return rows.filter(pa.concat_arrays([pc.invert(same_as_next), pa.array([True])]))


def _seem_new(conn: Connection, tables: ReplicaTables, rows: pa.RecordBatch) -> bool:
    """Whether it is worth trying to write all rows without looking for older ones: a sample is not there."""
    if rows.num_rows < _DIRECT_MIN_ROWS:
        return False
    wait = int(conn.noted.get(_MET) or 0)
    if wait:
        conn.noted[_MET] = str(wait - 1)
        return False
    step = (rows.num_rows - 1) // (_SAMPLE_ROWS - 1)
    sample = rows.select(["database", "key"]).take(pa.array(range(0, rows.num_rows, step))).to_pylist()
    params = {f"{name}{at}": value for at, row in enumerate(sample) for name, value in row.items()}
    # One look by the key for each: given all keys at once the planner reads the whole table.
    looks = [
        f"(select 1 from {tables.entries} where database = :database{at} and key = :key{at})"
        for at in range(len(sample))
    ]
    return not conn.execute(f"{' union all '.join(looks)} limit 1", params)


def _insert_new(conn: Connection, tables: ReplicaTables, rows: pa.RecordBatch) -> bool:
    """PostgreSQL: write rows none of which is there; False: one is, and nothing was written.

    Twice as fast as `_merge`: no staging, no speculative insertion.
    """
    conn.execute("savepoint lethe_entries")
    try:
        conn.copy_in(_copy_of(tables.entries, _ENTRY), encode_rows(rows))
    except TargetRowConflict:
        conn.back_to("lethe_entries")
        conn.noted[_MET] = str(_BATCHES_BETWEEN_TRIES)
        return False
    conn.execute("release savepoint lethe_entries")
    return True


def _merge_few(conn: Connection, tables: ReplicaTables, rows: pa.RecordBatch) -> None:
    """PostgreSQL: in one statement; a staging table takes four."""
    marks = ", ".join(f"({', '.join(f':{name}{at}' for name in _ENTRY)})" for at in range(rows.num_rows))
    params = {f"{name}{at}": value for at, row in enumerate(rows.to_pylist()) for name, value in row.items()}
    conn.execute(
        f"insert into {tables.entries} as old ({', '.join(_ENTRY)}) values {marks}"
        f" {_NEWER_WINS} where excluded.csn > old.csn",
        params,
    )


def _merge(conn: Connection, tables: ReplicaTables, rows: pa.RecordBatch) -> None:
    """PostgreSQL: by way of a table of the connection's own, which is empty again at the commit.

    An earlier batch of the same transaction is still in it: merged once more it changes nothing.
    """
    conn.execute(
        f"create temporary table if not exists {_STAGING} (database bytea, key bytea, value bytea,"
        ' csn text collate "C", is_tombstone boolean) on commit delete rows'
    )
    conn.copy_in(_copy_of(f"pg_temp.{_STAGING}", _ENTRY), encode_rows(rows))
    # A new table is read as it was written, in the order of the keys; a sort would cost a tenth more.
    conn.execute(
        f"insert into {tables.entries} as old ({', '.join(_ENTRY)})"
        f" select {', '.join(_ENTRY)} from pg_temp.{_STAGING} {_NEWER_WINS} where excluded.csn > old.csn"
    )


def _copy_of(table: str, columns: Sequence[str]) -> str:
    return f"copy {table} ({', '.join(columns)}) from stdin (format binary)"


def rids_of(csns: pa.Array) -> pa.Array:
    """The replica ids in CSNs, as int32."""
    digits = pc.utf8_slice_codeunits(csns, 12, 16).dictionary_encode()
    known = pa.array([int(text, 16) for text in digits.dictionary.to_pylist()], pa.int32())
    return known.take(digits.indices)


def clock_s(conn: Connection) -> int:
    """Seconds since 1970 by the target's clock."""
    [(now_s,)] = conn.execute(f"select {clock_of(conn)}")
    return int(now_s)


def clock_of(conn: Connection) -> str:
    """The SQL of `clock_s`."""
    if conn.dialect.name == "postgresql":
        return "cast(floor(extract(epoch from clock_timestamp())) as bigint)"
    return "cast(strftime('%s', 'now') as integer)"


def _rows(batch: pa.RecordBatch) -> Any:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
