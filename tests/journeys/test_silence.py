"""PAUSED and ABORTED come when the database's own activity view shows no statement of the job, not before."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from lethe_client import Lethe

from tests.journeys.crashes import build_large
from tests.journeys.ground import (
    add_store,
    assert_exact,
    connection_to,
    expect,
    fingerprint,
    purge_request,
)
from tests.journeys.service import Service, await_job, succeeded, until
from tests.oracles.symmetricds import Place, snapshot
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.journey

QUIET_S = 0.6
LATENCY_MAX_S = 4.0
ACTIVE_SQL = (
    "select application_name, state, query from pg_stat_activity "
    "where application_name like %s and state <> 'idle'"
)


class ActivityWatch(threading.Thread):
    """Looks at pg_stat_activity all the time: (begun, what was active)."""

    def __init__(self, url: str, job_id: str) -> None:
        super().__init__(daemon=True)
        self._url, self._like = url, f"{job_id}:%"
        self._ended = threading.Event()
        self.looks: list[tuple[float, list[tuple[str, str, str]]]] = []

    def run(self) -> None:
        """Look until told to end."""
        with connection_to(self._url) as connection:
            while not self._ended.is_set():
                begun = time.monotonic()
                self.looks.append((begun, connection.execute(ACTIVE_SQL, (self._like,)).fetchall()))
                time.sleep(0.001)

    def finish(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join(10)

    def active_after(self, moment: float) -> list[tuple[str, str, str]]:
        """What was seen by looks that began after the moment."""
        return [row for begun, rows in self.looks if begun > moment for row in rows]


@contextmanager
def watched(url: str, job_id: str) -> Iterator[ActivityWatch]:
    """A watch for the time of the block."""
    watch = ActivityWatch(url, job_id)
    watch.start()
    try:
        yield watch
    finally:
        watch.finish()


def _order(client: Lethe, place: Place, job_id: str, order: str) -> float:
    """Pause or abort; nothing is active or written from the moment the state is seen. The latency."""
    wanted = {"pause": "PAUSED", "abort": "ABORTED"}[order]
    with watched(place.url, job_id) as watch:
        until(lambda: watch.looks)
        begun = time.monotonic()
        state = getattr(client.jobs, order)(job_id).state
        while state != wanted:
            assert time.monotonic() - begun < LATENCY_MAX_S, state
            state = client.jobs.get(job_id).state
        seen = time.monotonic()
        rows = fingerprint(place)
        time.sleep(QUIET_S)
        assert fingerprint(place) == rows, "something was written after the end"
    assert watch.active_after(seen) == []
    assert any(active for _, active in watch.looks), "the watch has seen the job at work"
    return seen - begun


@pytest.fixture(scope="module")
def place(standing_postgresql: PostgresqlServer) -> Place:
    """One database; each test aborts its purge before the rows are used up."""
    made = Place(standing_postgresql.create_database("silence"))
    build_large(made, 8, rows=8_000)
    return made


def test_paused_and_aborted_show_no_statement_of_the_job(standing_service: Service, place: Place) -> None:
    """Paused and resumed three times in full work, then aborted: silent and unchanged each time."""
    client = standing_service.client
    add_store(client, "silent", place)
    request = purge_request(place, archive=True, max_rows_in_tx=50, rows_per_s=2_000)
    job = client.purges.create("silent", request)
    latencies = []
    for _ in range(3):
        done = client.jobs.get(job.id).progress.done
        until(lambda done=done: client.jobs.get(job.id).progress.done > done)
        latencies.append(_order(client, place, job.id, "pause"))
        client.jobs.resume(job.id)
    done = client.jobs.get(job.id).progress.done
    until(lambda: client.jobs.get(job.id).progress.done > done)
    aborted_s = _order(client, place, job.id, "abort")
    print(f"pause {[round(each, 3) for each in latencies]} s, abort {aborted_s:.3f} s")
    result = client.jobs.get(job.id).result
    assert result is not None
    assert client.archives.get(job.id).rows == sum(result["removed"].values())
    # The rest goes with the next purge, to the rows of one purge.
    expected = expect(place, snapshot(place))
    following = client.purges.create("silent", purge_request(place))
    assert_exact(place, expected, succeeded(client, following.id))


@pytest.mark.parametrize("order", ["pause", "abort"])
def test_order_ends_a_unit_that_is_blocked_by_somebody_elses_lock(
    standing_service: Service, standing_postgresql: PostgresqlServer, order: str
) -> None:
    """The test's own session holds the rows; the order is carried out while it still does."""
    client, store = standing_service.client, f"blocked-{order}"
    place = Place(standing_postgresql.create_database(f"blocked_{order}"))
    build_large(place, 9, rows=400)
    add_store(client, store, place)
    expected = expect(place, snapshot(place))
    with connection_to(place.url) as holder, connection_to(place.url) as look:
        with holder.transaction():
            holder.execute("select 1 from sym_outgoing_batch for update")
            job = client.purges.create(store, purge_request(place))
            waiting = (
                "select count(*) from pg_stat_activity "
                "where application_name like %s and wait_event_type = 'Lock'"
            )
            until(lambda: look.execute(waiting, (f"{job.id}:%",)).fetchone()[0], pause_s=0.002)
            latency_s = _order(client, place, job.id, order)
            print(f"{order} of a blocked unit: {latency_s:.3f} s")
        if order == "pause":
            client.jobs.resume(job.id)
            assert_exact(place, expected, succeeded(client, job.id))


def test_sqlite_job_is_aborted_only_when_nobody_can_be_writing(
    standing_service: Service, tmp_path: Path
) -> None:
    """Another program holds SQLite's one write lock: silence is proved when it lets go, and said then."""
    client = standing_service.client
    file = tmp_path / "busy.db"
    place = Place(f"sqlite:///{file}")
    build_large(place, 10, rows=1_000)
    add_store(client, "busy-sqlite", place)
    job = client.purges.create("busy-sqlite", purge_request(place, rows_per_s=500))
    until(lambda: client.jobs.get(job.id).progress.removed)
    with closing(sqlite3.connect(file, isolation_level=None, timeout=10)) as holder:
        holder.execute("begin immediate")
        rows = fingerprint(place)
        client.jobs.abort(job.id)
        time.sleep(2.0)
        assert client.jobs.get(job.id).state == "ABORTING"
        assert fingerprint(place) == rows
        holder.execute("rollback")
    assert await_job(client, job.id, timeout_s=15).state == "ABORTED"
    rows = fingerprint(place)
    time.sleep(QUIET_S)
    assert fingerprint(place) == rows
