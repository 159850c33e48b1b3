"""The scan for extinct entries: what goes, what stays, counted once, whoever dies at whatever statement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from spark.extinction.slices import (
    Removed,
    begin_scan,
    count_upto,
    cut_slices,
    finish_scan,
    read_slice,
    read_slices,
)
from spark.extinction.unit import SliceMoved, relax_durability, rows_of, run_batch
from spark.formats.extinction import Extinction
from spark.formats.extinction_filter import Filter
from spark.replication.consumer.extinctions import (
    KnownExtinction,
    ScanState,
    find_extinction,
    write_extinction,
)
from spark.targets.connection import Connection, Target
from spark.targets.errors import TargetError
from tests.dying import Dying
from tests.spark.extinction.scanning import scan_slice
from tests.spark.replication.consumer_side import ConsumerSide, consumer_side, target_of
from tests.spark.replication.extinct_keys import ID, SOUND, extinction, local, write
from tests.spark.replication.replica_tables import NOW_S, opened

SIXTH = Filter.parse({"modulo": {"offset": 0, "width": 2, "divisor": 6, "remainder": 1}})


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """A place for a replica."""
    return target_of(request, request.param, tmp_path)


@pytest.fixture
def side(target: Target) -> Iterator[ConsumerSide]:
    """A replica with some entries, every fifth of them deleted."""
    with consumer_side(target) as found:
        fill(found)
        yield found


def fill(side: ConsumerSide, count: int = 300) -> None:
    """Entries of two-byte keys in their order, shuffled."""
    numbers = Random(1).sample(range(count), count)
    write(side.conn, local([(key_of(n), None if n % 5 == 0 else b"v" * (n % 7)) for n in numbers]))


def key_of(number: int) -> bytes:
    """The key of an entry."""
    return number.to_bytes(2, "big")


def expected_of(found: Extinction, before: dict[tuple[bytes, bytes], tuple[bytes | None, str]]) -> Removed:
    """A naive count."""
    gone = [(key, value) for (db, key), (value, _) in before.items() if found.covers(db, key)]
    live = [(key, value) for key, value in gone if value is not None]
    return Removed(len(live), sum(len(key) + len(value) for key, value in live), len(gone) - len(live))


def begin(conn: Connection, found: Extinction, *, rows: int | None = None) -> None:
    """Commit and begin."""
    write_extinction(conn, found, now_s=NOW_S, expected=SOUND)
    assert begin_scan(conn, found.id, list(cut_slices(conn, found, rows=rows)))


def known(conn: Connection, name: str = ID) -> KnownExtinction:
    """What the replica knows of it."""
    found = find_extinction(conn, name)
    assert found is not None
    return found


RANGES = {
    "some": extinction(key_of(40), key_of(201)),
    "open start": extinction(None, key_of(100)),
    "open end": extinction(key_of(100), None),
    "all": extinction(None, None),
    "empty": extinction(b"k", b"k"),
    "beyond": extinction(b"\xff", None),
    "filter": extinction(key_of(10), key_of(290), found=SIXTH),
    "other database": Extinction(ID, frozenset([b"other"]), None, None),
    "two databases": Extinction(ID, frozenset([b"db", b"other"]), None, key_of(50)),
}


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("slice_rows", [None, 64])
def test_what_is_extinct_goes_and_all_else_stays(
    side: ConsumerSide, name: str, slice_rows: int | None
) -> None:
    found, before = RANGES[name], side.entries()
    begin(side.conn, found, rows=slice_rows)
    assert known(side.conn).state is ScanState.SCANNING
    assert finish_scan(side.conn, ID, now_s=7) is None or name == "empty"
    relax_durability(side.conn)
    for part in read_slices(side.conn, found):
        scan_slice(side.conn, part, rows_max=30)
    relax_durability(side.conn, relaxed=False)
    expected = expected_of(found, before)
    after = known(side.conn)
    if name != "empty":
        assert (after.records, after.bytes, after.tombstones) == (
            expected.records,
            expected.bytes,
            expected.tombstones,
        )
    assert finish_scan(side.conn, ID, now_s=7) == expected
    assert finish_scan(side.conn, ID, now_s=9) == expected
    after = known(side.conn)
    assert (after.state, after.records, after.bytes, after.tombstones) == (
        ScanState.DONE,
        expected.records,
        expected.bytes,
        expected.tombstones,
    )
    assert read_slices(side.conn, found) == []
    assert side.entries() == {place: row for place, row in before.items() if not found.covers(*place)}


def test_slices_lie_side_by_side(side: ConsumerSide) -> None:
    found = extinction(key_of(10), key_of(250))
    bounds = list(cut_slices(side.conn, found, rows=100))
    assert bounds == [
        (b"db", key_of(10), key_of(110)),
        (b"db", key_of(110), key_of(210)),
        (b"db", key_of(210), key_of(250)),
    ]
    assert count_upto(side.conn, found, rows_max=1_000) == 240
    assert count_upto(side.conn, found, rows_max=50) == 50


def test_a_batch_looks_at_no_more_rows_than_it_may(side: ConsumerSide) -> None:
    begin(side.conn, extinction(None, None, found=SIXTH))
    [part] = read_slices(side.conn, extinction(None, None, found=SIXTH))
    after = run_batch(side.conn, part, rows_max=30)
    assert (after.cursor_key, after.records + after.tombstones, after.is_done) == (key_of(29), 5, False)
    assert rows_of(side.conn, 10_000) == (200 if side.conn.dialect.name == "sqlite" else 10_000)


def test_of_two_workers_at_one_slice_one_moves_it(side: ConsumerSide) -> None:
    found = extinction(None, None)
    begin(side.conn, found)
    [part] = read_slices(side.conn, found)
    moved = run_batch(side.conn, part, rows_max=10)
    with side.unchanged(), pytest.raises(SliceMoved):
        run_batch(side.conn, part, rows_max=20)
    assert read_slice(side.conn, part) == moved


def test_a_scan_that_has_begun_keeps_its_slices(side: ConsumerSide) -> None:
    found = extinction(None, None)
    begin(side.conn, found, rows=64)
    before = read_slices(side.conn, found)
    assert begin_scan(side.conn, ID, list(cut_slices(side.conn, found, rows=None)))
    assert read_slices(side.conn, found) == before
    assert not begin_scan(side.conn, "ext_nobody", [])
    assert finish_scan(side.conn, "ext_nobody", now_s=1) is None


def whole_scan(conn: Connection, found: Extinction) -> Removed | None:
    """From its commit to its end, from wherever it stands."""
    write_extinction(conn, found, now_s=NOW_S, expected=SOUND)
    if not read_slices(conn, found):
        begin_scan(conn, found.id, list(cut_slices(conn, found, rows=120)))
    for part in read_slices(conn, found):
        scan_slice(conn, part, rows_max=70)
    return finish_scan(conn, found.id, now_s=9)


@pytest.mark.parametrize("after", [False, True])
def test_a_scan_that_dies_at_any_statement_goes_on_and_counts_nothing_twice(
    target: Target, after: bool
) -> None:
    found = extinction(key_of(20), key_of(280), found=SIXTH)
    with consumer_side(target) as side:
        fill(side)
        before = side.entries()
    expected = expected_of(found, before)
    died = 0
    for at in range(1, 400):
        # A process after the other: each dies one statement later than the one before, until one lives.
        with opened(target) as conn:
            dying = Dying(conn._session, at, after=after)
            conn._session = dying
            try:
                removed = whole_scan(conn, found)
            except TargetError:
                died += 1
                continue
            finally:
                conn._session = dying.session
            assert removed == expected
            break
    assert died >= 5
    with opened(target) as conn:
        side = ConsumerSide(conn)
        assert known(conn).state is ScanState.DONE
        assert side.entries() == {place: row for place, row in before.items() if not found.covers(*place)}
        assert len(side.rows("changelog")) == 301
