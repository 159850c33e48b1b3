"""A process gives back what it holds, whatever becomes of its metadata."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import event
from sqlmodel import select, update

from app import main, server
from app.auth.service import ensure_admin_token
from app.db import Database, MetadataClock
from app.jobs.errors import JobWaiting, StopCause
from app.jobs.models import WaitingOn
from app.jobs.rows import Job
from app.jobs.running.context import JobContext
from app.jobs.running.instances import InstanceLock
from app.jobs.running.openings import AlwaysOpen, rest_wait
from app.jobs.running.suspension import awake_store
from app.jobs.states import JobState
from app.main import create_app
from app.replication.agreements.sessions.models import SessionParams
from app.replication.rows import Agreement, SessionOutcome
from app.replication.supplier.record import Record
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.rows import SweepTick
from app.verbs.verb import Loop
from app.working import Worker
from tests.app.agreements import agreement_of
from tests.app.fake_clock import FakeClock
from tests.app.forged import Process, ended, forged
from tests.app.jobs.workbench import Workbench, kind
from tests.app.starts_forged import metadata_gone, signalled_elsewhere

PATIENCE_S = 60.0


def test_worker_without_its_metadata_stops_and_frees_its_directory(
    settings: Settings, tmp_path: Path
) -> None:
    away = Database(f"sqlite:///{tmp_path / 'nowhere' / 'lethe.db'}")
    Worker(settings, away, role="worker").stop()
    InstanceLock(settings.data_dir).release()


@pytest.mark.postgresql
def test_worker_whose_metadata_goes_while_it_starts_waits_for_it(
    tmp_path: Path, migrated_postgresql: str
) -> None:
    """The storm: it ended with 70, as by a bug, and a file to report."""
    order = ("run_worker", "transaction", "2", str(tmp_path), migrated_postgresql)
    with forged(metadata_gone, *order) as (process, lines):
        said = []
        with patience(process):
            for line in lines:
                said.append(line)
                if '"started"' in line:
                    process.terminate()
        assert process.wait(PATIENCE_S) == 0, said
    assert [line for line in said if "metadata away" in line], said


@contextmanager
def patience(process: Process) -> Iterator[None]:
    """One that goes on all the same is killed."""
    alarm = threading.Timer(PATIENCE_S, process.kill)
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()


@pytest.mark.postgresql
def test_signal_that_another_thread_is_given_ends_a_worker(tmp_path: Path, migrated_postgresql: str) -> None:
    """It stood for ever: the handler runs in the first thread, which waited for a lock."""
    with forged(signalled_elsewhere, str(tmp_path), migrated_postgresql) as (process, lines):
        with patience(process):
            said = lines.read()
        assert process.wait(PATIENCE_S) == 0, said
    assert '"signal": "SIGTERM"' in said


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("act", "command"),
    [
        ("transaction", ["serve"]),
        ("reading", ["serve"]),
        ("reading", ["run_worker"]),
        ("reading", ["recover", "shop"]),
    ],
)
def test_process_whose_metadata_goes_while_it_starts_says_try_again(
    tmp_path: Path, migrated_postgresql: str, act: str, command: list[str]
) -> None:
    """The storm: a worker ended with 70, as by a bug, where it asked for secrets at that moment."""
    verb, *rest = command
    code, said = ended(metadata_gone, verb, act, "1", str(tmp_path), migrated_postgresql, *rest)
    assert code == 75, said
    assert said.splitlines()[-1] == "lethe: the metadata database cannot be reached"


AHEAD = timedelta(hours=2)
SWITCH = {"start.purge.job": True}


@pytest.fixture
def ahead(settings: Settings, database: Database) -> Iterator[Worker]:
    """A worker whose machine's clock is two hours before that of the metadata."""
    with database.reading() as db:
        wrong = FakeClock(database.now(db) + AHEAD)
    worker = Worker(settings, database, role="worker", clock=wrong)
    yield worker
    worker.lock.release()


def make_store(database: Database, **fields: Any) -> datetime:
    """A store with its ticks; returns what time it is there."""
    with database.transaction() as db:
        now = database.now(db)
        db.add(
            Store(
                id="shop",
                kind=StoreKind.SYMMETRICDS,
                url="sqlite:////x",
                created_at=now,
                updated_at=now,
                **fields,
            )
        )
    return now


def ticks(database: Database) -> list[tuple[datetime, datetime | None]]:
    with database.reading() as db:
        return [(row.next_at, row.last_at) for row in db.exec(select(SweepTick)).all()]


def test_a_clock_that_is_ahead_brings_no_tick_too_early(ahead: Worker) -> None:
    """A nightly purge began two hours early, on the one instance whose clock was wrong."""
    now = make_store(ahead.database, parameters=SWITCH)
    ahead._submit_due(Loop.BEAT)
    with ahead.database.transaction() as db:
        db.execute(update(SweepTick).values(next_at=now + AHEAD / 2))
    ahead._submit_beat()
    assert ticks(ahead.database) == [(now + AHEAD / 2, None)] * 3
    with ahead.database.transaction() as db:
        db.execute(update(SweepTick).values(next_at=now))
    ahead._submit_beat()
    assert None not in [last for _, last in ticks(ahead.database)]


def test_a_clock_that_is_ahead_ends_no_suspension(ahead: Worker) -> None:
    database = ahead.database
    now = make_store(database, is_suspended=True)
    with database.transaction() as db:
        db.execute(update(Store).values(suspended_until=now + AHEAD / 2))
    with database.reading() as db:
        assert set(ahead.runner._desk._suspended_stores(db)) == {"shop"}
    bench = Workbench(database, ahead.clock, ahead.settings)
    job_id = bench.submit()
    context = bench.context()
    with pytest.raises(JobWaiting) as caught:
        awake_store(context)
    [waiting] = caught.value.waiting_on
    assert (waiting.kind, waiting.until) == ("STORE_SUSPENDED", now + AHEAD / 2)
    assert caught.value.not_before is not None
    assert caught.value.not_before < now + timedelta(minutes=5)  # by the clock that claims go by
    rest = rest_wait(context, AlwaysOpen(), StopCause.SUSPEND)
    assert rest.not_before is not None
    assert rest.not_before < now + timedelta(minutes=5)
    assert bench.state(job_id) == "RUNNING"


@pytest.mark.parametrize("off", [AHEAD / 2, -AHEAD / 2])
@pytest.mark.postgresql
def test_jobs_of_an_instance_whose_clock_is_off_rest_and_end_by_the_clock_of_all(
    settings: Settings, postgresql_database: Database, off: timedelta
) -> None:
    """A wait of a minute took an hour, and a cycle ended an hour late, or before it had begun elsewhere."""
    url = postgresql_database.url.render_as_string(hide_password=False)
    with postgresql_database.reading() as db:
        began = postgresql_database.now(db)
    wrong = FakeClock(began + off)
    database = Database(url, clock=wrong)
    worker = Worker(settings, database, role="worker", clock=wrong)
    bench = Workbench(database, worker.clock, settings)

    def rests(context: JobContext) -> Mapping[str, Any]:
        not_before = context.clock.now() + timedelta(minutes=1)
        raise JobWaiting([WaitingOn(kind="BACKUP", ref="")], not_before=not_before)

    worker.runner.kinds = kind(rests)
    worker.runner.start()
    try:
        found = bench.until(bench.submit(), "WAITING").not_before
    finally:
        worker.runner.stop(10.0)
        worker.lock.release()
        database.close()
    assert found is not None
    assert timedelta(seconds=50) < found - began < timedelta(minutes=3)


@pytest.mark.postgresql
def test_time_of_the_metadata_is_counted_on_between_two_looks(postgresql_database: Database) -> None:
    with postgresql_database.reading() as db:
        began = postgresql_database.now(db)
    wrong = FakeClock(began - AHEAD)
    database = Database(postgresql_database.url.render_as_string(hide_password=False), clock=wrong)
    clock = MetadataClock(database, wrong)
    first = clock.now()
    assert abs(first - began) < timedelta(minutes=1)
    clock.sleep(90.0)
    assert clock.now() == first + timedelta(seconds=90)
    with database.reading() as db:
        assert abs(database.now(db) - clock.now()) < timedelta(seconds=1)
    database.close()


@pytest.mark.postgresql
def test_wait_for_a_connection_is_no_part_of_the_metadatas_time(postgresql_database: Database) -> None:
    """The clock was ahead by it, and went back with the next question."""
    wrong = FakeClock()
    database = Database(postgresql_database.url.render_as_string(hide_password=False), clock=wrong)
    clock = MetadataClock(database, wrong)
    event.listen(database.engine, "checkout", lambda *_: wrong.advance(20))
    with database.reading() as db:
        now = database.now(db)
    assert clock.now() == now
    database.close()


@pytest.mark.postgresql
def test_answer_that_came_late_takes_the_place_of_none_but_an_old_one(postgresql_database: Database) -> None:
    wrong = FakeClock()
    database = Database(postgresql_database.url.render_as_string(hide_password=False), clock=wrong)
    clock = MetadataClock(database, wrong)
    first = clock.now()
    event.listen(database.engine, "before_cursor_execute", lambda *_: wrong.advance(5))

    def ask() -> datetime:
        with database.reading() as db:
            return database.now(db)

    ask()
    assert clock.now() == first + timedelta(seconds=5)
    wrong.advance(90)
    late = ask()
    assert clock.now() == late + timedelta(seconds=5)
    database.close()


@pytest.mark.postgresql
@pytest.mark.parametrize("off", [AHEAD, -AHEAD])
def test_api_of_a_machine_whose_clock_is_off_goes_by_that_of_the_metadata(
    settings: Settings, postgresql_database: Database, monkeypatch: pytest.MonkeyPatch, off: timedelta
) -> None:
    """A job that was submitted there was told late at once, and its plans had expired as they were made."""
    with postgresql_database.transaction() as db:
        began = postgresql_database.now(db)
        own = ensure_admin_token(db, settings.data_dir, now=began).read_text().strip()
    wrong = FakeClock(began + off)
    database = Database(postgresql_database.url.render_as_string(hide_password=False), clock=wrong)
    bench = Workbench(database, wrong, settings)
    job_id = bench.submit("PURGE", params={"kind": "OUTGOING"})
    bench.set(job_id, state=JobState.FAILED, finished_at=began)
    worker = Worker(settings, database, role="serve", clock=wrong)
    with database.reading() as db:
        database.now(db)  # as its start does
    app = app_of(settings, database, worker, monkeypatch)
    try:
        made = post(app, f"/v1/jobs/{job_id}:retry", own)
        assert made.status_code == 202, made.text
        with database.reading() as db:
            job = db.get_one(Job, made.json()["id"])
        assert job.waiting_since is not None
        for at in (job.created_at, job.waiting_since, app.state.clock.now()):
            assert abs(at - began) < timedelta(minutes=2)
        monkeypatch.setattr(Database, "reading", None)  # the loop asks it what time it is
        assert abs(app.state.clock.now() - began) < timedelta(minutes=2)
    finally:
        worker.lock.release()
        database.close()


def app_of(
    settings: Settings, database: Database, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> FastAPI:
    """The application as `serve` makes it."""
    made: list[FastAPI] = []

    def make(*given: Any, **more: Any) -> FastAPI:
        made.append(create_app(*given, **more))
        return made[0]

    monkeypatch.setattr(server, "create_app", make)
    monkeypatch.setattr(main, "SystemClock", lambda: database.clock)
    monkeypatch.setattr(server, "_start", lambda *_: None)
    monkeypatch.setattr(server.Server, "run", lambda *_args, **_more: None)
    server._run_server(settings, database, worker, [], None)
    return made[0]


def post(app: FastAPI, path: str, secret: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        headers = {"Authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://lethe") as client:
            return await client.post(path, headers=headers)

    return asyncio.run(ask())


def test_a_clock_that_is_ahead_puts_no_session_off(settings: Settings, database: Database) -> None:
    """When an agreement comes again is written by the clock that it is looked for by."""
    with database.reading() as db:
        now = database.now(db)
    make_store(database)
    bench = Workbench(database, FakeClock(now + AHEAD), settings)
    bench.submit("REPLICATION_SESSION")
    with database.transaction() as db:
        db.add(agreement_of("shop", now, id="agr_x"))
    record = Record.of(bench.context(), "shop", PARAMS)
    record.begin()
    record.end(SessionOutcome.FAILED)
    with database.reading() as db:
        row = db.get_one(Agreement, "agr_x")
    soon = now + timedelta(minutes=5)
    assert row.last_started_at is not None
    assert row.last_ended_at is not None
    assert row.next_at is not None
    assert max(row.last_started_at, row.last_ended_at, row.next_at) < soon


PARAMS = SessionParams(
    agreement_id="agr_x",
    mode="INCREMENTAL",
    strategy="WINDOW",
    max_changes=None,
    max_duration=None,
    discard_consumer_changes=False,
    batch_rows=1,
    batch_bytes=1,
    in_flight=1,
    engine=None,
    throttle=None,
    consumer={},
    target={},
)
