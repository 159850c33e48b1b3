"""A Spark cluster by one setting: purges with archives, what dies in the middle of them, and what travels."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

import httpx
import pytest
from lethe_client import Lethe

from spark.pool.options import default_cds_archive
from tests.journeys.crashes import CRASHING, CrashedPurge, build_large
from tests.journeys.ground import (
    add_store,
    assert_exact,
    connection_to,
    expect,
    fingerprint,
    purge_request,
)
from tests.journeys.service import Service, await_job, succeeded, until
from tests.journeys.spark_cluster import (
    QUICK_JAVA,
    Cluster,
    bare_python,
    cluster_of,
    installed_service,
    pool_of,
)
from tests.journeys.spark_processes import command_of, descendants_of, ended, send_all
from tests.oracles.symmetricds import Place, snapshot
from tests.ports import free_port
from tests.postgresql_server import GUARDED_ROLE, PostgresqlServer

pytestmark = pytest.mark.journey

SECRET = "s3cret-of-the-cluster"
QUIET_S = 5.0
LOOK_S = 0.1  # much shorter than a worker or an executor lives
# What makes tests quick; the cluster itself is LETHE_SPARK__MASTER and nothing else.
AROUND = {
    **CRASHING,
    "LETHE_ENGINE": "SPARK",
    "LETHE_SPARK__START": "EAGER",
    "LETHE_SPARK__DRIVER_MEMORY": "512m",
    "LETHE_SPARK__CDS_ARCHIVE": str(default_cds_archive()),
    "LETHE_SPARK__JAVA_OPTIONS": '["-XX:TieredStopAtLevel=1"]',
    "LETHE_SPARK__CONF": json.dumps({"spark.executor.defaultJavaOptions": QUICK_JAVA}),
    "LETHE_PURGE_WORKERS": "2",
    "LETHE_SECRET_CLUSTER": SECRET,
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that does not know Lethe, at the same path on all machines of the cluster."""
    return bare_python(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker; some tests have two."""
    with cluster_of(tmp_path_factory.mktemp("cluster"), workers=1) as made:
        yield made


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, python: Path, cluster: Cluster) -> Iterator[Service]:
    """One service on the cluster; what a test kills comes back."""
    with _served(tmp_path_factory.mktemp("clustered") / "service", python, cluster.url) as made:
        yield made


@contextmanager
def _served(directory: Path, python: Path, master: str, **settings: str) -> Iterator[Service]:
    made = installed_service(directory, python, {**AROUND, "LETHE_SPARK__MASTER": master, **settings})
    made.start()
    try:
        yield made
        below = descendants_of(made.pid)
        assert made.stop() == 0
        until(lambda: ended(below), timeout_s=10)
    except BaseException:
        print(made.report())
        raise
    finally:
        made.close()
        if not made.has_ended():
            made.kill9()


def _await_executors(service: Service, count: int = 1, *, timeout_s: float = 120) -> None:
    def has() -> bool:
        pool = pool_of(service)
        executors = pool["executors"]
        return pool["state"] == "READY" and isinstance(executors, int) and executors >= count

    until(has, timeout_s=timeout_s, pause_s=0.1)


Killers = dict[str, Callable[[], object]]


def _killers(cluster: Cluster, service: Service, rng: Random) -> Killers:
    guard = threading.Lock()

    def one(kill: Callable[[Random], object]) -> Callable[[], None]:
        def kill_one() -> None:
            with guard:
                until(lambda: kill(rng) is not False, timeout_s=60)

        return kill_one

    def service_itself() -> None:
        with guard:
            service.crash()

    return {
        "executor": one(cluster.kill_executor),
        "python": one(cluster.kill_python_worker),
        "worker": one(cluster.kill_worker),
        "service": service_itself,
    }


def _crash(
    service: Service, killers: Killers, place: Place, directory: Path, *, seed: int, kills: int
) -> Counter[str]:
    build_large(place, seed, rows=2_000)
    purge = CrashedPurge(service.client, f"cluster-{seed}", place, directory, Random(seed))
    purge.run(killers, kills=kills)  # type: ignore[arg-type]
    job = service.client.jobs.get(purge.job_id)
    assert job.raw["engine"] == "SPARK"
    return purge.kills


@pytest.mark.long
def test_executor_killed_below_purges_on_a_cluster_leaves_rows_ledger_and_archives_exact(
    service: Service, cluster: Cluster, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """Two stores at once. Executors can import Lethe from the zip only: what they do proves that it came."""
    cluster.have_workers(2)
    _await_executors(service, 2)
    killers = _killers(cluster, service, Random(1))
    on_postgresql = Place(standing_postgresql.create_database("cluster_killed"))
    on_sqlite = Place(f"sqlite:///{tmp_path}/killed.db", "2.x")
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(_crash, service, {}, on_sqlite, tmp_path, seed=12, kills=0)
        only = {"executor": killers["executor"]}
        kills = _crash(service, only, on_postgresql, tmp_path, seed=11, kills=1)
        beside.result()
    print(kills, pool_of(service)["exchange"])
    assert kills == {"executor": 1}
    assert list(cluster.directory.glob("worker-*/app-*/*/lethe_spark.zip"))


def test_password_of_a_store_lies_in_no_argument_configuration_or_file_of_the_cluster(
    service: Service, cluster: Cluster, standing_postgresql: PostgresqlServer
) -> None:
    """The executors do need it: the server asks this role for it."""
    place, client = Place(standing_postgresql.create_database("cluster_secret")), service.client
    build_large(place, 21, rows=300)
    with connection_to(place.url) as admin:
        admin.execute(f"drop role if exists {GUARDED_ROLE}")
        admin.execute(f"create role {GUARDED_ROLE} login superuser password '{SECRET}'")
    url = standing_postgresql.url("cluster_secret", user=GUARDED_ROLE)
    client.secrets.create(
        "cluster", "env:LETHE_SECRET_CLUSTER", hosts=["127.0.0.1"], stores=["cluster-secret"]
    )
    add_store(client, "cluster-secret", place, url=url, password="secret:cluster")
    expected = expect(place, snapshot(place))
    job = client.purges.create("cluster-secret", purge_request(place, archive=True, max_rows_in_tx=50))
    below: set[int] = set()
    while client.jobs.get(job.id).state in ("QUEUED", "RUNNING", "WAITING"):
        below |= {pid for pid in cluster.processes_with(service) if SECRET in command_of(pid)}
        time.sleep(LOOK_S)
    assert_exact(place, expected, succeeded(client, job.id))
    assert not below
    of_executors = [pid for executor in cluster.executors() for pid in [executor, *descendants_of(executor)]]
    assert of_executors
    for pid in of_executors:
        with contextlib.suppress(OSError):
            assert SECRET.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    roots = (cluster.directory, service.data_dir)
    files = [path for root in roots for path in root.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_kills_on_a_cluster_leave_rows_ledger_and_archives_exact(
    service: Service, cluster: Cluster, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """Executors, Python workers, and workers with all that they run, until ten executors have been killed."""
    cluster.have_workers(2)
    killers = _killers(cluster, service, Random(2))
    only = {name: killers[name] for name in ("executor", "python", "worker")}
    kills: Counter[str] = Counter()
    seed = 30
    while kills["executor"] < 10:
        seed += 1
        place = Place(standing_postgresql.create_database(f"cluster_killed_{seed}"))
        wanted = only if seed % 2 else {"executor": only["executor"]}
        kills += _crash(service, wanted, place, tmp_path, seed=seed, kills=4)
        print(kills, pool_of(service)["exchange"])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_machine_that_sleeps_through_a_restart_of_the_service_writes_nothing_that_counts(
    service: Service, cluster: Cluster, standing_postgresql: PostgresqlServer
) -> None:
    """Its Python workers sleep inside a transaction; the service is killed, comes back and ends their job."""
    cluster.have_workers(2)
    _await_executors(service, 2)
    place, client = Place(standing_postgresql.create_database("cluster_zombies")), service.client
    build_large(place, 41, rows=2_000)
    add_store(client, "cluster-zombies", place)
    expected = expect(place, snapshot(place))
    job = client.purges.create(
        "cluster-zombies", purge_request(place, archive=True, max_rows_in_tx=100, rows_per_s=300)
    )
    above, frozen = _freeze_a_machine_inside_a_unit(cluster, place, job.id)
    try:
        service.crash()
        assert_exact(place, expected, succeeded(client, job.id))
        verified = succeeded(client, client.archives.verify(job.id).id)
        assert verified["rows"] == sum(expected.counts.values())
        rows = fingerprint(place)
        assert frozen
        assert not any(ended([pid]) for pid in frozen), "they have outlived it"
        send_all(frozen, signal.SIGCONT)  # before anybody can end them
        time.sleep(QUIET_S)
        assert fingerprint(place) == rows
    finally:
        send_all([*frozen, *above], signal.SIGCONT)
    until(lambda: ended(frozen), timeout_s=60)
    assert fingerprint(place) == rows


def _freeze_a_machine_inside_a_unit(
    cluster: Cluster, place: Place, job_id: str
) -> tuple[list[int], list[int]]:
    """SIGSTOP of a worker of Spark and all below it, as a machine is paused, with a unit's transaction open.

    Returns: the processes above, and the Python workers.
    """
    query = (
        "select pid, backend_xid::text from pg_stat_activity "
        "where application_name like %s and backend_xid is not null"
    )
    assert cluster.workers is not None
    machine = next(each.pid for each in cluster.workers if each.poll() is None)
    with connection_to(place.url) as look:

        def inside() -> set[tuple[object, ...]]:
            return set(look.execute(query, (f"{job_id}:%",)).fetchall())

        give_up = time.monotonic() + 90
        while time.monotonic() < give_up:
            tree = [
                machine,
                *descendants_of(machine),
            ]  # known beforehand: a unit is over before they are found
            began = until(inside, timeout_s=60, pause_s=0)
            send_all(tree, signal.SIGSTOP)
            time.sleep(0.5)
            if began & inside():
                workers = [pid for pid in cluster.python_workers() if pid in tree]
                return [pid for pid in tree if pid not in workers], workers
            send_all(tree, signal.SIGCONT)
    raise AssertionError("never caught inside a unit")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_purge_outlives_its_master_and_the_pool_finds_the_next_one(
    service: Service, cluster: Cluster, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """kill -9 of the master in the middle of a purge, and again while nothing runs."""
    cluster.have_workers(2)
    _await_executors(service, 2)
    place = Place(standing_postgresql.create_database("cluster_master"))
    kills = _crash(service, {"master": cluster.kill_master}, place, tmp_path, seed=51, kills=1)
    assert kills == {"master": 1}
    pool = pool_of(service)
    print("without a master:", pool["state"], pool["executors"], pool["rebuilds"])
    assert (pool["state"], pool["rebuilds"]) == ("READY", 0)
    _come_back(service, cluster, Place(standing_postgresql.create_database("cluster_master_2")), tmp_path, 52)
    cluster.kill_master()  # idle
    time.sleep(3)
    assert pool_of(service)["state"] == "READY"
    _come_back(service, cluster, Place(standing_postgresql.create_database("cluster_master_3")), tmp_path, 53)


def _come_back(service: Service, cluster: Cluster, place: Place, directory: Path, seed: int) -> None:
    began, rebuilds = time.monotonic(), pool_of(service)["rebuilds"]
    cluster.start_master()
    _crash(service, {}, place, directory, seed=seed, kills=0)
    pool = pool_of(service)
    print(
        f"served {time.monotonic() - began:.1f} s after the master's start:",
        pool["rebuilds"],
        pool["last_error"],
    )
    assert pool["state"] == "READY"
    if pool["rebuilds"] == rebuilds:  # workers come back later than a small purge ends
        until(lambda: pool_of(service)["rebuilds"] != rebuilds, timeout_s=180, pause_s=0.5)
        print(f"rebuilt after {time.monotonic() - began:.1f} s")
    _await_executors(service)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_master_that_is_away_fails_the_pool_in_time_and_serves_when_it_comes(
    python: Path, tmp_path: Path
) -> None:
    """The API stays up; a job that wants Spark waits, says for what, and ends when the master is there."""
    auto = {"LETHE_ENGINE": "AUTO", "LETHE_SPARK__MIN_ROWS": "1"}
    with contextlib.ExitStack() as ground:
        late = Cluster(tmp_path / "late", free_port())
        late.directory.mkdir()
        ground.callback(late.stop)
        began = time.monotonic()
        service = ground.enter_context(_served(tmp_path / "service", python, late.url, **auto))
        client = service.client
        assert pool_of(service)["state"] == "STARTING"
        assert client.is_ready()
        until(lambda: pool_of(service)["state"] == "FAILED", timeout_s=120, pause_s=0.2)
        print(f"FAILED after {time.monotonic() - began:.1f} s: {pool_of(service)['last_error']}")
        assert str(pool_of(service)["last_error"]).startswith(f"MASTER_AWAY: nobody listens at {late.url}")
        readiness = httpx.get(f"{service.url}/readyz")
        assert readiness.status_code == 200
        assert [note["code"] for note in readiness.json()["notes"]] == ["SPARK_FAILED"]
        for name in ("late", "inline"):
            place = Place(f"sqlite:///{tmp_path}/{name}.db")
            build_large(place, 61, rows=400)
            add_store(client, name, place)
        _runs_inline(client, place)
        place = Place(f"sqlite:///{tmp_path}/late.db")
        expected = expect(place, snapshot(place))
        waiting = _waiting_for_the_pool(client, place)
        late.start()
        began = time.monotonic()
        assert_exact(place, expected, succeeded(client, waiting))
        print(f"served {time.monotonic() - began:.1f} s after the cluster was ready")
        assert "notes" not in httpx.get(f"{service.url}/readyz").json()


def _runs_inline(client: Lethe, place: Place) -> None:
    expected = expect(place, snapshot(place))
    job = client.purges.create("inline", purge_request(place))
    assert_exact(place, expected, succeeded(client, job.id))
    told = [event.data for event in client.jobs.events(job.id) if event.type == "engine"]
    assert [(event["engine"], event["reason"]) for event in told] == [("INLINE", "POOL_FAILED")]


def _waiting_for_the_pool(client: Lethe, place: Place) -> str:
    """A purge that asked for Spark by name."""
    job = client.purges.create("late", purge_request(place, engine="SPARK"))
    shown = await_job(client, job.id, "WAITING", timeout_s=30).raw["waiting_on"]
    assert [item["kind"] for item in shown] == ["SPARK_POOL"]
    assert shown[0]["ref"].startswith("FAILED")
    return job.id
