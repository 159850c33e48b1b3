"""Changelogs of chosen rows in real tables, and the databases that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from spark.formats.csn import Csn
from spark.formats.replica import create_statements, tables_of
from spark.replication.records import record_schema
from spark.replication.supplier.decide import Window
from spark.targets.connection import Connection, Target
from tests.oracles.changelog_export import read_export
from tests.spark.replication.replica_tables import NOW_S, opened, postgresql_target, sqlite_target

Row = tuple[str, str | None, str, bytes, bytes, bytes | None]
"""As in record_schema()."""


def target_of(request: pytest.FixtureRequest, folder: Path) -> Target:
    """The target of a test that is parametrised by the dialect's name."""
    if request.param == "sqlite":
        return sqlite_target(folder)
    return postgresql_target(request.getfixturevalue("postgresql_url"))


@contextmanager
def empty_changelog(target: Target) -> Iterator[Connection]:
    """A connection to a database that has the tables and no row."""
    with opened(target) as conn:
        with conn.transaction():
            for statement in create_statements(conn):
                conn.execute(statement)
        yield conn


def csn_at(number: int, rid: int) -> Csn:
    """The CSN of a replica at a second of its own; `number` may be anything from 0."""
    return Csn.of(NOW_S - 1_000_000 + number, number % 7, rid)


def rows_of(csns: Iterable[str], *, sizes: Sequence[int | None] = (5,)) -> list[Row]:
    """Changes with these CSNs, each linked with the one before; payloads of these sizes in turn."""
    rows: list[Row] = []
    newest: dict[str, str] = {}
    for number, csn in enumerate(sorted(csns)):
        size = sizes[number % len(sizes)]
        payload = None if size is None else bytes([number % 256]) * size
        rows.append((str(csn), newest.get(csn[12:16]), "CHANGE", b"db", b"key%d" % number, payload))
        newest[csn[12:16]] = str(csn)
    return rows


def real_rows(name: str) -> list[Row]:
    """The changes of a recorded 389 changelog: dn as key, their LDIF as payload."""
    newest: dict[int, str] = {}
    rows: list[Row] = []
    for record in read_export(name).records:
        link = newest.get(record.csn.rid)
        rows.append((str(record.csn), link, "CHANGE", b"userroot", record.dn.encode(), record.change))
        newest[record.csn.rid] = str(record.csn)
    return rows


def put_rows(conn: Connection, rows: Iterable[Row]) -> None:
    """Log them."""
    with conn.transaction():
        conn.execute_many(
            f"insert into {tables_of(conn).changelog}"
            " (rid, csn, prev, kind, database, key, payload, logged_at_s)"
            f" values (:rid, :csn, :prev, :kind, :database, :key, :payload, {NOW_S})",
            [{"rid": Csn(row[0]).rid, **dict(zip(record_schema().names, row, strict=True))} for row in rows],
        )


def windows_over(rows: Iterable[Row]) -> dict[int, Window]:
    """The windows of a consumer that has nothing."""
    windows: dict[int, Window] = {}
    for row in rows:
        csn = Csn(row[0])
        if csn.rid not in windows or csn > windows[csn.rid].upto:
            windows[csn.rid] = Window(None, csn)
    return windows


def as_rows(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """All rows of batches, which are of record_schema()."""
    found: list[Row] = []
    for batch in batches:
        assert batch.schema.equals(record_schema())
        found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return found
