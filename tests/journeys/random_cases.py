"""One random database from HTTP to the rows on disk: plan, purge and archive held against the set oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from lethe_client import Lethe, Plan, PurgeRequest

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
from tests.journeys.service import succeeded
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


def run_case(lane: Lane, seed: int) -> str:
    """Purge one; returns its job's id."""
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
    return job.id


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
