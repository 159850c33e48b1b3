"""Checksums see every byte, no page, and nothing that replicas may differ in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.replica import digest
from spark.replication.replica.digest import (
    Digest,
    Digester,
    change_marks,
    digest_changes,
    digest_entries,
    entry_marks,
    piece_rows,
)
from spark.targets.connection import Connection, Target
from tests.spark.replication.replica_tables import (
    NOW_S,
    csn,
    make_tables,
    opened,
    postgresql_target,
    put_records,
    sqlite_target,
)

FIRST, LAST = csn(0, 1), csn(99, 1)


@pytest.fixture
def conn(bare_place: Target) -> Iterator[Connection]:
    with opened(bare_place) as connection:
        make_tables(connection)
        yield connection


def _all(conn: Connection) -> Digest:
    return digest_changes(conn, 1, after=None, upto=LAST)


def _put_entry(conn: Connection, key: bytes, value: bytes | None, at: Csn, *, dead: bool = False) -> None:
    conn.execute(
        f"insert into {tables_of(conn).entries} (database, key, value, csn, is_tombstone)"
        " values (:database, :key, :value, :csn, :dead)",
        {"database": b"db", "key": key, "value": value, "csn": str(at), "dead": dead},
    )


def test_both_databases_give_the_same_checksum(tmp_path: Path, postgresql_url: str) -> None:
    found = []
    for target in (sqlite_target(tmp_path), postgresql_target(postgresql_url)):
        with opened(target) as conn:
            make_tables(conn)
            put_records(conn, [(csn(number, 1), NOW_S + number) for number in range(20)], payload=b"\x00\xff")
            put_records(conn, [(csn(number, 1), NOW_S) for number in range(20, 25)], payload=None)
            _put_entry(conn, b"\x00", b"", csn(1, 1))
            _put_entry(conn, b"\xff\x80", None, csn(2, 1), dead=True)
            found.append((_all(conn), digest_entries(conn)))
    assert found[0] == found[1]
    assert found[0][0].count == 25
    assert found[0][1].count == 2


@pytest.mark.parametrize(
    "change",
    [
        "payload = null",
        "payload = :empty",
        "payload = :other",
        "key = :other",
        "database = :other",
        "kind = 'KEEPALIVE'",
    ],
)
def test_every_value_of_a_change_counts(conn: Connection, change: str) -> None:
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(5)])
    before = _all(conn)
    params = {"csn": str(csn(3, 1)), "empty": b"", "other": b"valuf"}
    used = {name: value for name, value in params.items() if f":{name}" in f"{change} :csn"}
    conn.execute(f"update {tables_of(conn).changelog} set {change} where csn = :csn", used)
    after = _all(conn)
    assert after.count == before.count
    assert after.checksum != before.checksum


def test_links_and_times_do_not_count(conn: Connection) -> None:
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(5)])
    before = _all(conn)
    conn.execute(f"update {tables_of(conn).changelog} set prev = null, logged_at_s = 1")
    assert _all(conn) == before


def test_bytes_that_move_from_one_value_to_the_next_are_seen() -> None:
    def checksum(*columns: list[bytes | None]) -> str:
        digester = Digester(len(columns))
        digester.add(columns)
        return digester.result().checksum

    forms = [
        checksum([b"ab", b"c"], [b"", b""]),
        checksum([b"a", b"bc"], [b"", b""]),
        checksum([b"abc", b""], [b"", b""]),
        checksum([b"abc", None], [b"", b""]),
        checksum([b"ab", b""], [b"c", b""]),
        checksum([b"abc"], [b""]),
    ]
    assert len(set(forms)) == len(forms)


def test_pages_do_not_show(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(23)], payload=b"x" * 100)
    for number in range(23):
        _put_entry(conn, bytes([number]), b"x" * number, csn(number, 1))
    whole = (_all(conn), digest_entries(conn))
    for rows, size in ((1, 10_000), (7, 10_000), (100, 1), (100, 300)):
        monkeypatch.setattr(digest, "PAGE_ROWS", rows)
        monkeypatch.setattr(digest, "PAGE_BYTES", size)
        assert (_all(conn), digest_entries(conn)) == whole


def test_a_range_is_open_below_and_closed_above(conn: Connection) -> None:
    put_records(conn, [(csn(number, rid), NOW_S) for number in range(10) for rid in (1, 2)])
    assert digest_changes(conn, 1, after=csn(2, 1), upto=csn(5, 1)).count == 3
    assert digest_changes(conn, 1, after=csn(5, 1), upto=csn(5, 1)) == Digester(5).result()
    assert digest_changes(conn, 3, after=None, upto=csn(99, 3)).count == 0


def test_pieces_cover_the_whole_once(conn: Connection) -> None:
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(10)])
    for number in range(10):
        _put_entry(conn, bytes([number]), b"v", csn(number, 1))
    for rows in (1, 3, 5, 10, 11):
        pieces = list(change_marks(conn, 1, after=csn(1, 1), upto=csn(8, 1), rows=rows))
        counts = [digest_changes(conn, 1, after=low, upto=high).count for low, high in pieces]
        assert sum(counts) == 7
        assert all(count <= rows for count in counts)
        assert (pieces[0][0], pieces[-1][1]) == (csn(1, 1), csn(8, 1))
        parts = list(entry_marks(conn, rows=rows))
        sizes = [digest_entries(conn, after=low, upto=high).count for low, high in parts]
        assert sum(sizes) == 10
        assert all(count <= rows for count in sizes)


def test_a_piece_has_fewer_rows_where_they_are_large(conn: Connection) -> None:
    assert piece_rows(conn, entries=False, rows_max=50, byte_count=1_000) == 50
    put_records(
        conn, [(csn(number, 1), NOW_S) for number in range(9)], payload=b"x" * 78
    )  # and 22 of its key
    _put_entry(conn, b"key", b"x" * 5_000, csn(1, 1))
    assert piece_rows(conn, entries=False, rows_max=50, byte_count=1_000) == 10
    assert piece_rows(conn, entries=False, rows_max=5, byte_count=1_000) == 5
    assert piece_rows(conn, entries=True, rows_max=50, byte_count=1_000) == 1


def test_tombstones_count_as_entries(conn: Connection) -> None:
    _put_entry(conn, b"k", None, csn(1, 1), dead=True)
    dead = digest_entries(conn)
    conn.execute(f"update {tables_of(conn).entries} set is_tombstone = :no", {"no": False})
    assert digest_entries(conn) != dead


@pytest.mark.long
def test_a_million_changes_take_seconds(tmp_path: Path) -> None:
    with opened(sqlite_target(tmp_path)) as conn:
        make_tables(conn)
        conn.execute(
            f"insert into {tables_of(conn).changelog} (rid, csn, kind, database, key, payload, logged_at_s)"
            " with recursive n(i) as (select 0 union all select i + 1 from n where i < 999999)"
            " select 1, printf('%08x%04x00010000', 1800000000 + i / 1000, i % 1000), 'CHANGE', x'6462',"
            " cast(printf('key%d', i) as blob), randomblob(60), 1 from n"
        )
        began = time.monotonic()
        found = digest_changes(conn, 1, after=None, upto="f" * 20)
        assert found.count == 1_000_000
        assert time.monotonic() - began < 30
