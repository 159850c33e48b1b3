"""A job that no runner takes waits for one: it is shown, and told like any other wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import Session

from app.db import Database
from app.hooks.looks import look
from app.jobs.models import read_waiting
from app.jobs.rows import Job
from app.jobs.service import request_abort
from app.jobs.states import JobState
from app.jobs.writing import change_job
from app.outbox.facts import Fact
from tests.app.fake_clock import FakeClock
from tests.app.hooks.outboxes import events_of, make_hook, make_job, make_store

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def home(sqlite_database: Database) -> Database:
    """On SQLite the clock of the metadata is the fake one."""
    return sqlite_database


def told(database: Database) -> list[tuple[str, list[str]]]:
    """Jobs and causes of the waits that webhooks were told of."""
    look(database)
    waits = [event.data for event in events_of(database) if event.type == Fact.JOB_WAITS_LONG]
    return [(data["job_id"], data["waiting_on"]) for data in waits]


def change(database: Database, job_id: str, **values: Any) -> None:
    with database.transaction() as db:
        assert change_job(db, job_id, guards=[], values=values, now=database.now(db))


def row(database: Database, job_id: str) -> Job:
    with database.reading() as db:
        return db.get_one(Job, job_id)


def test_job_that_nobody_takes_says_that_it_waits_for_a_runner(home: Database, clock: FakeClock) -> None:
    began = clock.now()
    job_id = make_job(home)
    clock.advance(90)
    [shown] = read_waiting(row(home, job_id))
    assert (shown.kind, shown.ref, shown.since) == ("QUEUED", "", began)
    assert shown.help is not None
    change(home, job_id, state=JobState.RUNNING, waiting_on=[])
    found = row(home, job_id)
    assert (found.waiting_cause, found.waiting_since, read_waiting(found)) == (None, None, [])


def test_long_time_in_the_queue_is_told_once_after_the_hooks_own_time(
    home: Database, clock: FakeClock
) -> None:
    make_hook(home, waits_longer_than=HOUR)
    job_id = make_job(home)
    clock.advance(3599)
    assert told(home) == []
    clock.advance(1)
    for _ in range(3):
        assert told(home) == [(job_id, ["QUEUED"])]


def test_queue_past_job_wait_max_is_told_to_hooks_without_a_time_and_never_fails(
    home: Database, clock: FakeClock
) -> None:
    make_store(home, "shop")
    make_store(home, "soon", parameters={"job.wait.max": "PT10M", "job.wait.fails": True})
    make_hook(home)
    jobs = {store: make_job(home, store) for store in ("shop", "soon")}
    clock.advance(601)
    assert told(home) == [(jobs["soon"], ["QUEUED"])]
    clock.advance(86_400)
    expected = [(jobs["soon"], ["QUEUED"]), (jobs["shop"], ["QUEUED"])]
    for _ in range(2):
        assert told(home) == expected
    assert {row(home, job_id).state for job_id in jobs.values()} == {"QUEUED"}


def test_job_that_rested_counts_its_time_in_the_queue_anew(home: Database, clock: FakeClock) -> None:
    make_hook(home, waits_longer_than=HOUR)
    job_id = make_job(home)
    change(home, job_id, state=JobState.PAUSED)
    clock.advance(10 * 3600)
    assert told(home) == []
    change(home, job_id, state=JobState.QUEUED, waiting_on=[])
    clock.advance(60)
    assert told(home) == []
    clock.advance(3600)
    assert told(home) == [(job_id, ["QUEUED"])]


def test_end_of_a_queued_job_ends_its_wait(home: Database, clock: FakeClock) -> None:
    make_hook(home, waits_longer_than=HOUR)
    job_id = make_job(home)
    with home.transaction() as db:
        abort(db, job_id, home)
    clock.advance(7200)
    assert told(home) == []
    assert read_waiting(row(home, job_id)) == []


def abort(db: Session, job_id: str, database: Database) -> None:
    request_abort(db, job_id, now=database.now(db), actor="ann", reason="by hand")
