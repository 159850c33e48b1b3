"""The recurring trimming: nothing unasked, one job of many instances, and none beside another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import select

from app.auth.rows import AuditEvent
from app.db import Database
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.replication.trimming.tick import INTERVAL, TrimTickRead, read_tick, trim_tick_once
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from tests.app.fake_clock import FakeClock

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


def _add(database: Database, name: str, **fields: Any) -> None:
    with database.transaction() as db:
        db.add(
            Store(
                id=name,
                kind=StoreKind.REPLICA,
                url=f"sqlite:////nowhere/{name}.db",
                table_prefix="replica_",
                rid=1,
                created_at=NOON,
                updated_at=NOON,
                **fields,
            )
        )


def _jobs(database: Database) -> list[Job]:
    with database.reading() as db:
        return list(db.exec(select(Job).order_by(Job.id)).all())


def _end(database: Database, job_id: str) -> None:
    with database.transaction() as db:
        job = db.get_one(Job, job_id)
        job.state, job.finished_at = JobState.SUCCEEDED, NOON
        db.add(job)


def test_stores_that_did_not_ask_are_left_alone(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "plain")
    _add(database, "off", parameters={INTERVAL: "PT0S"})
    clock.advance(400 * 86_400)
    assert trim_tick_once(database, settings, now=clock.now()) == []


def test_a_store_is_trimmed_once_in_its_interval(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "asked", parameters={INTERVAL: "PT1H", "nsslapd-changelogmaxage": "P1D"})
    told: list[str] = []
    [first] = trim_tick_once(database, settings, now=clock.now(), changed=told.append)
    assert told == [first, "asked"]
    [job] = _jobs(database)
    assert (job.kind, job.store, job.requested_by) == ("PURGE", "asked", "tick")
    assert (job.params["kind"], job.params["retention"], job.params["archive"]) == ("CHANGELOG", "P1D", False)
    assert job.reason == f"{INTERVAL} is PT1H"
    _end(database, first)
    clock.advance(3_599)
    assert trim_tick_once(database, settings, now=clock.now()) == []
    clock.advance(1)
    assert len(trim_tick_once(database, settings, now=clock.now())) == 1
    with database.reading() as db:
        audits = db.exec(select(AuditEvent)).all()
    assert {(audit.actor, audit.action, audit.store) for audit in audits} == {
        ("tick", "purge.create", "asked")
    }


def test_one_that_has_not_ended_lets_the_time_pass(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "asked", parameters={INTERVAL: "PT1H"})
    assert len(trim_tick_once(database, settings, now=clock.now())) == 1
    clock.advance(7_200)
    assert trim_tick_once(database, settings, now=clock.now()) == []
    assert len(_jobs(database)) == 1


def test_what_became_of_the_last_trimming_is_told(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    """SUBMITTED was all that there was to see: a trimming that failed every hour showed it nowhere."""
    _add(database, "asked", parameters={INTERVAL: "PT1H"})
    _add(database, "off")

    def told(name: str) -> TrimTickRead | None:
        with database.reading() as db:
            return read_tick(db, db.get_one(Store, name), now=clock.now())

    before = told("asked")
    assert before is not None
    assert (before.next_at, before.last_at, before.last_job_state) == (clock.now(), None, None)
    began = clock.now()
    [job_id] = trim_tick_once(database, settings, now=began)
    error = {
        "code": "REPLICA_RESTORED",
        "title": "Restored",
        "detail": "it is not trimmed",
        "retryable": True,
    }
    with database.transaction() as db:
        job = db.get_one(Job, job_id)
        job.state, job.finished_at, job.error = JobState.FAILED, NOON, error
    clock.advance(60)
    after = told("asked")
    assert after is not None
    assert (after.last_job_id, after.last_job_state) == (job_id, JobState.FAILED)
    assert after.last_job_error is not None
    assert after.last_job_error.code == "REPLICA_RESTORED"
    assert (after.last_at, after.next_at) == (began, began + timedelta(hours=1))
    assert told("off") is None


def test_a_suspended_store_rests(database: Database, settings: Settings, clock: FakeClock) -> None:
    _add(database, "asked", parameters={INTERVAL: "PT1H"}, suspended_reason="maintenance", is_suspended=True)
    assert trim_tick_once(database, settings, now=clock.now()) == []


def test_of_many_instances_one_submits(database: Database, settings: Settings, clock: FakeClock) -> None:
    _add(database, "asked", parameters={INTERVAL: "PT1H"})
    with ThreadPoolExecutor(8) as instances:
        made = instances.map(lambda _: trim_tick_once(database, settings, now=clock.now()), range(8))
    assert sum(len(jobs) for jobs in made) == 1
    assert len(_jobs(database)) == 1
