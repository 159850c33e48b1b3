"""Slices of a window: of about equal size, side by side; their batches are those of one reader, in order."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from spark.formats.changes.batch import decode_arrow
from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.records import record_schema
from spark.replication.run import MapSlices, SlicedReader, slice_work, spool_folder
from spark.replication.supplier.changelog_pages import ChangelogIncomplete
from spark.replication.supplier.decide import Window
from spark.replication.supplier.slices import Bounds, Slice, SpooledSlice, plan_slices, ranges_of, spool_slice
from spark.replication.supplier.window import WindowReader
from spark.targets.connection import Connection
from spark.targets.errors import ArchiveFailed, TargetCancelled, TargetLockTimeout
from spark.targets.work import Outcome, do_unit, open_worker
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
from tests.spark.replication.replica_tables import DIALECTS, SHORT_WAITS, opened

MIB = 1_048_576


@pytest.fixture(params=DIALECTS)
def conn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    with empty_changelog(target_of(request, tmp_path)) as found:
        yield found


def log(count: int, *, rids: int = 3, sizes: tuple[int | None, ...] = (None, 5, 40)) -> list[Row]:
    """Replicas that write by turns for a while, and alone for a while."""
    rng = random.Random(count)
    weights = [[rng.randrange(1, 20) for _ in range(rids)] for _ in range(4)]
    csns = set()
    for number in range(count):
        [rid] = rng.choices(range(1, rids + 1), weights[4 * number // count])
        csns.add(csn_at(number, rid))
    return rows_of(csns, sizes=sizes)


def mapped(
    conn: Connection,
    folder: str,
    bounds: Bounds,
    *,
    order: Callable[[list[int]], None] = lambda _numbers: None,
    round_of: int = 3,
) -> MapSlices:
    """An engine that does slices in rounds, each on its own connection, and ends them in a chosen order."""
    work = slice_work(
        conn.target, limits=SHORT_WAITS, application_name="lethe-test", folder=folder, bounds=bounds
    )

    def run(units: Iterator[Slice]) -> Iterator[Outcome[Slice, SpooledSlice]]:
        while chosen := list(islice(units, round_of)):
            places = list(range(len(chosen)))
            order(places)
            for place in places:
                sent = pickle.loads(pickle.dumps((work, chosen[place])))
                with open_worker(sent[0]) as worker:
                    outcome = do_unit(sent[0], lambda worker=worker: worker, sent[1])
                yield pickle.loads(pickle.dumps(outcome))

    return run


def sliced(
    conn: Connection, windows: dict[int, Window], bounds: Bounds, folder: str, **options: object
) -> tuple[SlicedReader, list[pa.RecordBatch]]:
    """All batches of a sliced window, each as it would be read by the consumer."""
    reader = SlicedReader(
        conn, windows, bounds=bounds, map_slices=mapped(conn, folder, bounds, **options), ahead=4
    )
    found = []
    for batch in reader:
        records = decode_arrow(
            batch.body, record_schema(), rows_max=bounds.rows_max, bytes_max=bounds.bytes_max
        )
        assert records.equals(batch.records())
        assert (batch.rows, batch.ranges) == (len(records), ranges_of(records))
        found.append(records)
    return reader, found


def test_slices_are_of_about_equal_size_and_leave_nothing_out(conn: Connection) -> None:
    rows = log(6_000)
    put_rows(conn, rows)
    bounds = Bounds(rows_max=500, bytes_max=MIB, slice_rows=600)
    slices = list(plan_slices(conn, windows_over(rows), bounds))
    counts = [len(as_rows(each.reader(conn, bounds))) for each in slices]
    assert sum(counts) == len(rows)
    assert [row for each in slices for row in as_rows(each.reader(conn, bounds))] == rows
    assert len(slices) == pytest.approx(len(rows) / 600, abs=2)
    assert all(400 <= count <= 800 for count in counts[:-1])
    assert [each.above for each in slices[1:]] == [each.upto for each in slices[:-1]]


def test_slices_of_large_values_are_cut_by_their_bytes(conn: Connection) -> None:
    rows = log(300, sizes=(20_000,))
    put_rows(conn, rows)
    bounds = Bounds(rows_max=500, bytes_max=MIB, slice_rows=100_000, slice_bytes=500_000)
    slices = list(plan_slices(conn, windows_over(rows), bounds))
    # The first steps are taken before anybody knows how large the rows are.
    sizes = [sum(len(row[5] or b"") for row in as_rows(each.reader(conn, bounds))) for each in slices]
    assert len(slices) > 3
    assert max(sizes[1:]) <= 1_000_000
    assert [row for each in slices for row in as_rows(each.reader(conn, bounds))] == rows


def test_small_windows_are_one_slice(conn: Connection) -> None:
    rows = log(50)
    put_rows(conn, rows)
    [only] = plan_slices(conn, windows_over(rows), Bounds(rows_max=10, bytes_max=MIB))
    assert as_rows(only.reader(conn, Bounds(rows_max=10, bytes_max=MIB))) == rows


@pytest.mark.parametrize("order", [list.reverse, random.Random(5).shuffle, lambda _numbers: None])
def test_batches_are_those_of_one_reader_in_whatever_order_slices_end(
    conn: Connection, tmp_path: Path, order: Callable[[list[int]], None]
) -> None:
    rows = log(3_000)
    put_rows(conn, rows)
    bounds = Bounds(rows_max=90, bytes_max=9_000, slice_rows=250)
    with spool_folder(tmp_path) as folder:
        reader, found = sliced(conn, windows_over(rows), bounds, folder, order=order)
        assert os.listdir(folder) == []
    inline = WindowReader(conn, windows_over(rows), rows_max=90, bytes_max=9_000)
    assert as_rows(found) == as_rows(inline) == rows
    assert reader.rows_read == inline.rows_read == len(rows)
    assert reader.read == inline.read
    assert reader.slices > 8


def test_only_the_windows_are_sliced(conn: Connection, tmp_path: Path) -> None:
    rows = log(1_500)
    put_rows(conn, rows)
    of = {rid: [Csn(row[0]) for row in rows if Csn(row[0]).rid == rid] for rid in (1, 2, 3)}
    windows = {1: Window(of[1][20], of[1][-30]), 3: Window(None, of[3][len(of[3]) // 2])}
    bounds = Bounds(rows_max=50, bytes_max=MIB, slice_rows=100)
    with spool_folder(tmp_path) as folder:
        reader, found = sliced(conn, windows, bounds, folder)
    wanted = [row for row in rows if (w := windows.get(Csn(row[0]).rid)) is not None and row[0] in w]
    assert as_rows(found) == wanted
    assert reader.rows_read == len(wanted)


def test_spool_holds_no_more_slices_than_ahead(conn: Connection, tmp_path: Path) -> None:
    rows = log(2_000)
    put_rows(conn, rows)
    bounds = Bounds(rows_max=20, bytes_max=MIB, slice_rows=100)
    with spool_folder(tmp_path) as folder:
        reader = SlicedReader(
            conn,
            windows_over(rows),
            bounds=bounds,
            # The first of each round is the slowest: everything else is there before it.
            map_slices=mapped(conn, folder, bounds, order=list.reverse, round_of=50),
            ahead=3,
        )
        most = 0
        for _ in reader:
            most = max(most, len(os.listdir(folder)))
        assert most == 3
        assert reader.slices > 12


def test_file_that_is_full_leaves_the_rest_to_the_driver(conn: Connection, tmp_path: Path) -> None:
    rows = rows_of((csn_at(number, 1 + number % 2) for number in range(120)), sizes=[3_000, 10, 2_000])
    put_rows(conn, [(*row[:5], random.Random(row[0]).randbytes(len(row[5] or b""))) for row in rows])
    bounds = Bounds(rows_max=10, bytes_max=50_000, slice_rows=60, file_max_bytes=40_000)
    with spool_folder(tmp_path) as folder:
        reader, found = sliced(conn, windows_over(rows), bounds, folder)
    assert [row[:5] for row in as_rows(found)] == [row[:5] for row in rows]
    # What a worker had read beyond its file was read again, and is counted.
    assert reader.rows_read > len(rows)


def test_hole_at_a_windows_end_is_told_behind_what_is_there(conn: Connection, tmp_path: Path) -> None:
    rows = log(900)
    put_rows(conn, rows)
    last = {Csn(row[0]).rid: row[0] for row in rows}
    conn.execute(f"delete from {tables_of(conn).changelog} where csn = :csn", {"csn": last[2]})
    bounds = Bounds(rows_max=50, bytes_max=MIB, slice_rows=100)
    with spool_folder(tmp_path) as folder, pytest.raises(ChangelogIncomplete) as told:
        sliced(conn, windows_over(rows), bounds, folder)
    assert (told.value.rid, told.value.upto) == (2, last[2])


def test_worker_that_does_not_see_the_folder_reads_nothing(conn: Connection, tmp_path: Path) -> None:
    bounds = Bounds(rows_max=50, bytes_max=MIB)
    elsewhere = str(tmp_path / "on another machine")
    work = slice_work(
        conn.target, limits=SHORT_WAITS, application_name="lethe-test", folder=elsewhere, bounds=bounds
    )
    with pytest.raises(ArchiveFailed, match="shared storage"):
        open_worker(work)


def test_errors_of_a_slice_are_the_readers(conn: Connection, tmp_path: Path) -> None:
    rows = log(500)
    put_rows(conn, rows)

    def failing(units: Iterator[Slice]) -> Iterator[Outcome[Slice, SpooledSlice]]:
        yield Outcome(next(units), None, TargetLockTimeout("busy"), 0.0)

    bounds = Bounds(rows_max=50, bytes_max=MIB, slice_rows=100)
    reader = SlicedReader(conn, windows_over(rows), bounds=bounds, map_slices=failing)
    with pytest.raises(TargetLockTimeout):
        list(reader)


def test_attempts_write_files_of_their_own_and_a_failed_one_leaves_none(
    conn: Connection, tmp_path: Path
) -> None:
    rows = log(300)
    put_rows(conn, rows)
    bounds = Bounds(rows_max=50, bytes_max=MIB)
    [unit] = plan_slices(conn, windows_over(rows), bounds)
    first = spool_slice(conn, unit, folder=str(tmp_path), bounds=bounds)
    second = spool_slice(conn, unit, folder=str(tmp_path), bounds=bounds)
    assert first.path != second.path
    assert Path(first.path).read_bytes() == Path(second.path).read_bytes()
    assert Path(first.path).stat().st_mode & 0o777 == 0o600
    before = set(os.listdir(tmp_path))
    with opened(conn.target) as other:
        other.cancel()
        with pytest.raises(Exception, match="cancelled"):
            spool_slice(other, unit, folder=str(tmp_path), bounds=bounds)
    assert set(os.listdir(tmp_path)) == before


def test_folder_goes_with_everything_in_it(tmp_path: Path) -> None:
    with spool_folder(tmp_path) as folder:
        Path(folder, "left behind").touch()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_engine_that_drops_slices_ends_the_reading(conn: Connection, tmp_path: Path, taken: int) -> None:
    rows = log(900)
    put_rows(conn, rows)
    bounds = Bounds(rows_max=50, bytes_max=MIB, slice_rows=100)
    with spool_folder(tmp_path) as folder:
        engine = mapped(conn, folder, bounds, round_of=1)

        def stopped(units: Iterator[Slice]) -> Iterator[Outcome[Slice, SpooledSlice]]:
            drawn = list(islice(units, taken + 1 if taken else 0))
            yield from engine(iter(drawn[:taken]))

        reader = SlicedReader(conn, windows_over(rows), bounds=bounds, map_slices=stopped)
        with pytest.raises(TargetCancelled):
            list(reader)
        assert reader.slices == taken
