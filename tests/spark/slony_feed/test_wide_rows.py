"""Rows that are wide: a feed holds some megabytes of them at once, however many rows a unit has."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from spark.targets.connection import Target
from tests.replica_feed import entries_at, feed_once
from tests.slony_cluster import SlonyCluster, slony_server

pytestmark = pytest.mark.slony
ROWS, WIDTH = 2_500, 40_000
"""A hundred megabytes."""
PEAK_MAX = 64 * 2**20


@pytest.fixture(scope="module")
def node(need_slony_programs: None) -> Iterator[SlonyCluster]:
    with slony_server() as (server, directory):
        cluster = SlonyCluster(server, directory, nodes=(1,))
        cluster.initialise()
        cluster.run(1, "create table scan (id integer primary key, is_read boolean, content text)")
        cluster.slonik(
            """
            create set (id=1, origin=1, comment='scans');
            set add table (set id=1, origin=1, id=1, fully qualified name='public.scan');
            """
        )
        cluster.sync(1)
        yield cluster


def peak_of(run: Callable[[], object]) -> int:
    """The most bytes that Python's own objects had at once."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_unit_or_a_copy_of_wide_rows_is_never_held_as_a_whole(
    node: SlonyCluster, sqlite_place: Target
) -> None:
    """The story: five thousand rows were held at once, however wide. Scans of 20 kB each took 600 MB, and an
    UPDATE of one short column as much, for the rows that it looked up."""
    feed_once(sqlite_place, node)
    node.run(1, f"insert into scan select n, false, repeat('x', {WIDTH}) from generate_series(1, {ROWS}) n")
    node.sync(1)
    assert peak_of(lambda: feed_once(sqlite_place, node)) < PEAK_MAX
    node.run(1, "update scan set is_read = true")
    node.sync(1)
    assert peak_of(lambda: feed_once(sqlite_place, node)) < PEAK_MAX
    assert peak_of(lambda: feed_once(sqlite_place, node, first_copy=True, job_id="job_2")) < PEAK_MAX
    entries = [value for key, value in entries_at(sqlite_place).items() if not key.startswith(b"!")]
    assert len(entries) == ROWS
    assert all(b'"is_read":"t"' in value for value in entries)
    del entries
    node.run(1, "truncate scan")
    node.sync(1)
    assert peak_of(lambda: feed_once(sqlite_place, node)) < PEAK_MAX
    assert [key for key in entries_at(sqlite_place) if not key.startswith(b"!")] == []
