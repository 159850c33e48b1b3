"""Entries by key, and in pages: bytes are compared as bytes, nothing is shown twice or left out."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark.formats.replica import tables_of
from spark.replication.errors import ReplicaMissing
from spark.replication.records import entry_schema
from spark.replication.replica.entries import Entry, get_entry, read_entries
from spark.replication.replica.replica import ensure_layout
from spark.replication.replica.upsert import put_entries
from spark.targets.connection import Connection, Target
from tests.spark.replication.replica_tables import csn, opened

Key = tuple[bytes, bytes]


@pytest.fixture
def empty(place: Target) -> Iterator[Connection]:
    with opened(place) as connection:
        yield connection


@pytest.fixture
def conn(empty: Connection) -> Connection:
    ensure_layout(empty, rid=1, generation=csn(0, 1), incarnation="first")
    return empty


def _put(conn: Connection, values: dict[Key, bytes | None]) -> None:
    rows = [
        {"database": key[0], "key": key[1], "value": value, "csn": csn(at, 1), "is_tombstone": value is None}
        for at, (key, value) in enumerate(values.items())
    ]
    with conn.transaction():
        put_entries(conn, tables_of(conn), pa.RecordBatch.from_pylist(rows, schema=entry_schema()))


def _keys(page: pa.RecordBatch) -> list[Key]:
    assert page.schema == entry_schema()
    return list(zip(page.column("database").to_pylist(), page.column("key").to_pylist(), strict=True))


def test_an_entry_is_found_by_its_bytes(conn: Connection) -> None:
    _put(conn, {(b"d", b"k"): b"1", (b"d\x00", b"k"): b"2", (b"d", b"k\x00"): b"", (b"D", b"\xff"): None})
    assert get_entry(conn, b"d", b"k") == Entry(b"1", csn(0, 1), is_tombstone=False)
    assert get_entry(conn, b"d\x00", b"k") == Entry(b"2", csn(1, 1), is_tombstone=False)
    assert get_entry(conn, b"d", b"k\x00") == Entry(b"", csn(2, 1), is_tombstone=False)
    assert get_entry(conn, b"D", b"\xff") == Entry(None, csn(3, 1), is_tombstone=True)
    assert get_entry(conn, b"d", b"\xff") is None


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("rows_max", [1, 2, 7, 1_000])
def test_pages_show_every_entry_once_in_the_order_of_bytes(
    conn: Connection, rows_max: int, in_transaction: bool
) -> None:
    rng = random.Random(rows_max)
    parts = [b"\x00", b"\x7f", b"\x80", b"\xff", b"a", b"Z"]
    values = {
        (b"".join(rng.choices(parts, k=2)), b"".join(rng.choices(parts, k=rng.randint(1, 3)))): b"v"
        for _ in range(120)
    }
    _put(conn, dict(values))
    found: list[Key] = []
    after: Key | None = None
    while True:
        if in_transaction:
            with conn.transaction(read_only=True):
                page = read_entries(conn, after=after, rows_max=rows_max)
        else:
            page = read_entries(conn, after=after, rows_max=rows_max)
        if page.num_rows == 0:
            break
        assert page.num_rows <= rows_max
        found += _keys(page)
        after = found[-1]
    assert found == sorted(values)


def test_one_database_and_a_prefix_of_its_keys(conn: Connection) -> None:
    names = [b"a", b"a\x00", b"ab", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff"]
    _put(conn, {(database, key): b"v" for database in (b"d", b"d\x00", b"e") for key in names})
    for prefix in (None, b"", b"a", b"a\xff", b"\xff", b"\xff\xff", b"c"):
        page = read_entries(conn, after=None, rows_max=100, database=b"d", prefix=prefix)
        assert _keys(page) == sorted((b"d", key) for key in names if key.startswith(prefix or b""))
        for last in (b"a", b"a\xff", b"zz"):
            page = read_entries(conn, after=(b"d", last), rows_max=100, database=b"d", prefix=prefix)
            wanted = [key for key in names if key.startswith(prefix or b"") and key > last]
            assert _keys(page) == sorted((b"d", key) for key in wanted)


def test_tombstones_are_shown_when_asked_for(conn: Connection) -> None:
    _put(conn, {(b"d", b"1"): b"v", (b"d", b"2"): None, (b"d", b"3"): b""})
    assert read_entries(conn, after=None, rows_max=9).column("is_tombstone").to_pylist() == [0, 1, 0]
    assert _keys(read_entries(conn, after=None, rows_max=9, tombstones=False)) == [(b"d", b"1"), (b"d", b"3")]


@pytest.mark.postgresql
def test_a_page_of_postgresql_is_read_by_the_index_before_any_statistics(postgresql_place: Target) -> None:
    """Without that a page of a table that has just grown sorts all that is left."""
    with opened(postgresql_place) as conn:
        ensure_layout(conn, rid=1, generation=csn(0, 1), incarnation="first")
        _put(conn, {(b"d", b"%06d" % number): b"v" * 50 for number in range(5_000)})
        conn.execute(f"delete from pg_statistic where starelid = '{tables_of(conn).entries}'::regclass")
        plans: list[str] = []
        execute = conn.execute

        def explained(sql: str, params: object = None) -> object:
            if sql.startswith("select database"):
                plans.extend(row[0] for row in execute(f"explain {sql}", params))  # type: ignore[arg-type]
            return execute(sql, params)  # type: ignore[arg-type]

        conn.execute = explained  # type: ignore[method-assign, assignment]
        page = read_entries(conn, after=(b"d", b"000010"), rows_max=1_000, database=b"d")
    assert page.num_rows == 1_000
    assert any("Index Scan" in line for line in plans)
    assert not any("Sort" in line for line in plans)


def test_what_is_no_replica_is_told(empty: Connection) -> None:
    with pytest.raises(ReplicaMissing):
        get_entry(empty, b"d", b"k")
    with pytest.raises(ReplicaMissing):
        read_entries(empty, after=None, rows_max=1)
