"""Upgrades from former versions, in place: jobs in every state, schedules, windows, webhooks, peers."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from app.db import Database
from migrations.upgrade import current_revision, head_revision
from tests.journeys.ground import assert_exact
from tests.journeys.service import Service, await_job, started, succeeded
from tests.migrations import landed, peers
from tests.migrations.former import (
    BEFORE_SCHEDULES,
    ENDED,
    FORMERS,
    GOES_ON,
    LANDED,
    SETTINGS,
    SOMEWHERE,
    STATES,
    WITH_PEERS,
    Former,
    expected_of,
    filled,
    former_code,
    place_of,
    store_of,
)
from tests.oracles.symmetricds import snapshot
from tests.ports import free_port
from tests.spark.events.catalogs import LoadedCatalog, conninfo_of, run_dump

NEW = {**SETTINGS, "LETHE_MIGRATE": "true", "LETHE_LABELS": "nobody"}
REVISIONS = [pytest.param(former, id=former.revision) for former in FORMERS]
ENGINES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]


def _text(former: Former, name: str, targets: Path) -> str:
    packed = (former.fixture / f"{name}.gz").read_bytes()
    return gzip.decompress(packed).decode().replace(SOMEWHERE, str(targets))


@dataclass(frozen=True)
class Ground:
    """What a former service has left, and where.

    Attributes:
        directory: has `service`, its data directory, and `targets`.
        url: of its metadata; None: a file in the data directory.
        port: on which it was reached by its peers.
        nodes: of Slony-I that it was at work on.
    """

    former: Former
    directory: Path
    url: str | None
    port: int
    nodes: peers.Nodes

    @property
    def targets(self) -> Path:
        """The folder of the other targets."""
        return self.directory / "targets"

    def metadata(self) -> Database:
        """Its metadata; close it."""
        return Database(self.url or f"sqlite:///{self.directory / 'service' / 'lethe.db'}")


def _restored(
    former: Former, engine: str, directory: Path, url: str | None, request: pytest.FixtureRequest
) -> Ground:
    """The fixture as it was when its service was killed."""
    targets, data_dir = directory / "targets", directory / "service"
    for made in (targets, data_dir):
        made.mkdir()
    names = [path.name.split(".")[1] for path in former.fixture.glob(f"{engine}.*.sql.gz")]
    for name in sorted({*names} - {"metadata"}):
        with closing(sqlite3.connect(targets / f"{name}.db")) as target:
            target.executescript(_text(former, f"{engine}.{name}.sql", targets))
    if former.has_landed:
        landed.unpack(targets, _text(former, f"{engine}.landed.json", targets))
    nodes: dict[str, LoadedCatalog] = {}
    if former.has_peers:
        catalogs = request.getfixturevalue("catalogs")
        for name, cluster in peers.CLUSTERS.items():
            nodes[name] = catalogs.restore(_text(former, f"{engine}.{name}.node", targets), cluster=cluster)
    port = free_port()
    metadata = peers.particular(_text(former, f"{engine}.metadata.sql", targets), port, nodes)
    if url is None:
        with closing(sqlite3.connect(data_dir / "lethe.db")) as database:
            database.executescript(metadata)
    else:
        with psycopg.connect(conninfo_of(url)) as raw:
            run_dump(raw, metadata)
    return Ground(former, directory, url, port, nodes)


def _jobs(ground: Ground) -> dict[str, str]:
    """State to job, as the former service has left it."""
    database = ground.metadata()
    assert current_revision(database) == ground.former.revision
    with database.engine.connect() as connection:
        rows = connection.exec_driver_sql("select store, id, state from jobs order by id").all()
    database.close()
    found = {
        store.removeprefix("former-").upper(): (job_id, state)
        for store, job_id, state in rows
        if store.startswith("former-")
    }
    assert {state: kept for state, (_, kept) in found.items()} == {state: state for state in STATES}
    return {state: job_id for state, (job_id, _) in found.items()}


def _go_on(ground: Ground, jobs: dict[str, str]) -> None:
    """The present version takes everything up where it was; nothing that counts is done twice or lost."""
    settings = NEW | ({} if ground.url is None else {"LETHE_METADATA_URL": ground.url})
    targets, scratch = ground.targets, ground.directory / "scratch"
    scratch.mkdir()
    before = {state: snapshot(place_of(state, targets)) for state in ("SUCCEEDED", "ABORTED", "ABANDONED")}
    since = datetime.now(UTC)
    service = Service(ground.directory / "service", settings, port=ground.port)
    if ground.former.has_peers:
        database = ground.metadata()
        peers.begin(service, targets, database, ground.nodes)
        database.close()
    with started(service):
        client = service.client
        for state in ENDED:
            job = client.jobs.get(jobs[state])
            assert job.state == state
            assert (job.raw["error"] is not None) == (state == "FAILED")
        assert await_job(client, jobs["ABORTING"]).state == "ABORTED"
        assert await_job(client, jobs["PAUSING"], "PAUSED").state == "PAUSED"
        assert client.jobs.get(jobs["PAUSED"]).state == "PAUSED"
        client.stores.resume(store_of("WAITING"))
        for state in ("PAUSED", "PAUSING"):
            client.jobs.resume(jobs[state])
        for state in (*GOES_ON, "PAUSING"):
            if not client.jobs.get(jobs[state]).ended:
                client.jobs.throttle(jobs[state], lift=True)
            result = succeeded(client, jobs[state])
            # From the ledger of both versions: what the first has removed is counted, and removed once.
            assert_exact(place_of(state, targets), expected_of(state, scratch), result)
        listed = {job.id: job.state for job in client.jobs.list() if (job.store or "").startswith("former-")}
        assert len(listed) == len(STATES)
        assert not {"RUNNING", "QUEUED", "WAITING"} & set(listed.values())
        if ground.former.has_landed:
            landed.judge(client, targets, scratch, since=since)
        if ground.former.has_peers:
            peers.judge(service, targets, ground.nodes)
    for state, rows in before.items():
        assert snapshot(place_of(state, targets)) == rows
    database = ground.metadata()
    assert current_revision(database) == head_revision()
    database.close()


@pytest.mark.parametrize(
    ("former", "engine"),
    [
        pytest.param(BEFORE_SCHEDULES, "sqlite", id="0016-sqlite"),
        pytest.param(
            BEFORE_SCHEDULES,
            "postgresql",
            id="0016-postgresql",
            marks=[pytest.mark.postgresql, pytest.mark.long],
        ),
        pytest.param(LANDED, "sqlite", id="0019-sqlite", marks=pytest.mark.long),
        pytest.param(LANDED, "postgresql", id="0019-postgresql", marks=pytest.mark.postgresql),
        pytest.param(WITH_PEERS, "sqlite", id="0026-sqlite", marks=pytest.mark.postgresql),
        pytest.param(
            WITH_PEERS, "postgresql", id="0026-postgresql", marks=[pytest.mark.postgresql, pytest.mark.long]
        ),
    ],
)
def test_jobs_of_a_former_version_go_on_after_an_upgrade_in_place(
    former: Former, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgresql_url") if engine == "postgresql" else None
    ground = _restored(former, engine, tmp_path, url, request)
    _go_on(ground, _jobs(ground))


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("former", REVISIONS)
def test_jobs_that_a_former_service_has_just_left_go_on(
    former: Former, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As above with its archives, on its own data directory."""
    (tmp_path / "code").mkdir()
    tree = former_code(former, tmp_path / "code")
    if tree is None:
        pytest.skip("this clone has no history: the former version's code is not here")
    url = request.getfixturevalue("postgresql_url") if engine == "postgresql" else None
    nodes = peers.fresh_nodes(request.getfixturevalue("catalogs")) if former.has_peers else {}
    left = filled(former, tree, tmp_path, metadata_url=url, nodes=nodes)
    _go_on(Ground(former, tmp_path, url, left.port, nodes), left.jobs)
