"""Upgrades from the version before schedules (0016): in place with jobs in every state, and side by side."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from app.db import Database
from migrations.upgrade import current_revision, head_revision
from tests.journeys.ground import assert_exact
from tests.journeys.service import await_job, serving, succeeded
from tests.migrations.former import (
    ENDED,
    FIXTURE,
    GOES_ON,
    REVISION,
    SETTINGS,
    SOMEWHERE,
    STATES,
    expected_of,
    filled,
    former_code,
    place_of,
    store_of,
)
from tests.oracles.symmetricds import snapshot

NEW = {**SETTINGS, "LETHE_MIGRATE": "true", "LETHE_LABELS": "nobody"}
ENGINES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]


def _text(name: str, targets: Path) -> str:
    packed = (FIXTURE / f"{name}.sql.gz").read_bytes()
    return gzip.decompress(packed).decode().replace(SOMEWHERE, str(targets))


def _restore(engine: str, directory: Path, url: str | None) -> None:
    """The fixture as it was when its service was killed: `service` and `targets` below a directory."""
    targets, data_dir = directory / "targets", directory / "service"
    for made in (targets, data_dir):
        made.mkdir()
    for state in STATES:
        with closing(sqlite3.connect(targets / f"{state.lower()}.db")) as target:
            target.executescript(_text(f"{engine}.{state.lower()}", targets))
    metadata = _text(f"{engine}.metadata", targets)
    if url is None:
        with closing(sqlite3.connect(data_dir / "lethe.db")) as database:
            database.executescript(metadata)
    else:
        _run_dump(url, metadata)


def _run_dump(url: str, text: str) -> None:
    """What pg_dump wrote: statements, and rows for COPY."""
    statements: list[str] = []
    lines = iter(text.splitlines())
    with psycopg.connect(url.replace("+psycopg", "")) as raw:
        for line in lines:
            if line.startswith(("\\", "--")):
                continue
            if line.startswith("COPY ") and line.endswith(" FROM stdin;"):
                raw.execute("\n".join(statements))
                statements.clear()
                with raw.cursor() as cursor, cursor.copy(line) as copy:
                    for row in iter(lambda: next(lines), "\\."):
                        copy.write(f"{row}\n")
                continue
            statements.append(line)
        raw.execute("\n".join(statements))


def _jobs(url: str | None, directory: Path) -> dict[str, str]:
    """State to job, as the former service has left it."""
    database = Database(url or f"sqlite:///{directory / 'service' / 'lethe.db'}")
    assert current_revision(database) == REVISION
    with database.engine.connect() as connection:
        rows = connection.exec_driver_sql("select store, id, state from jobs").all()
    database.close()
    found = {store.removeprefix("former-").upper(): (job_id, state) for store, job_id, state in rows}
    assert {state: kept for state, (_, kept) in found.items()} == {state: state for state in STATES}
    return {state: job_id for state, (job_id, _) in found.items()}


def _go_on(directory: Path, url: str | None, jobs: dict[str, str]) -> None:
    """The present version takes everything up where it was; nothing that counts is done twice or lost."""
    settings = NEW | ({} if url is None else {"LETHE_METADATA_URL": url})
    targets, scratch = directory / "targets", directory / "scratch"
    scratch.mkdir()
    before = {state: snapshot(place_of(state, targets)) for state in ("SUCCEEDED", "ABORTED", "ABANDONED")}
    with serving(directory / "service", settings) as service:
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
        listed = {job.id: job.state for job in client.jobs.list()}
        assert len(listed) == len(STATES)
        assert not {"RUNNING", "QUEUED", "WAITING"} & set(listed.values())
    for state, rows in before.items():
        assert snapshot(place_of(state, targets)) == rows
    database = Database(url or f"sqlite:///{directory / 'service' / 'lethe.db'}")
    assert current_revision(database) == head_revision()
    database.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_jobs_of_the_former_version_go_on_after_an_upgrade_in_place(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgresql_url") if engine == "postgresql" else None
    _restore(engine, tmp_path, url)
    _go_on(tmp_path, url, _jobs(url, tmp_path))


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the former version."""
    tree = former_code(tmp_path_factory.mktemp("code"))
    if tree is None:
        pytest.skip("this clone has no history: the former version's code is not here")
    return tree


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_jobs_that_a_former_service_has_just_left_go_on(
    former: Path, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As above with its archives, on its own data directory."""
    url = request.getfixturevalue("postgresql_url") if engine == "postgresql" else None
    jobs = filled(former, tmp_path, metadata_url=url)
    _go_on(tmp_path, url, jobs)
