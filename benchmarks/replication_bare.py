"""The rows of a replica, and the quickest way into its tables: one COPY or one bulk insert for each table."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.proofs.chain import chain_of, seed_of
from spark.replication.proofs.identity import head_message
from spark.replication.records import RecordKind, entry_schema, record_schema
from spark.replication.replica.replica import create_file, ensure_layout
from spark.replication.replica.upsert import entries_of, rids_of
from spark.targets.connection import Connection, Target, connect
from spark.targets.dialects.postgresql_copy import encode_rows
from spark.targets.target import SessionLimits

RIDS = (1, 3, 4)
"""Of the supplier, and of two whose changes it has from them, with their signatures."""
GENERATION = Csn.of(1_790_000_000, 0, 1)
PREFIX = "replica_"
DATABASE = b"orders"
KEY_BYTES = 16
VALUE_BYTES = 100
BATCH_ROWS = 10_000
CHANGES_A_SECOND = 5_000
BEGUN_S = 1_790_000_000
LIMITS = SessionLimits(statement_timeout_ms=600_000)
CHANGELOG = ("rid", "csn", "prev", "kind", "database", "key", "payload", "logged_at_s", "chain")
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
    changes = _logged(batches)
    entries = [entries_of(batch) for batch in batches]
    assert all(each.schema.equals(entry_schema()) for each in entries)
    form: Callable[[list[pa.RecordBatch]], Any] = _copied if dialect == "postgresql" else _tuples
    return Prepared(form(changes), form(entries))


def _logged(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    found = []
    for batch, chain in zip(batches, _chains(batches), strict=True):
        logged = pa.repeat(pa.scalar(BEGUN_S, pa.int64()), batch.num_rows)
        columns = [rids_of(batch.column("csn")), *batch.columns, logged, chain]
        found.append(pa.RecordBatch.from_arrays(columns, names=list(CHANGELOG)))
    return found


def _chains(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Array]:
    """The value of the chain behind each record."""
    heads: dict[int, bytes | None] = {rid: seed_of(rid) for rid in RIDS}
    for batch in batches:
        chain, heads = chain_of(batch, heads)
        yield chain


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


def tell_origins(target: Target, batches: list[pa.RecordBatch]) -> None:
    """The RUV that belongs to rows which came by the bare way, and what the other two have signed of theirs.

    They have signed at the end of each batch, as a session does: the replica can be a supplier then.
    """
    first: dict[int, str] = {}
    heads: list[dict[int, tuple[str, bytes]]] = []
    for batch, chain in zip(batches, _chains(batches), strict=True):
        last = {}
        for csn, value in zip(batch.column("csn").to_pylist(), chain.to_pylist(), strict=True):
            first.setdefault(Csn(csn).rid, csn)
            last[Csn(csn).rid] = (csn, value)
        heads.append(last)
    greatest = {rid: csn for last in heads for rid, (csn, _) in last.items()}
    with connect(target, application_name="lethe:bench", limits=LIMITS) as conn, conn.transaction():
        tables = tables_of(conn)
        conn.execute_many(
            f"insert into {tables.ruv} (rid, min_csn, max_csn) values (:rid, :first, :last)",
            [{"rid": rid, "first": first[rid], "last": greatest[rid]} for rid in greatest],
        )
        for rid in sorted(greatest.keys() - {RIDS[0]}):
            _sign(conn, tables, rid, [last[rid] for last in heads if rid in last])


def _sign(conn: Connection, tables: ReplicaTables, rid: int, heads: list[tuple[str, bytes]]) -> None:
    key = Ed25519PrivateKey.generate()
    conn.execute(
        f"insert into {tables.known_keys} (rid, public_key) values (:rid, :key)",
        {"rid": rid, "key": key.public_key().public_bytes_raw()},
    )
    conn.execute_many(
        f"insert into {tables.signed_heads} (rid, csn, signature) values (:rid, :csn, :signature)",
        [
            {"rid": rid, "csn": csn, "signature": key.sign(head_message(rid, csn, chain))}
            for csn, chain in heads
        ],
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
