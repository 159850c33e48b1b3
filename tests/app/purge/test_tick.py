"""The recurring tick: nothing unasked, one job of many instances, missed ticks once, skips are noted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import select

from app.auth.rows import AuditEvent
from app.db import Database
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.purge.models import PurgeKind, PurgeTickRead
from app.purge.tick import list_ticks, tick_once
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.models import TickOutcome
from app.sweeps.rows import SweepTick
from tests.app.fake_clock import FakeClock

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
DAY = 86_400.0
Tick = Callable[[], list[str]]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def tick(database: Database, settings: Settings, clock: FakeClock) -> Tick:
    """One look, as an instance takes it at each beat."""
    return lambda: tick_once(database, settings, now=clock.now())


def add_store(database: Database, clock: FakeClock, name: str = "shop", **fields: Any) -> None:
    with database.transaction() as db:
        row = Store(
            id=name,
            kind=StoreKind.SYMMETRICDS,
            url=f"sqlite:////nowhere/{name}.db",
            created_at=clock.now(),
            updated_at=clock.now(),
            **fields,
        )
        db.add(row)


def change_store(database: Database, name: str = "shop", **fields: Any) -> None:
    with database.transaction() as db:
        row = db.get_one(Store, name)
        row.sqlmodel_update(fields)
        db.add(row)


def jobs(database: Database) -> list[Job]:
    with database.reading() as db:
        return list(db.exec(select(Job).order_by(Job.id)).all())


def row_of(database: Database, kind: PurgeKind = PurgeKind.OUTGOING, store: str = "shop") -> SweepTick:
    with database.reading() as db:
        return db.get_one(SweepTick, (store, kind.value))


def shown(database: Database, clock: FakeClock) -> list[PurgeTickRead]:
    with database.reading() as db:
        return list_ticks(db, db.get_one(Store, "shop"), now=clock.now())


def test_stores_that_nobody_switched_on_are_left_alone(
    database: Database, clock: FakeClock, tick: Tick
) -> None:
    add_store(database, clock, "plain")
    add_store(database, clock, "off", parameters={"start.purge.job": False})
    add_store(database, clock, "own", target_parameters={"start.purge.job": True})
    assert tick() == []
    clock.advance(30 * DAY)
    assert tick() == []
    assert jobs(database) == []


def test_all_three_purges_are_submitted_at_midnight_of_the_stores_zone(
    database: Database, clock: FakeClock, tick: Tick
) -> None:
    add_store(database, clock, parameters={"start.purge.job": True}, time_zone="Europe/Berlin")
    assert tick() == []
    assert row_of(database).next_at == datetime(2026, 11, 20, 23, 0, tzinfo=UTC)
    clock.advance(11 * 3600 - 1)
    assert tick() == []
    clock.advance(1)
    made = tick()
    assert len(made) == 3
    assert [job.params["kind"] for job in jobs(database)] == ["OUTGOING", "INCOMING", "DATA_GAP"]
    for job in jobs(database):
        assert (job.kind, job.state, job.store) == ("PURGE", JobState.QUEUED, "shop")
        assert (job.requested_by, job.reason) == ("tick", "start.purge.job is on")
        assert job.params["archive"] is None
    resources = {f"public.sym_{kind}" for kind in ("outgoing", "incoming", "data_gap")}
    assert {job.claim_resource for job in jobs(database)} == resources
    assert row_of(database).next_at == datetime(2026, 11, 21, 23, 0, tzinfo=UTC)
    with database.reading() as db:
        audits = db.exec(select(AuditEvent)).all()
    assert sorted(audit.subject_id for audit in audits) == sorted(made)
    assert {(audit.actor, audit.action) for audit in audits} == {("tick", "purge.create")}


def test_the_switches_of_3x_tick_every_four_hours_and_gaps_go_with_outgoing(
    database: Database, clock: FakeClock, tick: Tick
) -> None:
    add_store(database, clock, parameters={"start.purge.outgoing.job": True})
    tick()
    assert [(item.kind, item.cron) for item in shown(database, clock)] == [
        (PurgeKind.OUTGOING, "0 0 */4 * * *"),
        (PurgeKind.DATA_GAP, "0 0 */4 * * *"),
    ]
    assert row_of(database).next_at == NOON + timedelta(hours=4)
    change_store(
        database,
        parameters={"start.purge.incoming.job": True, "job.purge.incoming.cron": "30 15 * * * *"},
    )
    tick()
    [item] = shown(database, clock)
    assert (item.kind, item.next_at) == (PurgeKind.INCOMING, NOON + timedelta(minutes=15, seconds=30))


def test_missed_ticks_are_made_up_once(database: Database, clock: FakeClock, tick: Tick) -> None:
    add_store(database, clock, parameters={"start.purge.incoming.job": True})
    tick()
    clock.advance(10 * DAY + 60)
    assert len(tick()) == 1
    assert tick() == []
    assert row_of(database, PurgeKind.INCOMING).next_at == NOON + timedelta(days=10, hours=4)


def test_of_many_instances_exactly_one_submits(
    database: Database, settings: Settings, clock: FakeClock, tick: Tick
) -> None:
    add_store(database, clock, parameters={"start.purge.job": True})
    tick()
    for _ in range(5):
        clock.advance(DAY)
        with ThreadPoolExecutor(6) as pool:
            made = [job for found in pool.map(lambda _: tick(), range(6)) for job in found]
        assert len(made) == 3
        _end(database, made)
    assert len(jobs(database)) == 15


def _end(database: Database, made: list[str]) -> None:
    with database.transaction() as db:
        for job_id in made:
            job = db.get_one(Job, job_id)
            job.state = JobState.SUCCEEDED
            db.add(job)


def test_a_tick_beside_a_purge_that_has_not_ended_is_skipped_and_noted(
    database: Database, clock: FakeClock, tick: Tick
) -> None:
    add_store(database, clock, parameters={"start.purge.incoming.job": True})
    tick()
    clock.advance(4 * 3600)
    [running] = tick()
    clock.advance(4 * 3600)
    assert tick() == []
    row = row_of(database, PurgeKind.INCOMING)
    assert (row.last_outcome, row.last_job_id) == (TickOutcome.SKIPPED_RUNNING, None)
    assert running in (row.last_detail or "")
    assert row.next_at == NOON + timedelta(hours=12)
    _end(database, [running])
    clock.advance(4 * 3600)
    assert len(tick()) == 1
    assert row_of(database, PurgeKind.INCOMING).last_outcome == TickOutcome.SUBMITTED


def test_a_suspended_store_is_skipped(database: Database, clock: FakeClock, tick: Tick) -> None:
    add_store(database, clock, parameters={"start.purge.incoming.job": True})
    tick()
    change_store(database, is_suspended=True, suspended_reason="migration")
    clock.advance(4 * 3600)
    assert tick() == []
    row = row_of(database, PurgeKind.INCOMING)
    assert (row.last_outcome, row.last_detail) == (TickOutcome.SKIPPED_SUSPENDED, "migration")


def test_a_full_queue_is_noted_and_the_next_tick_comes(
    database: Database, settings: Settings, clock: FakeClock, tick: Tick
) -> None:
    add_store(database, clock, parameters={"start.purge.job": True})
    tick()
    clock.advance(DAY)
    full = settings.model_copy(update={"jobs_queued_max": 1})
    assert len(tick_once(database, full, now=clock.now())) == 1
    with database.reading() as db:
        outcomes = sorted(str(row.last_outcome) for row in db.exec(select(SweepTick)).all())
    assert outcomes == ["SKIPPED_REFUSED", "SKIPPED_REFUSED", "SUBMITTED"]


def test_switching_off_and_removing_the_store_end_the_ticks(
    database: Database, clock: FakeClock, tick: Tick
) -> None:
    add_store(database, clock, parameters={"start.purge.job": True})
    add_store(database, clock, "gone", parameters={"start.purge.job": True})
    tick()
    change_store(database, parameters={})
    with database.transaction() as db:
        db.delete(db.get_one(Store, "gone"))
    clock.advance(DAY)
    assert tick() == []
    with database.reading() as db:
        assert db.exec(select(SweepTick)).all() == []
    assert shown(database, clock) == []


def test_another_cron_moves_the_next_tick_and_is_not_made_up(
    database: Database, clock: FakeClock, tick: Tick
) -> None:
    add_store(database, clock, parameters={"start.purge.incoming.job": True})
    tick()
    clock.advance(5 * 3600)  # one is due, but what was asked for has changed since
    parameters = {"start.purge.incoming.job": True, "job.purge.incoming.cron": "0 0 3 * * MON"}
    change_store(database, parameters=parameters)
    assert tick() == []
    assert row_of(database, PurgeKind.INCOMING).next_at == datetime(2026, 11, 23, 3, 0, tzinfo=UTC)
