"""Windows at their edges: clocks that differ, claims that are given back, windows that go, metadata away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlmodel import Session, select

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.errors import MetadataUnavailable
from app.jobs.errors import ConflictingJob
from app.jobs.rows import Job, JobClaim
from app.jobs.running.claims import claim_target
from app.jobs.running.context import JobContext
from app.jobs.running.openings import window_wait
from app.jobs.running.outcome import wait
from app.jobs.running.sql_target import CHECKPOINT_TARGET
from app.jobs.service import refuse_conflict, wake
from app.jobs.states import JobState
from app.schedules.windows.brake import WindowBrake
from app.schedules.windows.models import WindowCreate
from app.schedules.windows.rows import Window
from app.schedules.windows.service import WAKE_KEY, create_window, remove_window
from app.settings import Settings
from app.stores.rows import Store
from tests.app.jobs.workbench import Workbench, kind
from tests.app.schedules.schedules_bench import SchedulesBench, WallClock, hang

ANN = Caller("tok_a", "ann", frozenset({Scope.ADMIN}), None)
ALWAYS = {"kind": "DENY", "cron": "0 * * * *", "duration": "PT2H"}
NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
DEADLINE_S = 30.0


def bench_of(database: Database, settings: Settings) -> Workbench:
    SchedulesBench(database, settings, WallClock(NOON)).store(labels={"tier": "gold"})
    return Workbench(database, WallClock(NOON), settings)


@pytest.fixture
def jobs(database: Database, settings: Settings) -> Workbench:
    return bench_of(database, settings)


def window(jobs: Workbench, **fields: Any) -> Window:
    request = WindowCreate.model_validate(ALWAYS | fields)
    with jobs.database.transaction() as db:
        return create_window(db, request, caller=ANN, now=jobs.database.now(db))


def brake(jobs: Workbench, ahead_s: float = 0.0) -> WindowBrake:
    """Of an instance whose own clock differs from that of the metadata."""
    with jobs.database.reading() as db:
        own = WallClock(jobs.database.now(db) + timedelta(seconds=ahead_s))
    return WindowBrake(jobs.database, own, is_held=lambda _kind, _params: True)


def until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("ahead_s", [-5.0, 0.0, 5.0])
def test_instances_whose_clocks_differ_agree_on_the_end_of_a_window(jobs: Workbench, ahead_s: float) -> None:
    """Jobs are claimed by the metadata's clock: a brake behind it would hold each again at once."""
    clock = WallClock(NOON)
    hang(clock, jobs.database)
    window(jobs, cron="0 10 * * *")
    jobs.submit()
    context, held = jobs.context(), brake(jobs, ahead_s)
    clock.set(NOON - timedelta(seconds=1))
    waiting = window_wait(context, held)
    assert waiting.not_before == NOON
    clock.set(NOON)
    assert held.of(context.job, fresh=True) is None
    with jobs.database.reading() as db:
        assert not held.closes(db, context.job)


def test_short_windows_side_by_side_tell_when_they_end(jobs: Workbench) -> None:
    hang(WallClock(NOON), jobs.database)
    window(jobs, cron="* 8-17 * * *", duration="PT1M")
    window(jobs, cron="*/7 * * * *", duration="PT1M", intensity=0.5)
    jobs.submit()
    [shown] = window_wait(jobs.context(), brake(jobs)).waiting_on
    assert shown.ref.endswith(", until 2026-11-23T18:00:00Z")
    assert shown.until == datetime(2026, 11, 23, 18, tzinfo=UTC)


def test_what_is_too_far_away_to_tell_is_told_as_far_as_it_is_known(jobs: Workbench) -> None:
    hang(WallClock(NOON), jobs.database)
    window(jobs, cron="* 0-22 * * *", duration="PT1M")
    window(jobs, cron="* 23 * * *", duration="PT1M")
    jobs.submit()
    [shown] = window_wait(jobs.context(), brake(jobs)).waiting_on
    assert shown.until is None
    assert ", not before 2026-11-23T18:40:00Z" in shown.ref


def hold_claim(jobs: Workbench, context: JobContext, *, has_ledger: bool) -> None:
    """As an attempt that has claimed its target leaves it."""

    def take(db: Session) -> None:
        context.change(db, {"claim_identity": "db:1", "claim_resource": "purge"})
        now = jobs.database.now(db)
        claim_target(db, job_id=context.job.id, target_identity="db:1", resource="purge", now=now)

    context.write(take)
    target = {"identity": "db:1", "resource": "purge", "ledger": has_ledger}
    context.save_checkpoint(CHECKPOINT_TARGET, target)


@pytest.mark.parametrize("has_ledger", [True, False])
def test_a_job_that_waits_for_a_window_gives_back_claims_that_a_fence_keeps(
    jobs: Workbench, has_ledger: bool
) -> None:
    window(jobs)
    job_id = jobs.submit()
    context = jobs.context()
    hold_claim(jobs, context, has_ledger=has_ledger)
    wait(context, window_wait(context, brake(jobs)), proven=True)
    with jobs.database.reading() as db:
        assert bool(db.exec(select(JobClaim)).all()) is not has_ledger
        job = db.get_one(Job, job_id)
        assert (job.state, job.gave_back) == (JobState.WAITING, has_ledger)
    stands = {"store": "shop", "identity": "db:1", "resource": "purge"}
    with jobs.database.transaction() as db, pytest.raises(ConflictingJob):
        refuse_conflict(db, **stands)  # the next one of its own sort would wait beside it
    with jobs.database.transaction() as db:
        if has_ledger:
            refuse_conflict(db, **stands, but_resting=True)  # a restore begins
        else:
            with pytest.raises(ConflictingJob):
                refuse_conflict(db, **stands, but_resting=True)


def is_somebody_blocked(engine: sa.Engine) -> bool:
    waits = "wait_event_type = 'Lock' and datname = current_database()"
    query = f"select count(*) from pg_stat_activity where {waits}"
    with engine.connect() as connection:
        return bool(connection.execute(sa.text(query)).scalar_one())


def relabel(db: Session, _window: Window) -> None:
    row = db.get_one(Store, "shop", with_for_update=True)
    row.labels = {"tier": "iron"}
    db.add(row)
    db.flush()
    wake(db, WAKE_KEY, now=NOON)


def remove(db: Session, row: Window) -> None:
    remove_window(db, row.id, now=NOON)


@pytest.mark.postgresql
@pytest.mark.parametrize("change", [remove, relabel])
def test_a_window_that_goes_as_a_job_begins_to_wait_lets_it_go_on(
    postgresql_database: Database, settings: Settings, change: Any
) -> None:
    """The job writes WAITING while the change is not committed yet: its wake finds nobody who waits."""
    jobs = bench_of(postgresql_database, settings)
    made = window(jobs, labels={"tier": "gold"})
    job_id = jobs.submit()
    context = jobs.context()
    waiting = window_wait(context, brake(jobs))
    waiter = threading.Thread(target=partial(wait, context, waiting, proven=True))
    with postgresql_database.transaction() as db:
        change(db, made)
        waiter.start()
        until(lambda: is_somebody_blocked(postgresql_database.engine) or not waiter.is_alive())
    waiter.join(DEADLINE_S)
    with postgresql_database.reading() as db:
        job = db.get_one(Job, job_id)
        assert job.state == JobState.WAITING
        assert job.not_before is not None
        assert job.not_before <= postgresql_database.now(db)


def test_whether_it_waits_is_asked_in_the_transaction_of_the_wait(
    jobs: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`closes` opens no other connection: with one writer and a small pool that would wait for itself."""
    made = window(jobs)
    job_id = jobs.submit()
    context = jobs.context()
    waiting = window_wait(context, brake(jobs))
    with jobs.database.transaction() as db:
        remove_window(db, made.id, now=jobs.database.now(db))
    opened: list[str] = []
    monkeypatch.setattr(jobs.database, "reading", lambda: opened.append("reading"))
    wait(context, waiting, proven=True)
    monkeypatch.undo()
    assert opened == []
    row = jobs.job(job_id)
    assert row.not_before is not None
    with jobs.database.reading() as db:
        assert row.not_before <= jobs.database.now(db)


class Away(WindowBrake):
    """Windows that cannot be read a few times."""

    left = 3

    def of(self, job: Any, *, fresh: bool = False) -> Any:
        if fresh and self.left:
            self.left -= 1
            raise MetadataUnavailable("away")
        return super().of(job, fresh=fresh)


def test_metadata_that_is_away_at_the_edge_of_a_window_is_waited_for(
    sqlite_database: Database, settings: Settings
) -> None:
    jobs = bench_of(sqlite_database, settings)
    hang(WallClock(NOON), sqlite_database)
    window(jobs)
    job_id = jobs.submit()

    def fail(_context: JobContext) -> Mapping[str, Any]:
        raise AssertionError("it may not work")

    away = Away(jobs.database, jobs.clock, is_held=lambda _kind, _params: True)
    runner = jobs.runner(kind(fail), clock=jobs.clock, openings=away)
    runner.start()
    try:
        row = jobs.until(job_id, JobState.WAITING, JobState.FAILED)
    finally:
        assert runner.stop(10)
    assert (row.state, away.left) == (JobState.WAITING, 0)


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    yield
    assert not [each for each in threading.enumerate() if each.name.startswith("lethe-job")]


@pytest.mark.parametrize("cron", ["bad", "@daily", "0 3 * *", ""])
def test_a_cron_that_is_too_short_is_refused_with_its_fields_named(cron: str) -> None:
    """It was answered with "String should have at least 9 characters", which says nothing of a cron."""
    with pytest.raises(ValueError, match="five fields: minute, hour, day of month, month, day of week"):
        WindowCreate.model_validate(ALWAYS | {"cron": cron})
