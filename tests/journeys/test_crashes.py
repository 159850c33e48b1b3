"""kill -9 of everything at random moments of a purge with archive: nothing is lost, nothing counts twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.journeys.crashes import CRASHING, CrashedPurge, build_large, terminate_one
from tests.journeys.service import serving, working
from tests.oracles.symmetricds import Place
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.journey

LONG_ROUNDS = 10


def _kill_the_service(tmp_path: Path, *, seed: int, kills: int) -> Counter[str]:
    """SQLite metadata, SQLite target."""
    rng = Random(seed)
    place = Place(f"sqlite:///{tmp_path}/target-{seed}.db", rng.choice(("2.x", "3.x")))
    build_large(place, seed)
    with serving(tmp_path / f"service-{seed}", CRASHING) as service:
        purge = CrashedPurge(service.client, "crashed", place, tmp_path, rng)
        purge.run({"service": service.crash}, kills=kills)
    return purge.kills


def _kill_service_connections_and_server(
    tmp_path: Path, server: PostgresqlServer, *, seed: int, kills: int
) -> Counter[str]:
    """SQLite metadata, PostgreSQL target."""
    rng = Random(seed)
    place = Place(server.create_database(f"target_{seed}"), rng.choice(("2.x", "3.x")))
    build_large(place, seed)

    def kill_server() -> None:
        server.kill9()
        server.restart()

    with serving(tmp_path / f"service-{seed}", CRASHING) as service:
        purge = CrashedPurge(service.client, "crashed", place, tmp_path, rng)
        killers = {
            "service": service.crash,
            "server": kill_server,
            "connection": lambda: terminate_one(place.url, rng, like=f"{purge.job_id}:%"),
        }
        purge.run(killers, kills=kills)
    return purge.kills


def _kill_worker_and_metadata(
    tmp_path: Path, server: PostgresqlServer, *, seed: int, kills: int
) -> Counter[str]:
    """Metadata and target on one PostgreSQL, the jobs run by `lethe worker` processes."""
    rng = Random(seed)
    place = Place(server.create_database(f"target_{seed}"), "3.x")
    build_large(place, seed)
    settings = {**CRASHING, "LETHE_METADATA_URL": server.create_database(f"metadata_{seed}")}
    serve = {**settings, "LETHE_MIGRATE": "true"}
    work = {**settings, "LETHE_LABELS": "workers", "LETHE_ARCHIVE_ROOT": str(tmp_path / "archive")}
    with (
        serving(
            tmp_path / f"service-{seed}", {**serve, "LETHE_ARCHIVE_ROOT": str(tmp_path / "archive")}
        ) as service,
        working(tmp_path / f"worker-{seed}", work) as worker,
    ):
        purge = CrashedPurge(service.client, "crashed", place, tmp_path, rng, runs_on=("workers",))

        def kill_worker() -> None:
            worker.kill9()
            worker.spawn()

        def kill_server() -> None:
            server.kill9()
            server.restart()

        killers = {
            "worker": kill_worker,
            "server": kill_server,
            "connection": lambda: terminate_one(place.url, rng, like=f"{purge.job_id}:%"),
            "metadata": lambda: terminate_one(settings["LETHE_METADATA_URL"], rng, like="lethe%"),
        }
        purge.run(killers, kills=kills)
    return purge.kills


def test_killed_service_on_sqlite_succeeds_with_exact_rows_and_archive(tmp_path: Path) -> None:
    """kill -9 of the service; at its restart the job goes on where it was."""
    kills = _kill_the_service(tmp_path, seed=11, kills=3)
    print(kills)
    assert kills.total() >= 2, kills


def test_killed_connections_and_servers_lose_nothing(
    tmp_path: Path, own_postgresql: PostgresqlServer
) -> None:
    """kill -9 of service, one connection, database server."""
    kills = _kill_service_connections_and_server(tmp_path, own_postgresql, seed=21, kills=5)
    print(kills)
    assert kills.total() >= 4, kills


def test_killed_workers_and_metadata_lose_nothing(tmp_path: Path, own_postgresql: PostgresqlServer) -> None:
    """kill -9 of a worker, and of the server that holds metadata and target."""
    kills = _kill_worker_and_metadata(tmp_path, own_postgresql, seed=31, kills=5)
    print(kills)
    assert kills.total() >= 4, kills


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_kills_lose_nothing(tmp_path: Path, own_postgresql: PostgresqlServer) -> None:
    """The same, until a hundred kills have met a running job."""
    kills: Counter[str] = Counter()
    seed = 1_000
    while kills.total() < 100:
        seed += 1
        kills += _kill_the_service(tmp_path, seed=seed, kills=4)
        seed += 1
        kills += _kill_service_connections_and_server(tmp_path, own_postgresql, seed=seed, kills=8)
        seed += 1
        kills += _kill_worker_and_metadata(tmp_path, own_postgresql, seed=seed, kills=8)
    assert set(kills) == {"service", "server", "connection", "worker", "metadata"}
