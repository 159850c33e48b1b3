"""kill -9 of everything at random moments of a purge with archive: nothing is lost, nothing counts twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.journeys.crashes import CRASHING, CrashedPurge, build_large, terminate_one
from tests.journeys.service import serving, supervised, working
from tests.oracles.symmetricds import Place
from tests.postgresql_server import PostgresqlServer, scratch_directory

pytestmark = pytest.mark.journey

KILLS, KILLS_LONG = (1, 3, 4), (2, 4, 5)
"""Of each of three purges: in the short run each killer of a purge has its turn once."""


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
        supervised(worker) as guard,
    ):
        purge = CrashedPurge(service.client, "crashed", place, tmp_path, rng, runs_on=("workers",))

        def kill_worker() -> None:
            with guard:
                worker.kill9()

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


def _kill_everything(
    tmp_path: Path,
    first: PostgresqlServer,
    second: PostgresqlServer,
    *,
    seed: int,
    kills: tuple[int, int, int],
) -> Counter[str]:
    """Three purges at once, each with killers of its own and so many kills."""
    for server in (first, second):
        server.restart()  # the last start was in a thread of the round before, and ended with it
    with ThreadPoolExecutor(3) as pool:
        rounds = [
            pool.submit(_kill_the_service, tmp_path, seed=seed, kills=kills[0]),
            pool.submit(_kill_service_connections_and_server, tmp_path, first, seed=seed + 1, kills=kills[1]),
            pool.submit(_kill_worker_and_metadata, tmp_path, second, seed=seed + 2, kills=kills[2]),
        ]
        return sum((each.result() for each in rounds), Counter())


@pytest.fixture
def second_postgresql(postgresql_binaries: Path) -> Iterator[PostgresqlServer]:
    """Another private server: metadata and target on one."""
    with scratch_directory() as directory:
        server = PostgresqlServer(postgresql_binaries, directory)
        server.start()
        yield server
        server.stop()


def test_kills_of_everything_leave_rows_counts_and_archive_exact(
    tmp_path: Path, own_postgresql: PostgresqlServer, second_postgresql: PostgresqlServer
) -> None:
    """kill -9 of service, worker, one connection and the server below them: the job goes on after each."""
    kills = _kill_everything(tmp_path, own_postgresql, second_postgresql, seed=11, kills=KILLS)
    assert kills.total() >= sum(KILLS) - 1, kills
    assert set(kills) == {"service", "server", "connection", "worker", "metadata"}


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_kills_leave_rows_counts_and_archive_exact(
    tmp_path: Path, own_postgresql: PostgresqlServer, second_postgresql: PostgresqlServer
) -> None:
    """The same, until a hundred kills have met a running job."""
    kills: Counter[str] = Counter()
    seed = 1_000
    while kills.total() < 100:
        seed += 10
        kills += _kill_everything(tmp_path, own_postgresql, second_postgresql, seed=seed, kills=KILLS_LONG)
    print(kills)
    assert set(kills) == {"service", "server", "connection", "worker", "metadata"}
