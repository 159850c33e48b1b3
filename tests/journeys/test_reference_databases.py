"""The recorded databases of tests/data/symmetricds, purged over HTTP: row for row what was recorded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lethe_client import PurgeRequest

from tests.journeys.ground import PAST, PURGED, add_store, in_the_past, instant
from tests.journeys.service import Service, succeeded
from tests.oracles.symmetricds import (
    VERSIONS,
    Place,
    Version,
    create,
    load,
    reference_database,
    removed_keys,
    session,
    snapshot,
)
from tests.oracles.symmetricds_rows import Reference, read_reference

pytestmark = pytest.mark.journey


def _places(directory: Path, postgresql_url: str, version: Version) -> list[Place]:
    """The recorded rows in a SQLite and a PostgreSQL layout of ours, and in the recorded file itself."""
    rows = in_the_past(read_reference(version).rows)
    made = [
        Place(f"sqlite:///{directory}/built{version}.db", version),
        Place(postgresql_url, version, schema=f"v{version[0]}"),
    ]
    for place in made:
        create(place)
        load(place, rows)
    recorded = directory / f"recorded{version}.db"
    shutil.copy(reference_database(version), recorded)
    copied = Place(f"sqlite:///{recorded}", version)
    with session(copied) as target:
        for table in rows:
            target.run(f"delete from {copied.name(table)}")
    load(copied, rows)
    return [*made, copied]


def test_recorded_databases_lose_exactly_the_recorded_rows(
    standing_service: Service, tmp_path: Path, postgresql_url: str
) -> None:
    """Row for row equal to `expected`, 2.x and 3.x, on SQLite and PostgreSQL."""
    client = standing_service.client
    for version in VERSIONS:
        reference = read_reference(version)
        cutoff = reference.cutoff - PAST
        for number, place in enumerate(_places(tmp_path, postgresql_url, version)):
            store = f"reference-{version[0]}-{number}"
            add_store(client, store, place)
            before = snapshot(place)
            request = PurgeRequest(cutoff=instant(place, local=cutoff), archive=True, stranded="MARK")
            job = client.purges.create(store, request)
            result = succeeded(client, job.id)
            _assert_recorded(place, before, reference, result)


def _assert_recorded(place: Place, before: dict, reference: Reference, result: dict) -> None:
    after = snapshot(place)
    removed = removed_keys(place, before, after)
    assert [key[0] for key in removed["data"]] == reference.data
    assert [key[:2] for key in removed["data_event"]] == reference.data_event
    assert removed["outgoing_batch"] == reference.outgoing_batch
    assert result["removed"] == {table: len(removed[table]) for table in PURGED}
    assert result["stranded"]["marked"] == len(reference.stranded)
    status = {(row["batch_id"], row["node_id"]): row["status"] for row in after["outgoing_batch"]}
    assert {status[key] for key in reference.stranded if key in status} <= {"OK"}
    for table in before:
        if table not in PURGED:
            assert after[table] == before[table], table


def test_a_purge_that_skips_the_stranded_step_succeeds(standing_service: Service, tmp_path: Path) -> None:
    """With `stranded: SKIP` the loop looked for its first step, STRANDED, among the steps of this purge, and
    the job failed with INTERNAL before its first unit.
    """
    rows = in_the_past(read_reference("3.x").rows)
    place = Place(f"sqlite:///{tmp_path}/skip.db", "3.x")
    create(place)
    load(place, rows)
    statuses = sorted(str(row["status"]) for row in rows["outgoing_batch"] if row["node_id"] == "-1")
    add_store(standing_service.client, "skipped", place)
    cutoff = instant(place, local=read_reference("3.x").cutoff - PAST)
    job = standing_service.client.purges.create("skipped", PurgeRequest(cutoff=cutoff, stranded="SKIP"))
    result = succeeded(standing_service.client, job.id)
    assert result["stranded"]["marked"] == 0
    assert result["removed"]["data"] > 0
    left = [str(row["status"]) for row in snapshot(place)["outgoing_batch"] if row["node_id"] == "-1"]
    assert set(left) <= set(statuses)
