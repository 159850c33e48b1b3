"""What there is to send, counted at the target; on either database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.formats.changes.batch import ROW_BYTES
from spark.formats.csn import CSN_CHARS
from spark.formats.replica import tables_of
from spark.replication.replica.entries import read_entries
from spark.replication.supplier.backlog import count_fitting, count_missing, oldest_missing
from spark.replication.supplier.decide import Window
from spark.targets.connection import Connection
from tests.spark.replication.replica_tables import (
    NOW_S,
    csn,
    make_tables,
    opened,
    postgresql_target,
    put_records,
    sqlite_target,
)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def conn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    if request.param == "sqlite":
        target = sqlite_target(tmp_path)
    else:
        target = postgresql_target(request.getfixturevalue("postgresql_url"))
    with opened(target) as found:
        make_tables(found)
        yield found


def test_missing_changes_are_counted_within_their_windows(conn: Connection) -> None:
    put_records(conn, [(csn(number, rid), NOW_S + number) for rid in (1, 2) for number in range(10, 20)])
    windows = {
        1: Window(csn(12, 1), csn(15, 1)),
        2: Window(None, csn(11, 2)),
        3: Window(None, csn(99, 3)),
    }
    assert count_missing(conn, windows) == {1: 3, 2: 2, 3: 0}
    oldest = oldest_missing(conn, windows)
    assert oldest is not None
    assert (oldest.csn, oldest.logged_at_s) == (csn(10, 2), NOW_S + 10)
    assert oldest_missing(conn, {3: windows[3]}) is None


def test_a_page_of_entries_holds_what_fits_and_one_at_least(conn: Connection) -> None:
    sizes = [0, 10, 100, 50_000, 10, None, 10]
    conn.execute_many(
        f"insert into {tables_of(conn).entries} (database, key, value, csn, is_tombstone)"
        " values (:database, :key, :value, :csn, :gone)",
        [
            {
                "database": b"db",
                "key": b"k%d" % number,
                "value": None if size is None else b"v" * size,
                "csn": str(csn(number, 1)),
                "gone": size is None,
            }
            for number, size in enumerate(sizes)
        ],
    )
    each = ROW_BYTES + CSN_CHARS + len(b"db") + len(b"k0")
    for bytes_max in (1, each + 9, 2 * each + 10, 3 * each + 110, 10**6):
        after: tuple[bytes, bytes] | None = None
        seen = []
        while rows := count_fitting(conn, after=after, rows_max=5, bytes_max=bytes_max):
            page = read_entries(conn, after=after, rows_max=rows)
            held = [(value or b"") for value in page.column("value").to_pylist()]
            assert len(page) == rows <= 5
            assert rows == 1 or sum(each + len(value) for value in held) <= bytes_max
            after = (page.column("database")[-1].as_py(), page.column("key")[-1].as_py())
            seen += page.column("key").to_pylist()
        assert seen == [b"k%d" % number for number in range(len(sizes))]
