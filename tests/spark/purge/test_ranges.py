"""Ranges cover every id once, hold about as many rows as asked, and never depend on holes."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from spark.purge.ranges import Range, next_ranges, step_bounds
from spark.purge.statements import PurgeSpec, Step
from spark.targets.connection import Connection, connect
from tests.oracles.symmetricds import CUTOFF, Place, Rows, build, random_database, reference_database
from tests.spark.purge.outgoing_run import target_of

OLD = CUTOFF - timedelta(days=1)
SPEC = PurgeSpec(str(CUTOFF))
DATA = {"table_name": "item", "event_type": "I", "trigger_hist_id": 1, "create_time": OLD}
BATCH = {"channel_id": "default", "status": "OK", "create_time": OLD}


def _rows(data_ids: list[int], events: list[tuple[int, int]], batches: list[tuple[int, str]]) -> Rows:
    return {
        "data": [{**DATA, "data_id": number} for number in data_ids],
        "data_event": [{"data_id": data, "batch_id": batch} for data, batch in events],
        "outgoing_batch": [{**BATCH, "batch_id": batch, "node_id": node} for batch, node in batches],
    }


def _all(conn: Connection, step: Step, *, rows: int, max_batches: int | None = None) -> list[Range]:
    bounds = step_bounds(conn, step, SPEC)
    assert bounds is not None
    found: list[Range] = []
    after = bounds[0] - 1
    while window := next_ranges(
        conn, step, SPEC, after=after, upto=bounds[1], rows=rows, count=2, max_batches=max_batches
    ):
        assert len(window) <= 2
        found += window
        after = found[-1].hi
    return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path}/sym.db", version="3.x")


def test_sparse_data_ids_make_ranges_of_existing_rows(place: Place) -> None:
    ids = [10, 11, 5_000_000, 5_000_001, 90_000_000, 99_000_000]
    build(place, _rows(ids, [], []))
    with connect(target_of(place), application_name="t") as conn:
        assert step_bounds(conn, "DATA", SPEC) == (10, 90_000_000)
        assert _all(conn, "DATA", rows=2) == [
            Range(10, 11, 2),
            Range(5_000_000, 5_000_001, 2),
            Range(90_000_000, 90_000_000, 1),
        ]


def test_data_routed_to_many_nodes_makes_shorter_ranges(place: Place) -> None:
    # 5 events for each row; a range of 4 rows may reach 12 events.
    events = [(data, batch) for data in range(1, 9) for batch in range(1, 6)]
    build(place, _rows(list(range(1, 10)), events, [(batch, "00001") for batch in range(1, 6)]))
    with connect(target_of(place), application_name="t") as conn:
        found = _all(conn, "DATA", rows=4)
    assert [(item.lo, item.hi, item.rows) for item in found] == [(1, 2, 2), (3, 4, 2), (5, 6, 2), (7, 8, 2)]


def test_single_row_with_more_events_than_a_range_makes_a_range_of_its_own(place: Place) -> None:
    events = [(1, batch) for batch in range(1, 9)] + [(2, 1)]
    build(place, _rows([1, 2, 3], events, [(batch, "00001") for batch in range(1, 9)]))
    with connect(target_of(place), application_name="t") as conn:
        assert _all(conn, "DATA", rows=1) == [Range(1, 1, 1), Range(2, 2, 1)]


def test_events_limit_counts_batches(place: Place) -> None:
    events = [(number, number) for number in range(1, 10)]
    build(place, _rows(list(range(1, 10)), events, [(number, "00001") for number in range(1, 10)]))
    with connect(target_of(place), application_name="t") as conn:
        assert [(item.lo, item.hi) for item in _all(conn, "EVENTS", rows=100, max_batches=3)] == [
            (1, 3),
            (4, 6),
            (7, 8),
        ]


def test_batch_larger_than_a_range_is_not_divided(place: Place) -> None:
    events = [(number, 1) for number in range(1, 10)] + [(1, 2), (1, 3)]
    build(place, _rows(list(range(1, 10)), events, [(1, "00001"), (2, "00001"), (3, "00001")]))
    with connect(target_of(place), application_name="t") as conn:
        found = _all(conn, "EVENTS", rows=2)
    assert [(item.lo, item.hi) for item in found] == [(1, 1), (2, 2)]


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_random_databases_have_every_row_in_exactly_one_range(place: Place, rows: int) -> None:
    made = random_database(Random(5), "3.x", rows=120)
    build(place, made)
    with connect(target_of(place), application_name="t") as conn:
        for step, table, key in (("DATA", "data", "data_id"), ("EVENTS", "data_event", "batch_id")):
            bounds = step_bounds(conn, step, SPEC)
            assert bounds is not None
            ranges = _all(conn, step, rows=rows)
            for row in made[table]:
                holding = [item for item in ranges if item.lo <= row[key] <= item.hi]
                assert len(holding) == int(bounds[0] <= row[key] <= bounds[1])
            assert all(one.hi < other.lo for one, other in pairwise(ranges))


@pytest.mark.parametrize(("version", "bounds"), [("2.x", (10, 1037)), ("3.x", (10, 1037))])
def test_reference_databases_have_the_documents_range_of_batches(
    version: str, bounds: tuple[int, int]
) -> None:
    place = Place(f"sqlite:///{reference_database(version)}")  # type: ignore[arg-type]
    spec = PurgeSpec("2026-11-01 10:00:00")
    with connect(target_of(place), application_name="t", read_only=True) as conn:
        assert step_bounds(conn, "EVENTS", spec) == bounds
        assert step_bounds(conn, "BATCHES", spec) == bounds


@pytest.mark.parametrize("step", ["STRANDED", "DATA", "EVENTS", "BATCHES"])
def test_empty_tables_have_no_bounds(place: Place, step: Step) -> None:
    build(place, {})
    with connect(target_of(place), application_name="t") as conn:
        assert step_bounds(conn, step, SPEC) is None
