"""A REPLICA store's bare tables on either database, filled by hand: what trimming and digests read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from spark.formats.csn import Csn
from spark.formats.replica import LAYOUT_VERSION, PREFIX_DEFAULT, create_statements, tables_of
from spark.targets.connection import Connection, SessionLimits, Target, connect

NOW_S = 1_800_000_000
DIALECTS = ("sqlite", "postgresql")
SHORT_WAITS = SessionLimits(lock_timeout_ms=300)


def csn(number: int, rid: int) -> Csn:
    """The CSN of a replica at a second of its own."""
    return Csn.of(NOW_S - 1_000_000 + number, 0, rid)


def sqlite_target(folder: Path) -> Target:
    """An empty SQLite file in WAL mode, as a REPLICA store has it."""
    path = folder / "replica.db"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("pragma journal_mode = wal")
    raw.close()
    return Target(f"sqlite:///{path}", table_prefix=PREFIX_DEFAULT)


def postgresql_target(url: str) -> Target:
    """The database of a test."""
    return Target(url, password=os.environ.get("PGPASSWORD"), table_prefix=PREFIX_DEFAULT)


@contextmanager
def opened(target: Target, *, limits: SessionLimits = SHORT_WAITS) -> Iterator[Connection]:
    """One connection."""
    with connect(target, application_name="lethe-test", limits=limits) as conn:
        yield conn


def make_tables(conn: Connection, *, rid: int = 1, status: str = "ONLINE") -> None:
    """The layout with its one row."""
    with conn.transaction():
        for statement in create_statements(conn):
            conn.execute(statement)
        conn.execute(
            f"insert into {tables_of(conn).replica}"
            " (one, layout_version, rid, generation, incarnation, status)"
            f" values (1, {LAYOUT_VERSION}, :rid, :generation, 'first', :status)",
            {"rid": rid, "generation": str(csn(0, rid)), "status": status},
        )


def put_records(
    conn: Connection, records: Iterable[tuple[Csn, int]], *, payload: bytes | None = b"value"
) -> None:
    """Log changes as (CSN, when it was logged), with `prev` and the RUV as an honest replica keeps them."""
    tables = tables_of(conn)
    newest: dict[int, str] = {}
    for logged in sorted(records):
        rid = logged[0].rid
        if rid not in newest:
            rows = conn.execute(f"select max_csn from {tables.ruv} where rid = :rid", {"rid": rid})
            newest[rid] = rows[0][0] if rows else None
        conn.execute(
            f"insert into {tables.changelog} (rid, csn, prev, kind, database, key, payload, logged_at_s)"
            " values (:rid, :csn, :prev, 'CHANGE', :database, :key, :payload, :at)",
            {
                "rid": rid,
                "csn": str(logged[0]),
                "prev": newest[rid],
                "database": b"db",
                "key": logged[0].encode(),
                "payload": payload,
                "at": logged[1],
            },
        )
        conn.execute(
            f"insert into {tables.ruv} as r (rid, min_csn, max_csn) values (:rid, :csn, :csn)"
            " on conflict (rid) do update set max_csn = excluded.max_csn",
            {"rid": rid, "csn": str(logged[0])},
        )
        newest[rid] = str(logged[0])


class RolledBack(Exception):
    """What ends a transaction without its effect."""


@contextmanager
def rolled_back(conn: Connection) -> Iterator[None]:
    """A transaction that is undone at its end."""
    with suppress(RolledBack), conn.transaction():
        yield
        raise RolledBack


def left_in_changelog(conn: Connection) -> set[Csn]:
    """The CSNs that are there."""
    rows = conn.execute(f"select csn from {tables_of(conn).changelog}")
    return {Csn(text) for (text,) in rows}


def vectors(conn: Connection) -> tuple[Mapping[int, Csn], Mapping[int, Csn], Mapping[int, Csn]]:
    """(RUV, first CSNs, purge vector)."""
    rows = conn.execute(f"select rid, max_csn, min_csn, purged_csn from {tables_of(conn).ruv}")
    columns = [{row[0]: Csn(row[at]) for row in rows if row[at] is not None} for at in (1, 2, 3)]
    return columns[0], columns[1], columns[2]
