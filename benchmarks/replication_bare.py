"""The rows of a replica, and the quickest way into its tables: one COPY or one bulk insert for each table."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.records import RecordKind, entry_schema, record_schema
from spark.replication.replica.replica import create_file, ensure_layout
from spark.replication.replica.upsert import entries_of, rids_of
from spark.targets.connection import Connection, Target, connect
from spark.targets.dialects.postgresql_copy import encode_rows
from spark.targets.target import SessionLimits

RIDS = (1, 3, 4)
GENERATION = Csn.of(1_790_000_000, 0, 1)
PREFIX = "replica_"
DATABASE = b"orders"
KEY_BYTES = 16
VALUE_BYTES = 100
BATCH_ROWS = 10_000
CHANGES_A_SECOND = 5_000
BEGUN_S = 1_790_000_000
LIMITS = SessionLimits(statement_timeout_ms=600_000)
CHANGELOG = ("rid", "csn", "prev", "kind", "database", "key", "payload", "logged_at_s")
ENTRIES = ("database", "key", "value", "csn", "is_tombstone")


def records(count: int, *, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """`count` changes of three replicas side by side, each of a key of its own in no order."""
    source = random.Random(seed)
    last: dict[int, str] = {}
    for begin in range(0, count, BATCH_ROWS):
        numbers = range(begin, min(count, begin + BATCH_ROWS))
        csns, prevs = [], []
        for number in numbers:
            rid = RIDS[number % len(RIDS)]
            csn = Csn.of(BEGUN_S + number // CHANGES_A_SECOND, number % CHANGES_A_SECOND, rid)
            csns.append(csn)
            prevs.append(last.get(rid))
            last[rid] = csn
        rows = len(csns)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(csns, pa.string()),
                pa.array(prevs, pa.string()),
                pa.repeat(pa.scalar(RecordKind.CHANGE.value), rows),
                pa.repeat(pa.scalar(DATABASE), rows),
                pa.array([source.randbytes(KEY_BYTES) for _ in numbers], pa.binary()),
                pa.array([source.randbytes(VALUE_BYTES) for _ in numbers], pa.binary()),
            ],
            schema=record_schema(),
        )


@dataclass(frozen=True)
class Prepared:
    """Rows as a driver takes them: binary COPY, or tuples; made before the clock runs."""

    changelog: Any
    entries: Any


def prepare(dialect: str, batches: list[pa.RecordBatch]) -> Prepared:
    """Bring the rows of both tables into their driver's form."""
    changes = [_logged(batch) for batch in batches]
    entries = [entries_of(batch) for batch in batches]
    assert all(each.schema.equals(entry_schema()) for each in entries)
    form: Callable[[list[pa.RecordBatch]], Any] = _copied if dialect == "postgresql" else _tuples
    return Prepared(form(changes), form(entries))


def _logged(batch: pa.RecordBatch) -> pa.RecordBatch:
    logged = pa.repeat(pa.scalar(BEGUN_S, pa.int64()), batch.num_rows)
    columns = [rids_of(batch.column("csn")), *batch.columns, logged]
    return pa.RecordBatch.from_arrays(columns, names=list(CHANGELOG))


def _copied(batches: list[pa.RecordBatch]) -> list[bytes]:
    table = pa.Table.from_batches(batches).combine_chunks()
    return [bytes(part) for part in encode_rows(table.to_batches()[0])]


def _tuples(batches: list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [
        row for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True)
    ]


def make_layout(target: Target, *, rid: int) -> None:
    """The tables of an empty replica."""
    create_file(target)
    with connect(target, application_name="lethe:bench", limits=LIMITS) as conn:
        ensure_layout(conn, rid=rid, generation=GENERATION, incarnation="bench")


def fill_bare(target: Target, prepared: Prepared) -> float:
    """Both tables by the quickest way, committed; the seconds it took."""
    with connect(target, application_name="lethe:bench", limits=LIMITS) as conn:
        tables = tables_of(conn)
        began = time.perf_counter()
        with conn.transaction():
            _bulk(conn, tables.changelog, CHANGELOG, prepared.changelog)
            _bulk(conn, tables.entries, ENTRIES, prepared.entries)
        return time.perf_counter() - began


def _bulk(conn: Connection, table: str, columns: tuple[str, ...], rows: Any) -> None:
    names = ", ".join(columns)
    if conn.dialect.name == "postgresql":
        conn.copy_in(f"copy {table} ({names}) from stdin (format binary)", rows)
        return
    marks = ", ".join("?" * len(columns))
    conn.execute_rows(f"insert into {table} ({names}) values ({marks})", rows)


def tell_vectors(target: Target, batches: list[pa.RecordBatch]) -> None:
    """The RUV that belongs to rows which came by the bare way: the replica can be a supplier then."""
    first: dict[int, str] = {}
    last: dict[int, str] = {}
    for batch in batches:
        for text in batch.column("csn").to_pylist():
            rid = Csn(text).rid
            first.setdefault(rid, text)
            last[rid] = text
    with connect(target, application_name="lethe:bench", limits=LIMITS) as conn, conn.transaction():
        conn.execute_many(
            f"insert into {tables_of(conn).ruv} (rid, min_csn, max_csn) values (:rid, :first, :last)",
            [{"rid": rid, "first": first[rid], "last": last[rid]} for rid in last],
        )


def contents(target: Target) -> tuple[tuple[Any, ...], ...]:
    """RUV, and count and fingerprint of both tables: what two equal replicas have in common."""
    with connect(target, application_name="lethe:bench", limits=LIMITS, read_only=True) as conn:
        tables: ReplicaTables = tables_of(conn)
        ruv = conn.execute(f"select rid, max_csn from {tables.ruv} order by rid")
        changes = conn.execute(
            f"select rid, count(*), min(csn), max(csn), sum(length(payload)) from {tables.changelog}"
            " group by rid order by rid"
        )
        entries = conn.execute(
            f"select count(*), min(csn), max(csn), sum(length(value)), sum(length(key)) from {tables.entries}"
        )
        return tuple(tuple(map(str, row)) for row in (*ruv, *changes, *entries))
