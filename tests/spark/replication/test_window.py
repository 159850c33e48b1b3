"""Windows over real tables: every change once, in order, within the bounds, from any point."""

from __future__ import annotations

import random
import sqlite3
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spark.formats.changes.batch import decode_arrow, encode_arrow, row_bytes
from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.records import record_schema
from spark.replication.supplier.changelog_pages import (
    ONLY_BY_KEY,
    ChangelogIncomplete,
    Page,
    page_statement,
    range_source,
)
from spark.replication.supplier.decide import Window
from spark.replication.supplier.window import WindowReader
from spark.targets.connection import Connection, sqlite_path
from tests.spark.replication.changelog_rows import (
    Row,
    as_rows,
    csn_at,
    empty_changelog,
    put_rows,
    rows_of,
    target_of,
    windows_over,
)
from tests.spark.replication.replica_tables import DIALECTS, opened, postgresql_target, sqlite_target

MIB = 1_048_576


@pytest.fixture(params=DIALECTS)
def conn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    with empty_changelog(target_of(request, tmp_path)) as found:
        yield found


def random_rows(seed: int, count: int, *, rids: int) -> list[Row]:
    """Changes of several replicas that write at different times and at different paces."""
    rng = random.Random(seed)
    csns = set()
    for rid in range(1, rids + 1):
        start, pace = rng.randrange(count), rng.choice((1, 3, 50))
        csns |= {csn_at(start + pace * number, rid) for number in range(rng.randrange(1, 2 * count // rids))}
    return rows_of(csns, sizes=[None, *(rng.choice((0, 1, 30, 400, 5_000)) for _ in range(9))])


@pytest.mark.parametrize(
    ("seed", "rids", "rows_max", "bytes_max"),
    [
        (1, 1, 7, MIB),
        (2, 3, 100, MIB),
        (3, 5, 1_000, 20_000),
        (4, 40, 64, 9_000),
        (5, 2, 1, MIB),
    ],
)
def test_every_change_comes_once_and_in_the_order_of_all_csns(
    conn: Connection, seed: int, rids: int, rows_max: int, bytes_max: int
) -> None:
    rows = random_rows(seed, 1_500 if rows_max > 1 else 150, rids=rids)
    put_rows(conn, rows)
    reader = WindowReader(conn, windows_over(rows), rows_max=rows_max, bytes_max=bytes_max)
    batches = list(reader)
    assert as_rows(batches) == rows
    assert reader.rows_read == len(rows)
    assert {rid: reader.read[rid] for rid in windows_over(rows)} == dict(reader.read)
    for batch in batches:
        assert len(batch) <= rows_max
        # The wire's own measure: what the consumer would allocate.
        assert decode_arrow(
            encode_arrow(batch), record_schema(), rows_max=rows_max, bytes_max=bytes_max
        ).equals(batch)


def test_batches_are_as_full_as_their_bounds_allow(conn: Connection) -> None:
    rows = random_rows(6, 1_200, rids=3)
    put_rows(conn, rows)
    bytes_max = 30_000
    batches = list(WindowReader(conn, windows_over(rows), rows_max=200, bytes_max=bytes_max))
    sizes = [int(row_bytes(batch).sum()) for batch in batches]
    firsts = [int(row_bytes(batch[:1]).sum()) for batch in batches[1:]]
    for batch, size, following in zip(batches, sizes, firsts, strict=False):
        assert len(batch) == 200 or size + following > bytes_max - 2_048


def test_only_what_lies_in_the_windows_is_read(conn: Connection) -> None:
    rows = random_rows(7, 900, rids=4)
    put_rows(conn, rows)
    of = {rid: [row[0] for row in rows if Csn(row[0]).rid == rid] for rid in (1, 2, 3)}
    windows = {
        1: Window(Csn(of[1][4]), Csn(of[1][-3])),
        2: Window(None, Csn(of[2][len(of[2]) // 2])),
        3: Window(Csn(of[3][-2]), Csn(of[3][-1])),
    }
    wanted = [row for row in rows if (w := windows.get(Csn(row[0]).rid)) is not None and row[0] in w]
    reader = WindowReader(conn, windows, rows_max=50, bytes_max=MIB)
    assert as_rows(reader) == wanted
    assert reader.rows_read == len(wanted)


@pytest.mark.parametrize("seed", range(4))
def test_reader_begun_again_anywhere_gives_the_rest(conn: Connection, seed: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(seed + 20, 600, rids=3)
    put_rows(conn, rows)
    windows = windows_over(rows)
    cut = rng.randrange(len(rows) + 1)
    done = {Csn(row[0]).rid: row[0] for row in rows[:cut]}
    rest = WindowReader(conn, windows, rows_max=40, bytes_max=MIB, start_after=done)
    assert as_rows(rest) == rows[cut:]
    assert rest.rows_read == len(rows) - cut


def test_start_before_a_window_reads_nothing_outside_of_it(conn: Connection) -> None:
    rows = rows_of(csn_at(number, 1) for number in range(10))
    put_rows(conn, rows)
    window = {1: Window(Csn(rows[4][0]), Csn(rows[8][0]))}
    found = WindowReader(conn, window, rows_max=9, bytes_max=MIB, start_after={1: rows[1][0], 2: rows[9][0]})
    assert as_rows(found) == rows[5:9]


def test_rows_of_a_mebibyte_keep_the_bytes_of_batches_and_of_memory(conn: Connection) -> None:
    # Small ones first: pages have grown to thousands of rows when the large ones come.
    sizes = [10] * 4_500 + [MIB, MIB, 1_000] * 30
    rows = rows_of((csn_at(number, 1 + number % 3) for number in range(len(sizes))), sizes=sizes)
    put_rows(conn, rows)
    bytes_max = 4 * MIB
    # What is imported at first use is no matter here.
    next(WindowReader(conn, windows_over(rows), rows_max=1, bytes_max=1))
    tracemalloc.start()
    try:
        reader = WindowReader(conn, windows_over(rows), rows_max=1_000, bytes_max=bytes_max)
        counts, seen = [], []
        for batch in reader:
            assert int(row_bytes(batch).sum()) <= bytes_max
            counts.append(len(batch))
            seen += batch.column("csn").to_pylist()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == [row[0] for row in rows]
    assert counts[0] == 1_000
    assert max(counts[-10:]) <= 6
    # 60 MiB went through it. Python's side holds the rows of a page, on PostgreSQL once more in one piece.
    assert peak < 2 * bytes_max


def test_row_that_is_larger_than_a_batch_comes_alone(conn: Connection) -> None:
    rows = rows_of((csn_at(number, 1) for number in range(5)), sizes=[10, 50_000, 10])
    put_rows(conn, rows)
    batches = list(WindowReader(conn, windows_over(rows), rows_max=100, bytes_max=4_000))
    assert [len(batch) for batch in batches] == [1, 1, 2, 1]
    assert as_rows(batches) == rows


def test_change_that_the_ruv_names_and_the_changelog_lacks_is_told(conn: Connection) -> None:
    rows = rows_of(csn_at(number, 1 + number % 2) for number in range(40))
    put_rows(conn, rows[:-2])
    reader = WindowReader(conn, windows_over(rows), rows_max=10, bytes_max=MIB)
    with pytest.raises(ChangelogIncomplete) as told:
        list(reader)
    assert (told.value.rid, told.value.upto, told.value.last) == (1, rows[-2][0], rows[-4][0])
    with pytest.raises(ChangelogIncomplete) as nothing:
        list(WindowReader(conn, {9: Window(None, csn_at(3, 9))}, rows_max=10, bytes_max=MIB))
    assert nothing.value.last is None


def test_no_windows_are_no_batches(conn: Connection) -> None:
    assert list(WindowReader(conn, {}, rows_max=1, bytes_max=1)) == []


def test_bytes_that_mean_something_elsewhere_come_as_they_are(conn: Connection) -> None:
    odd = [b"\xff\xff", b"PGCOPY\n\xff\r\n\0", b"\\N\t\n", b"", bytes(range(256)), None]
    rows: list[Row] = []
    for number, payload in enumerate(odd):
        link = rows[-1][0] if rows else None
        rows.append((str(csn_at(number, 1)), link, "CHANGE", b"\0d", b"\xff\xff", payload))
    rows.append((str(csn_at(99, 1)), rows[-1][0], "Ü€-" + "k" * 37, b"d", b"k", b"\xff\xff"))
    put_rows(conn, rows)
    assert as_rows(WindowReader(conn, windows_over(rows), rows_max=100, bytes_max=MIB)) == rows


def test_another_connection_may_write_and_checkpoint_between_two_batches(tmp_path: Path) -> None:
    target = sqlite_target(tmp_path)
    rows = rows_of((csn_at(number, 1 + number % 2) for number in range(1_000)), sizes=[900])
    with empty_changelog(target) as conn, opened(target) as other:
        put_rows(conn, rows)
        # Pages end by their bytes here, with rows left that nobody asks for.
        reader = WindowReader(conn, windows_over(rows), rows_max=100, bytes_max=9_000)
        found = as_rows([next(reader)])
        put_rows(other, rows_of(csn_at(number, 3) for number in range(50)))
        # Somebody was in the way, frames in the log, frames that could be moved: a snapshot would keep them.
        [(busy, frames, moved)] = other.execute("pragma wal_checkpoint(full)")
        assert (busy, frames) == (0, moved)
        assert found + as_rows(reader) == rows


def test_trimming_meanwhile_is_no_matter_for_what_was_read(conn: Connection) -> None:
    rows = rows_of(csn_at(number, 1) for number in range(200))
    put_rows(conn, rows)
    reader = WindowReader(conn, windows_over(rows), rows_max=20, bytes_max=MIB)
    first = as_rows([next(reader)])
    conn.execute(f"delete from {tables_of(conn).changelog} where csn <= :csn", {"csn": first[-1][0]})
    assert first + as_rows(reader) == rows


def plan_of(conn: Connection, rid: int) -> str:
    """The plan of a page, as text."""
    page = Page(range_source(conn, rid=rid), {"after": "", "upto": "f" * 20}, rows_max=100, bytes_max=MIB)
    statement = page_statement(conn, page)
    if conn.dialect.name == "sqlite":
        with closing(sqlite3.connect(sqlite_path(conn.target))) as raw, raw:
            found = raw.execute(f"explain query plan {statement}", page.bounds).fetchall()
        raw.close()
        return "\n".join(str(row) for row in found)
    with conn.transaction(read_only=True):
        conn.execute(ONLY_BY_KEY)
        return "\n".join(row[0] for row in conn.execute(f"explain {statement}", page.bounds))


def test_pages_come_by_the_key_without_a_sort_on_a_table_nobody_has_analysed(conn: Connection) -> None:
    put_rows(conn, rows_of(csn_at(number, 1 + number % 2) for number in range(2_000)))
    plan = plan_of(conn, 1)
    if conn.dialect.name == "sqlite":
        assert "SEARCH replica_changelog USING PRIMARY KEY (rid=? AND csn>? AND csn<?)" in plan
        assert "TEMP B-TREE" not in plan
        return
    assert "Index Scan using replica_changelog_pkey" in plan
    assert "Sort" not in plan
    assert "rid = 1" in plan


def scans_of(conn: Connection) -> tuple[int, int]:
    """(sequential scans of the changelog, scans of its key), as PostgreSQL has counted them."""
    [found] = conn.execute(
        "select seq_scan, idx_scan from pg_stat_user_tables where relname = 'replica_changelog'"
    )
    return found


def test_pages_come_by_the_key_though_the_planner_takes_it_for_dear(postgresql_url: str) -> None:
    rows = rows_of(csn_at(number, 1 + number % 2) for number in range(400))
    target = postgresql_target(postgresql_url)
    with empty_changelog(target) as conn:
        put_rows(conn, rows)
        before, _ = scans_of(conn)
        with opened(target) as reading, opened(target) as other:
            reading.execute("select set_config('random_page_cost', '1000000', false)")
            assert as_rows(WindowReader(reading, windows_over(rows), rows_max=50, bytes_max=MIB)) == rows
            reading.close()
            give_up = time.monotonic() + 20
            while not scans_of(other)[1]:
                assert time.monotonic() < give_up, "the scans are never counted"
                time.sleep(0.05)
            assert scans_of(other)[0] == before
