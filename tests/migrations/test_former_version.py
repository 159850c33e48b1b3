"""Upgrades from former versions, in place: jobs in every state, schedules, windows, webhooks, a cycle."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from app.db import Database
from migrations.upgrade import current_revision, head_revision
from tests.journeys.ground import assert_exact
from tests.journeys.service import await_job, serving, succeeded
from tests.migrations import landed
from tests.migrations.former import (
    BEFORE_SCHEDULES,
    ENDED,
    FORMERS,
    GOES_ON,
    LANDED,
    SETTINGS,
    SOMEWHERE,
    STATES,
    Former,
    expected_of,
    filled,
    former_code,
    place_of,
    store_of,
)
from tests.oracles.symmetricds import snapshot

NEW = {**SETTINGS, "LETHE_MIGRATE": "true", "LETHE_LABELS": "nobody"}
REVISIONS = [pytest.param(former, id=former.revision) for former in FORMERS]
ENGINES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]


def _text(former: Former, name: str, targets: Path) -> str:
    packed = (former.fixture / f"{name}.gz").read_bytes()
    return gzip.decompress(packed).decode().replace(SOMEWHERE, str(targets))


def _restore(former: Former, engine: str, directory: Path, url: str | None) -> None:
    """The fixture as it was when its service was killed: `service` and `targets` below a directory."""
    targets, data_dir = directory / "targets", directory / "service"
    for made in (targets, data_dir):
        made.mkdir()
    names = [path.name.split(".")[1] for path in former.fixture.glob(f"{engine}.*.sql.gz")]
    for name in sorted({*names} - {"metadata"}):
        with closing(sqlite3.connect(targets / f"{name}.db")) as target:
            target.executescript(_text(former, f"{engine}.{name}.sql", targets))
    if former.has_landed:
        landed.unpack(targets, _text(former, f"{engine}.landed.json", targets))
    metadata = _text(former, f"{engine}.metadata.sql", targets)
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


def _jobs(former: Former, url: str | None, directory: Path) -> dict[str, str]:
    """State to job, as the former service has left it."""
    database = Database(url or f"sqlite:///{directory / 'service' / 'lethe.db'}")
    assert current_revision(database) == former.revision
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


def _go_on(former: Former, directory: Path, url: str | None, jobs: dict[str, str]) -> None:
    """The present version takes everything up where it was; nothing that counts is done twice or lost."""
    settings = NEW | ({} if url is None else {"LETHE_METADATA_URL": url})
    targets, scratch = directory / "targets", directory / "scratch"
    scratch.mkdir()
    before = {state: snapshot(place_of(state, targets)) for state in ("SUCCEEDED", "ABORTED", "ABANDONED")}
    since = datetime.now(UTC)
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
        listed = {job.id: job.state for job in client.jobs.list() if (job.store or "").startswith("former-")}
        assert len(listed) == len(STATES)
        assert not {"RUNNING", "QUEUED", "WAITING"} & set(listed.values())
        if former.has_landed:
            landed.judge(client, targets, scratch, since=since)
    for state, rows in before.items():
        assert snapshot(place_of(state, targets)) == rows
    database = Database(url or f"sqlite:///{directory / 'service' / 'lethe.db'}")
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
        pytest.param(LANDED, "sqlite", id="0019-sqlite"),
        pytest.param(LANDED, "postgresql", id="0019-postgresql", marks=pytest.mark.postgresql),
    ],
)
def test_jobs_of_a_former_version_go_on_after_an_upgrade_in_place(
    former: Former, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgresql_url") if engine == "postgresql" else None
    _restore(former, engine, tmp_path, url)
    _go_on(former, tmp_path, url, _jobs(former, url, tmp_path))


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
    jobs = filled(former, tree, tmp_path, metadata_url=url)
    _go_on(former, tmp_path, url, jobs)
