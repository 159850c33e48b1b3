"""The recurring cleanup: nothing unasked, one job of many instances, and none beside another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete
from sqlmodel import select

from app.auth.rows import AuditEvent
from app.db import Database
from app.events.cleanup.tick import SWITCH, read_tick, tick_once
from app.jobs.rows import Job, JobEvent
from app.jobs.states import JobState
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.models import TickOutcome
from app.sweeps.rows import SweepTick
from tests.app.fake_clock import FakeClock

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TEN_MINUTES_S = 600


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


def _add(database: Database, name: str, kind: StoreKind = StoreKind.SLONY, **fields: Any) -> None:
    with database.transaction() as db:
        db.add(
            Store(
                id=name,
                kind=kind,
                url="postgresql+psycopg://nobody@127.0.0.1:1/nowhere",
                cluster="lab" if kind is StoreKind.SLONY else None,
                created_at=NOON,
                updated_at=NOON,
                **fields,
            )
        )


def _change(database: Database, name: str, **fields: Any) -> None:
    with database.transaction() as db:
        store = db.get_one(Store, name)
        store.sqlmodel_update(fields)
        db.add(store)


def _jobs(database: Database) -> list[Job]:
    with database.reading() as db:
        return list(db.exec(select(Job).order_by(Job.id)).all())


def _row(database: Database, store: str) -> SweepTick:
    with database.reading() as db:
        return db.get_one(SweepTick, (store, "EVENT_CLEANUP"))


def _end(database: Database, job_id: str) -> None:
    with database.transaction() as db:
        job = db.get_one(Job, job_id)
        job.state, job.finished_at = JobState.SUCCEEDED, NOON
        db.add(job)


def test_stores_that_did_not_ask_are_left_alone(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "plain")
    _add(database, "off", parameters={SWITCH: False, "cleanup_interval": "PT1M"})
    _add(database, "other", kind=StoreKind.SYMMETRICDS, parameters={SWITCH: True})
    for _ in range(3):
        assert tick_once(database, settings, now=clock.now()) == []
        clock.advance(86_400)
    with database.reading() as db:
        assert db.exec(select(SweepTick)).all() == []
        assert read_tick(db, db.get_one(Store, "plain"), now=clock.now()) is None


def test_the_first_cleanup_comes_an_interval_after_it_was_switched_on(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "asked", parameters={SWITCH: True})
    assert tick_once(database, settings, now=clock.now()) == []
    clock.advance(TEN_MINUTES_S - 1)
    assert tick_once(database, settings, now=clock.now()) == []
    clock.advance(1)
    told: list[str] = []
    [first] = tick_once(database, settings, now=clock.now(), changed=told.append)
    assert told == [first, "asked"]
    [job] = _jobs(database)
    assert (job.kind, job.store, job.requested_by, job.reason) == (
        "EVENT_CLEANUP",
        "asked",
        "tick",
        f"{SWITCH} is on",
    )
    assert (job.params["interval"], job.params["interval_source"], job.params["via"]) == (
        "PT10M",
        "DEFAULT",
        None,
    )
    row = _row(database, "asked")
    assert (row.next_at, row.last_at, row.last_outcome, row.last_job_id) == (
        clock.now() + timedelta(seconds=TEN_MINUTES_S),
        clock.now(),
        TickOutcome.SUBMITTED,
        first,
    )
    with database.reading() as db:
        [audit] = db.exec(select(AuditEvent)).all()
    assert (audit.actor, audit.action, audit.store, audit.detail["interval"]) == (
        "tick",
        "event-cleanup.create",
        "asked",
        "PT10M",
    )


def test_the_interval_is_both_the_age_and_the_time_between(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "asked", parameters={SWITCH: True, "cleanup_interval": "PT2M"})
    tick_once(database, settings, now=clock.now())
    for _ in range(2):
        clock.advance(120)
        [job_id] = tick_once(database, settings, now=clock.now())
        _end(database, job_id)
    assert [job.params["interval"] for job in _jobs(database)] == ["PT2M", "PT2M"]


def test_an_interval_of_nothing_is_an_age_and_cleanups_stay_a_minute_apart(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "asked", parameters={SWITCH: True, "cleanup_interval": "PT0S"})
    tick_once(database, settings, now=clock.now())
    clock.advance(59)
    assert tick_once(database, settings, now=clock.now()) == []
    clock.advance(1)
    assert len(tick_once(database, settings, now=clock.now())) == 1
    [job] = _jobs(database)
    assert job.params["interval"] == "PT0S"


def test_a_changed_interval_counts_from_the_change(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "asked", parameters={SWITCH: True, "cleanup_interval": "PT1H"})
    tick_once(database, settings, now=clock.now())
    clock.advance(3_599)
    _change(database, "asked", parameters={SWITCH: True, "cleanup_interval": "PT30M"})
    assert tick_once(database, settings, now=clock.now()) == []
    assert _row(database, "asked").next_at == clock.now() + timedelta(minutes=30)
    _change(database, "asked", parameters={})
    assert tick_once(database, settings, now=clock.now()) == []
    with database.reading() as db:
        assert db.get(SweepTick, ("asked", "EVENT_CLEANUP")) is None


def test_a_cleanup_that_has_not_ended_skips_the_tick_and_is_named(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "asked", parameters={SWITCH: True})
    tick_once(database, settings, now=clock.now())
    clock.advance(TEN_MINUTES_S)
    [first] = tick_once(database, settings, now=clock.now())
    clock.advance(TEN_MINUTES_S)
    assert tick_once(database, settings, now=clock.now()) == []
    row = _row(database, "asked")
    assert row.last_outcome == TickOutcome.SKIPPED_RUNNING
    assert first in str(row.last_detail)
    assert len(_jobs(database)) == 1


def test_a_suspended_store_rests_and_says_so(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "asked", parameters={SWITCH: True})
    tick_once(database, settings, now=clock.now())
    _change(database, "asked", is_suspended=True, suspended_reason="maintenance")
    clock.advance(TEN_MINUTES_S)
    assert tick_once(database, settings, now=clock.now()) == []
    with database.reading() as db:
        shown = read_tick(db, db.get_one(Store, "asked"), now=clock.now())
    assert shown is not None
    assert (shown.last_outcome, shown.last_detail, shown.last_job_id) == (
        TickOutcome.SKIPPED_SUSPENDED,
        "maintenance",
        None,
    )
    assert shown.next_at == clock.now() + timedelta(seconds=TEN_MINUTES_S)


def test_ticks_that_nobody_was_there_for_are_made_up_once(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "asked", parameters={SWITCH: True})
    tick_once(database, settings, now=clock.now())
    clock.advance(86_400)
    assert len(tick_once(database, settings, now=clock.now())) == 1
    assert tick_once(database, settings, now=clock.now()) == []


def test_of_many_instances_one_submits(database: Database, settings: Settings, clock: FakeClock) -> None:
    _add(database, "asked", parameters={SWITCH: True})
    tick_once(database, settings, now=clock.now())
    clock.advance(TEN_MINUTES_S)
    with ThreadPoolExecutor(8) as instances:
        made = instances.map(lambda _: tick_once(database, settings, now=clock.now()), range(8))
    assert sum(len(jobs) for jobs in made) == 1
    assert len(_jobs(database)) == 1


def test_a_tick_tells_how_the_job_ended_that_it_submitted(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    # `/recurring` said SUBMITTED, tick after tick, and each of the jobs had failed for want of a right.
    _add(database, "asked", parameters={SWITCH: True})
    tick_once(database, settings, now=clock.now())
    clock.sleep(TEN_MINUTES_S + 1)
    [job_id] = tick_once(database, settings, now=clock.now())

    def shown() -> Any:
        with database.reading() as db:
            return read_tick(db, db.get_one(Store, "asked"), now=clock.now())

    told = shown()
    assert (told.last_outcome, told.last_job_state, told.last_job_error) == (
        TickOutcome.SUBMITTED,
        JobState.QUEUED,
        None,
    )
    error = {"code": "TARGET_READ_ONLY", "title": "x", "detail": "no right", "retryable": False}
    with database.transaction() as db:
        job = db.get_one(Job, job_id)
        job.sqlmodel_update({"state": JobState.FAILED, "error": error, "finished_at": clock.now()})
        db.add(job)
    told = shown()
    assert (told.last_outcome, told.last_job_state) == (TickOutcome.SUBMITTED, JobState.FAILED)
    assert told.last_job_error.code == "TARGET_READ_ONLY"
    with database.transaction() as db:  # retention has forgotten it
        db.execute(delete(JobEvent))
        db.delete(db.get_one(Job, job_id))
    told = shown()
    assert (told.last_job_id, told.last_job_state, told.last_job_error) == (job_id, None, None)
