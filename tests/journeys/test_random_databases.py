"""Random databases with every awkward row, from HTTP to the rows on disk, held against the set oracle."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lethe_client import Lethe, Plan, PurgeRequest

from tests.conftest import SharedServer
from tests.journeys.ground import (
    PURGED,
    Expected,
    add_store,
    assert_exact,
    assert_restored,
    expect,
    in_the_past,
    instant,
)
from tests.journeys.service import serving, succeeded
from tests.oracles.symmetricds import (
    VERSIONS,
    Place,
    Rows,
    Version,
    create,
    empty,
    load,
    random_database,
    snapshot,
    stranded_batches,
)

pytestmark = pytest.mark.journey

LANES = 2
WORKERS = (1, 2, 3, 4)
CASES_PER_WORKERS = 38  # four counts of workers: 152 databases
LONG_CASES_PER_WORKERS = 250
ENCODINGS = ("text", "text_ms", "text_s", "epoch_ms")
ZONES = ("UTC", "America/New_York", "Asia/Kolkata")
TX_PARAMETERS = (
    "job.purge.max.num.data.to.delete.in.tx",
    "job.purge.max.num.data.events.to.delete.in.tx",
    "job.purge.max.num.batches.to.delete.in.tx",
)


@dataclass
class Lane:
    """One row of cases: a PostgreSQL schema for each version, used again and again, and new SQLite files."""

    client: Lethe
    directory: Path
    number: int
    postgresql_url: str
    stores: Iterator[int]
    places: dict[Version, Place] = field(default_factory=dict)

    def place(self, rng: Random) -> Place:
        """An empty place for the next case."""
        version: Version = rng.choice(VERSIONS)
        if rng.random() < 0.5:
            url = f"sqlite:///{self.directory}/lane{self.number}-{next(self.stores)}.db"
            made = Place(url, version, encoding=rng.choice(ENCODINGS))  # type: ignore[arg-type]
            create(made)
            return made
        if version not in self.places:
            schema = f"lane{self.number}_{version[0]}"
            self.places[version] = Place(self.postgresql_url, version, schema=schema, prefix="node_a_")
            create(self.places[version])
        empty(self.places[version])
        return self.places[version]


def _run_case(lane: Lane, seed: int) -> None:
    rng = Random(seed)
    place = lane.place(rng)
    load(place, in_the_past(random_database(rng, place.version)))
    before = snapshot(place)
    options: dict[str, Any] = {
        "strict": rng.random() < 0.3,
        "stranded": rng.choice(["MARK", "MARK", "SKIP"]),
    }
    expected = expect(place, before, **options)
    store, zone = f"case-{seed}", rng.choice(ZONES)
    add_store(lane.client, store, place, time_zone=zone, parameters=_sizes(rng))
    cutoff = instant(place, time_zone=zone)
    reviewed: dict[str, Any] = {"cutoff": cutoff}
    if rng.random() < 0.5:
        plan = lane.client.purges.plan(store, PurgeRequest(cutoff=cutoff, **options))
        _check_plan(plan, place, expected, before, seed=seed)
        reviewed = rng.choice([reviewed, {"plan_id": plan.plan_id}])
    request = PurgeRequest(
        archive=rng.random() < 0.5,
        max_rows_in_tx=rng.choice([None, None, None, 1, 3, 7, 20, 50, 5000, 20_000]),
        **reviewed,
        **options,
    )
    job = lane.client.purges.create(store, request)
    result = succeeded(lane.client, job.id)
    assert_exact(place, expected, result)
    if request.archive:
        _check_archive(lane, job.id, place, expected, seed=seed)


def _check_plan(plan: Plan, place: Place, expected: Expected, before: Rows, *, seed: int) -> None:
    """It tells the counts of the run, and writes nothing."""
    planned = {table.table.removeprefix(place.prefix): table.rows_to_remove for table in plan.tables}
    assert planned == expected.counts, f"seed {seed}: the plan"
    # With SKIP they are named too: as batches that stay what they are.
    assert sum(node.batches for node in plan.stranded.nodes) == len(stranded_batches(before)), f"seed {seed}"
    assert snapshot(place) == before, f"seed {seed}: a plan writes nothing"


def _sizes(rng: Random) -> dict[str, int]:
    """None, some or all of the document's transaction sizes."""
    return {name: rng.choice([1, 5, 20, 5000]) for name in TX_PARAMETERS if rng.random() < 0.2}


def _check_archive(lane: Lane, job_id: str, place: Place, expected: Expected, *, seed: int) -> None:
    """Its rows are counted always and restored for every other seed."""
    rows = sum(len(expected.removed[table]) for table in PURGED)
    assert (lane.client.archives.get(job_id).rows or 0) == rows
    if rows == 0 or seed % 2:
        return
    file = lane.directory / f"{job_id}.sqlite"
    restored = succeeded(lane.client, lane.client.archives.restore_into_file(job_id, str(file)).id)
    assert restored["rows"] == rows
    assert_restored(file, place, expected)


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
                _run_case(lane, seed)

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
