"""Purges on Spark: the oracle's rows, kills at random moments, aborts that leave nothing behind.

And of a fleet: one request over many stores, a child for each, their units together, results per store.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

import pytest
from lethe_client import Lethe

from tests.journeys.crashes import CRASHING, CrashedPurge, build_large
from tests.journeys.ground import (
    Expected,
    add_store,
    assert_exact,
    connection_to,
    expect,
    fingerprint,
    purge_request,
)
from tests.journeys.random_cases import Lane, run_case
from tests.journeys.service import Service, await_job, serving, succeeded, until
from tests.journeys.spark_processes import descendants_of, ended, kill_jvm, kill_worker
from tests.oracles.symmetricds import Place, snapshot
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.journey

SPARK = {
    **CRASHING,
    "LETHE_ENGINE": "SPARK",
    "LETHE_SPARK__START": "EAGER",
    "LETHE_SPARK__CORES": "2",
    "LETHE_SPARK__DRIVER_MEMORY": "512m",
    "LETHE_SPARK__JAVA_OPTIONS": '["-XX:TieredStopAtLevel=1"]',
    "LETHE_PURGE_WORKERS": "2",
    "LETHE_RUNNER_JOBS_MAX": "2",
}
JOB_TIMEOUT_S = 240.0
ABORT_MAX_S = 8.0
STOP_MAX_S = 15.0
QUIET_S = 4.0
"""Longer than a cancelled worker of Spark lives."""

FLEET = {"fleet": "north"}
ON_SQLITE = 3
ON_POSTGRESQL = 1
ROWS = 600

LOCKED_SQL = (
    "select count(*) from pg_stat_activity where application_name like %s and wait_event_type = 'Lock'"
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service and one JVM for all of this; what a test kills comes back by itself.

    It has room for two jobs of its own: what runs beside them runs on Spark.
    """
    with serving(tmp_path_factory.mktemp("spark") / "service", SPARK) as made:
        yield made
        below = descendants_of(made.pid)
        begun = time.monotonic()
        assert made.stop() == 0
        print(f"stopped within {time.monotonic() - begun:.1f} s")
        assert time.monotonic() - begun < STOP_MAX_S
        until(lambda: ended(below), timeout_s=10)


def _events(client: Lethe, job_id: str) -> list[dict[str, object]]:
    return [dict(event.data) for event in client.jobs.events(job_id) if event.type == "engine"]


def _done(client: Lethe, job_id: str) -> int:
    progress = client.jobs.get(job_id).progress
    return 0 if progress is None else progress.done


def _run_lanes(service: Service, directory: Path, url: str, seeds: range, *, lanes: int) -> list[str]:
    stores = count()
    made = [Lane(service.client, directory, number, url, stores) for number in range(lanes)]

    def run(lane: Lane) -> list[str]:
        return [run_case(lane, seed) for seed in seeds[lane.number :: lanes]]

    with ThreadPoolExecutor(lanes) as pool:
        return [job_id for jobs in pool.map(run, made) for job_id in jobs]


def test_abort_of_a_job_that_waits_for_the_pool_is_quick(service: Service, tmp_path: Path) -> None:
    """Its units lie in the queue of a pool that has no JVM yet: the job says so, and stays stoppable."""
    client = service.client
    place = Place(f"sqlite:///{tmp_path}/queued.db")
    build_large(place, 71, rows=400)
    add_store(client, "spark-queued", place)
    if client.spark_pool.get().raw["state"] == "READY":  # not where this comes first
        client.spark_pool.recycle(force=True, reason="test")
    job = client.purges.create("spark-queued", purge_request(place))
    # Until a runner takes it, it waits for one.
    until(lambda: "SPARK_POOL" in str(client.jobs.get(job.id).raw["waiting_on"]), timeout_s=20)
    print(f"abort in the queue: {_abort(client, place, job.id):.2f} s")
    again = client.purges.create("spark-queued", purge_request(place))
    succeeded(client, again.id, timeout_s=JOB_TIMEOUT_S)


def _places(postgresql: PostgresqlServer, directory: Path) -> dict[str, Place]:
    places = {f"lite-{n}": Place(f"sqlite:///{directory}/{n}.db") for n in range(ON_SQLITE)}
    return places | {
        f"post-{n}": Place(postgresql.create_database(f"fleet_{n}")) for n in range(ON_POSTGRESQL)
    }


def _register(client: Lethe, places: dict[str, Place]) -> dict[str, Expected]:
    expected = {}
    for number, (name, place) in enumerate(places.items()):
        build_large(place, 900 + number, rows=ROWS)
        add_store(client, name, place, labels=FLEET)
        expected[name] = expect(place, snapshot(place))
    return expected


def test_fleet_is_purged_together_and_a_store_that_fails_stops_nobody(
    service: Service, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """All rows as the oracle says; more stores at once than the service has room for in its own process."""
    client = service.client
    places = _places(standing_postgresql, tmp_path)
    expected = _register(client, places)
    empty = tmp_path / "empty.db"
    with closing(sqlite3.connect(empty)) as db:
        db.execute("create table unrelated (id integer)")
    client.stores.create("broken", f"sqlite:///{empty}", kind="SYMMETRICDS", labels=FLEET)
    request = purge_request(next(iter(places.values())), max_rows_in_tx=100, archive=True)
    parent = client.jobs.batch(kind="PURGE", params=request.document(), labels=FLEET)
    most = 0

    def look() -> bool:
        nonlocal most
        most = max(most, client.spark_pool.get().raw["exchange"]["jobs"])
        return client.jobs.get(parent.id).ended

    until(look, timeout_s=JOB_TIMEOUT_S, pause_s=0.05)
    ended = await_job(client, parent.id, timeout_s=5)
    assert (ended.state, ended.error.code) == ("FAILED", "CHILDREN_FAILED")  # type: ignore[union-attr]
    stores = (ended.result or {})["stores"]
    assert {name: child["state"] for name, child in stores.items()} == {
        **dict.fromkeys(places, "SUCCEEDED"),
        "broken": "FAILED",
    }
    assert stores["broken"]["error"]["code"]
    for name, place in places.items():
        child = client.jobs.get(stores[name]["job_id"])
        assert stores[name]["engine"] == "SPARK"
        assert_exact(place, expected[name], dict(child.result or {}))
        verified = await_job(client, client.archives.verify(child.id).id, timeout_s=60)
        assert verified.state == "SUCCEEDED"
    exchange = client.spark_pool.get().raw["exchange"]
    assert most > 2, "jobs on Spark leave room for others"
    assert exchange["spark_jobs"] < exchange["units_done"] / 2, "units go together"


def test_abort_of_a_fleet_ends_every_child(
    service: Service, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """The parent is ABORTED only when all its children are."""
    client = service.client
    labels = {"fleet": "south"}
    for number in range(4):
        place = Place(f"sqlite:///{tmp_path}/south-{number}.db")
        build_large(place, 950 + number, rows=ROWS)
        add_store(client, f"south-{number}", place, labels=labels)
    request = purge_request(place, max_rows_in_tx=20, rows_per_s=200)
    parent = client.jobs.batch(kind="PURGE", params=request.document(), labels=labels)
    until(lambda: client.spark_pool.get().raw["exchange"]["units_under_way"] > 0, timeout_s=60)
    client.jobs.abort(parent.id)
    assert await_job(client, parent.id, timeout_s=30).state == "ABORTED"
    children = client.jobs.list(parent=parent.id)
    assert {child.state for child in children} == {"ABORTED"}


@pytest.mark.long  # one at a time: tests/seeds/test_symmetricds_purge_http_random.py
def test_random_databases_purged_on_spark_are_as_the_oracle_says(
    service: Service, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """Several stores at once in one service, on PostgreSQL and SQLite: rows, counts, plans and archives."""
    url = standing_postgresql.create_database("spark_random")
    jobs = _run_lanes(service, tmp_path, url, range(7000, 7002), lanes=2)
    ran = [service.client.jobs.get(job_id) for job_id in jobs]
    assert {job.raw["engine"] for job in ran} == {"SPARK"}
    assert [event["reason"] for event in _events(service.client, jobs[0])] == ["REQUESTED"]


@pytest.mark.long  # the purge: tests/seeds; the silence of an abort there: test_mariadb.py
def test_mariadb_is_purged_and_aborted_on_spark_as_the_others(service: Service, mariadb_url: str) -> None:
    """Aborted at work, silent, and brought to the oracle's rows by the next purge; the archives are exact."""
    client, place = service.client, Place(mariadb_url)
    build_large(place, 23, rows=3_000)
    add_store(client, "spark-mariadb", place)
    first = client.purges.create(
        "spark-mariadb", purge_request(place, archive=True, max_rows_in_tx=50, rows_per_s=1_500)
    )
    until(lambda: _done(client, first.id) > 300)
    begun = time.monotonic()
    client.jobs.abort(first.id)
    assert await_job(client, first.id, timeout_s=30).state == "ABORTED"
    print(f"abort on MariaDB: {time.monotonic() - begun:.2f} s")
    rows = snapshot(place)
    time.sleep(QUIET_S)
    assert snapshot(place) == rows, "something was written after the end"
    result = client.jobs.get(first.id).result
    assert result is not None
    assert client.archives.get(first.id).rows == sum(result["removed"].values())
    expected = expect(place, rows)
    following = client.purges.create("spark-mariadb", purge_request(place, archive=True))
    assert_exact(place, expected, succeeded(client, following.id, timeout_s=JOB_TIMEOUT_S))
    assert client.archives.get(following.id).rows == sum(expected.counts.values())
    assert client.jobs.get(following.id).raw["engine"] == "SPARK"


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_random_databases_purged_on_spark_are_as_the_oracle_says(
    service: Service, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """The same with more seeds."""
    url = standing_postgresql.create_database("spark_random_long")
    _run_lanes(service, tmp_path, url, range(70_000, 70_200), lanes=4)


def test_stop_in_the_middle_of_a_purge_on_spark_gives_it_back(
    service: Service, standing_postgresql: PostgresqlServer
) -> None:
    """SIGTERM: exit 0 in time, no process left; the next start goes on to the oracle's rows."""
    client = service.client
    place = Place(standing_postgresql.create_database("spark_stop"))
    build_large(place, 21, rows=1_500)
    add_store(client, "spark-stop", place)
    expected = expect(place, snapshot(place))
    job = client.purges.create("spark-stop", purge_request(place, max_rows_in_tx=50, rows_per_s=500))
    until(lambda: _done(client, job.id) > 150, timeout_s=JOB_TIMEOUT_S, pause_s=0.1)
    below, begun = descendants_of(service.pid), time.monotonic()
    assert service.stop() == 0
    print(f"stopped at work within {time.monotonic() - begun:.1f} s")
    assert time.monotonic() - begun < STOP_MAX_S
    until(lambda: ended(below), timeout_s=10)
    service.start()
    assert_exact(place, expected, succeeded(client, job.id, timeout_s=JOB_TIMEOUT_S))
    assert client.jobs.get(job.id).raw["crash_count"] == 0


@dataclass
class Killing:
    """Kills below one service, one at a time: while it comes back nobody else may kill it."""

    service: Service
    rng: Random
    guard: threading.Lock

    def worker(self) -> None:
        """kill -9 of a Python worker."""
        with self.guard:
            until(lambda: kill_worker(self.service.pid, self.rng), timeout_s=60)

    def jvm(self) -> None:
        """kill -9 of the JVM."""
        with self.guard:
            until(lambda: kill_jvm(self.service.pid), timeout_s=60)

    def service_itself(self) -> None:
        """kill -9 of the service: its JVM and workers are gone at once."""
        with self.guard:
            below = descendants_of(self.service.pid)
            self.service.kill9()
            until(lambda: ended(below), timeout_s=10)
            self.service.start()


def _crash(
    killing: Killing, place: Place, directory: Path, *, seed: int, names: Sequence[str]
) -> Counter[str]:
    """Kill what is named, each once, below a purge."""
    build_large(place, seed, rows=2_000)
    purge = CrashedPurge(killing.service.client, f"crashed-{seed}", place, directory, killing.rng)
    known = {"worker": killing.worker, "jvm": killing.jvm, "service": killing.service_itself}
    purge.run({name: known[name] for name in names}, kills=len(names))
    return purge.kills


def test_kills_below_a_purge_on_spark_leave_rows_ledger_and_archive_exact(
    service: Service, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """kill -9 of a Python worker, of the JVM and of the service, each once: the purge goes on."""
    killing = Killing(service, Random(30), threading.Lock())
    place = Place(standing_postgresql.create_database("spark_killed_once"))
    kills = _crash(killing, place, tmp_path, seed=30, names=["worker", "jvm", "service"])
    assert kills.total() >= 2, kills


@pytest.mark.long
def test_kills_below_two_purges_on_spark_leave_rows_ledger_and_archive_exact(
    service: Service, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """The same while two purges run: both go on."""
    killing = Killing(service, Random(31), threading.Lock())
    on_postgresql = Place(standing_postgresql.create_database("spark_killed"))
    on_sqlite = Place(f"sqlite:///{tmp_path}/killed.db", "2.x")
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(_crash, killing, on_postgresql, tmp_path, seed=31, names=["worker", "jvm"])
        # In this thread: a service ends with the thread that has started it.
        kills = _crash(killing, on_sqlite, tmp_path, seed=32, names=["worker", "service"])
        kills += beside.result()
    print(kills, service.client.spark_pool.get().raw["exchange"])
    assert kills.total() >= 3, kills


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_kills_leave_rows_ledger_and_archive_exact(
    service: Service, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """The same, until sixty kills have met a running job."""
    kills: Counter[str] = Counter()
    killing = Killing(service, Random(500), threading.Lock())
    seed = 500
    while kills.total() < 60:
        seed += 1
        place = Place(standing_postgresql.create_database(f"spark_killed_{seed}"))
        kills += _crash(killing, place, tmp_path, seed=seed, names=["worker", "jvm", "service"])
    print(kills)


def _abort(client: Lethe, place: Place, job_id: str) -> float:
    """Abort; nothing of the job is at work or written from the moment ABORTED is seen. The latency."""
    begun = time.monotonic()
    client.jobs.abort(job_id)
    assert await_job(client, job_id, timeout_s=30).state == "ABORTED"
    latency_s = time.monotonic() - begun
    rows = fingerprint(place)
    if place.dialect == "postgresql":
        with connection_to(place.url) as look:
            query = "select application_name, state from pg_stat_activity where application_name like %s"
            assert look.execute(query, (f"{job_id}:%",)).fetchall() == []
    time.sleep(QUIET_S)
    assert fingerprint(place) == rows, "something was written after the end"
    assert latency_s < ABORT_MAX_S
    return latency_s


def test_abort_of_a_purge_at_work_on_spark_is_silent(
    service: Service, standing_postgresql: PostgresqlServer
) -> None:
    """In the middle of many units; the next purge brings the rest to the oracle's rows."""
    client = service.client
    place = Place(standing_postgresql.create_database("spark_abort"))
    build_large(place, 51, rows=4_000)
    add_store(client, "spark-abort", place)
    job = client.purges.create("spark-abort", purge_request(place, archive=True, max_rows_in_tx=50))
    until(lambda: _done(client, job.id) > 500)
    print(f"abort at work: {_abort(client, place, job.id):.2f} s")
    result = client.jobs.get(job.id).result
    assert result is not None
    assert client.archives.get(job.id).rows == sum(result["removed"].values())
    expected = expect(place, snapshot(place))
    following = client.purges.create("spark-abort", purge_request(place))
    assert_exact(place, expected, succeeded(client, following.id, timeout_s=JOB_TIMEOUT_S))


def test_abort_of_a_unit_that_is_blocked_in_a_statement_is_bounded(
    service: Service, standing_postgresql: PostgresqlServer
) -> None:
    """Somebody else holds the rows; a purge beside it in the same job of Spark goes on unharmed."""
    client = service.client
    blocked, beside = (Place(standing_postgresql.create_database(f"spark_blocked_{n}")) for n in (1, 2))
    for number, place in enumerate((blocked, beside)):
        build_large(place, 61 + number, rows=1_000)
        add_store(client, f"spark-blocked-{number}", place)
    expected = expect(beside, snapshot(beside))
    with connection_to(blocked.url) as holder, connection_to(blocked.url) as look, holder.transaction():
        holder.execute("select 1 from sym_outgoing_batch for update")
        job = client.purges.create("spark-blocked-0", purge_request(blocked))
        other = client.purges.create("spark-blocked-1", purge_request(beside, max_rows_in_tx=50))
        until(lambda: look.execute(LOCKED_SQL, (f"{job.id}:%",)).fetchone()[0], pause_s=0.002)  # type: ignore[index]
        print(f"abort of a blocked unit: {_abort(client, blocked, job.id):.2f} s")
    assert_exact(beside, expected, succeeded(client, other.id, timeout_s=JOB_TIMEOUT_S))
