"""Random databases with every awkward row, from HTTP to the rows on disk, held against the set oracle."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from tests.conftest import SharedServer
from tests.journeys.random_cases import Lane, run_case
from tests.journeys.service import serving

pytestmark = pytest.mark.journey

LANES = 2
WORKERS = (1, 2, 3, 4)
CASES_PER_WORKERS = 3  # four counts of workers: 12 databases
LONG_CASES_PER_WORKERS = 250


def _run_cases(directory: Path, postgresql_url: str, *, workers: int, seeds: range) -> None:
    settings = {
        "LETHE_PURGE_WORKERS": str(workers),
        "LETHE_RUNNER_JOBS_MAX": str(LANES),
        "LETHE_RUNNER_INTERACTIVE_JOBS_MAX": str(LANES),
        # Every change wakes them; looking more often is only work.
        "LETHE_RUNNER_POLL_INTERVAL_S": "1",
        "LETHE_WATCH_INTERVAL_S": "0.5",
        "LETHE_PROGRESS_INTERVAL_S": "1",
    }
    directory.mkdir()
    with serving(directory / "service", settings) as service, ThreadPoolExecutor(LANES) as pool:
        stores = count()
        lanes = [Lane(service.client, directory, number, postgresql_url, stores) for number in range(LANES)]

        def run(lane: Lane) -> None:
            for seed in seeds[lane.number :: LANES]:
                run_case(lane, seed)

        for done in [pool.submit(run, lane) for lane in lanes]:
            done.result()


def _run_all(directory: Path, server: SharedServer, *, cases: int, first: int) -> None:
    """One service for each count of workers, all at once."""

    def run(workers: int) -> None:
        name = f"lethe_workers{workers}_{uuid.uuid4().hex[:12]}"
        server.execute(f"create database {name}")
        try:
            seeds = range(workers * first, workers * first + cases)
            _run_cases(directory / str(workers), server.url(name), workers=workers, seeds=seeds)
        finally:
            server.execute(f"drop database if exists {name} with (force)")

    with ThreadPoolExecutor(len(WORKERS)) as pool:
        list(pool.map(run, WORKERS))


def test_random_databases_are_purged_to_the_oracles_rows(
    tmp_path: Path, postgresql_server: SharedServer
) -> None:
    """Rows, counts, plan and archive are the oracle's, for every chunk size and worker count."""
    _run_all(tmp_path, postgresql_server, cases=CASES_PER_WORKERS, first=1000)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_random_databases_are_purged_to_the_oracles_rows(
    tmp_path: Path, postgresql_server: SharedServer
) -> None:
    """The same with more seeds."""
    _run_all(tmp_path, postgresql_server, cases=LONG_CASES_PER_WORKERS, first=100_000)
