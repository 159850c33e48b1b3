"""One request over many stores: a child for each, their units together on Spark, results per store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from lethe_client import Lethe

from tests.journeys.crashes import build_large
from tests.journeys.ground import Expected, add_store, assert_exact, expect, purge_request
from tests.journeys.service import Service, await_job, serving, until
from tests.journeys.test_spark_purges import SPARK
from tests.oracles.symmetricds import Place, snapshot
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.journey

FLEET = {"fleet": "north"}
ON_SQLITE = 3
ON_POSTGRESQL = 2
ROWS = 600
JOB_TIMEOUT_S = 240.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Room for two jobs of its own: what runs beside them runs on Spark."""
    settings = {**SPARK, "LETHE_RUNNER_JOBS_MAX": "2"}
    with serving(tmp_path_factory.mktemp("fleet") / "service", settings) as made:
        yield made


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

    until(look, timeout_s=JOB_TIMEOUT_S)
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
