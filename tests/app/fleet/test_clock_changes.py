"""A clock that was ahead for a moment and was set back: what was written then comes, not a year later."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from sqlmodel import select, update

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.figures.sums import Name, count
from app.fleet.attention import Limits, Shown, needs_somebody
from app.fleet.clock_changes import SLACK, reckon_anew
from app.fleet.models import AttentionCode
from app.fleet.sight import Sight
from app.hooks.leases import settle, take
from app.hooks.sending import Outcome
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.outbox.rows import WebhookDelivery, WebhookExpectation
from app.outbox.writing import note_success
from app.purge.tick import tick_once
from app.schedules.scheduler import Scheduler
from app.settings import Settings
from app.stores.rows import Store
from app.sweeps.rows import SweepTick
from tests.app.fleet.test_checker import FIRST, PERIOD, Watched
from tests.app.hooks.outboxes import end_job, make_hook, make_job, make_store
from tests.app.jobs.workbench import Workbench
from tests.app.schedules.schedules_bench import WallClock, hang

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
YEAR = timedelta(days=365)
DAY = timedelta(days=1)


class World:
    """A service's looks at one clock that can be set."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.clock = WallClock(NOON)
        self.database, self.settings = database, settings
        hang(self.clock, database)
        self.scheduler = Scheduler(database, settings, self.clock, put_back=partial(reckon_anew, database))
        self.scheduler.look()

    def ahead(self, act: Callable[[], object]) -> None:
        """Do something while the clock is ahead by a year; then it is set back, and looked at."""
        self.clock.advance(YEAR.total_seconds())
        self.scheduler.look()
        act()
        self.clock.set(NOON + timedelta(minutes=5))
        self.scheduler.look()

    def tick(self) -> list[str]:
        return tick_once(self.database, self.settings, now=self.clock.now())


@pytest.fixture
def world(database: Database, settings: Settings) -> World:
    return World(database, settings)


def test_recurring_purge_comes_at_its_next_time(world: World) -> None:
    with world.database.transaction() as db:
        db.add(
            Store(
                id="shop",
                kind="SYMMETRICDS",
                url="sqlite:////nowhere/shop.db",
                parameters={"start.purge.outgoing.job": True, "job.purge.outgoing.cron": "0 0 0 * * *"},
                created_at=NOON,
                updated_at=NOON,
            )
        )
    world.tick()
    made: list[list[str]] = []
    world.ahead(lambda: made.append(world.tick()))
    with world.database.transaction() as db:
        db.execute(update(Job).values(state=JobState.SUCCEEDED, finished_at=NOON))
    assert world.tick() == []
    world.clock.advance(DAY.total_seconds())
    assert len(world.tick()) == len(made[0]) > 0


def test_job_that_was_sent_to_wait_looks_again(world: World) -> None:
    bench = Workbench(world.database, world.clock, world.settings)
    job_id = bench.submit()

    def wait() -> None:
        now = world.clock.now()
        bench.set(job_id, state=JobState.WAITING, not_before=now + SLACK, updated_at=now)

    world.ahead(wait)
    claimed = bench.claim()
    assert claimed is not None
    assert claimed.id == job_id


def test_delivery_that_failed_is_tried_again_and_a_success_is_expected_again(
    sqlite_database: Database, settings: Settings
) -> None:
    world = World(sqlite_database, settings)  # PostgreSQL has a clock of its own for deliveries
    make_store(world.database, "shop")
    hook = make_hook(world.database)
    with world.database.transaction() as db:
        within = {"within": DAY, "due_at": NOON + DAY}
        db.add(WebhookExpectation(webhook_id=hook.id, store="shop", kind="PURGE", **within))

    def fail() -> None:
        end_job(world.database, make_job(world.database))
        with world.database.transaction() as db:
            taken = take(db, world.database, hook.id, source="here")
            assert taken is not None
            settle(db, world.database, taken, Outcome(error="away"))
            note_success(db, store="shop", kind="PURGE", now=world.clock.now())

    world.ahead(fail)
    with world.database.transaction() as db:
        assert take(db, world.database, hook.id, source="here") is not None
        (row,) = db.exec(select(WebhookDelivery)).all()
        assert row.give_up_at < NOON + 10 * DAY
        (expected,) = db.exec(select(WebhookExpectation)).all()
        assert expected.due_at is not None
        assert expected.due_at <= world.clock.now() + DAY


def test_store_that_was_looked_at_is_looked_at_again(world: World) -> None:
    watched = Watched(world.database, world.clock, world.settings)  # type: ignore[arg-type]
    watched.add("shop")
    watched.run()
    assert watched.after(FIRST) == ["shop"]
    world.ahead(watched.run)
    assert watched.after(PERIOD) == ["shop"]


def test_what_was_written_by_a_clock_that_is_right_stays(world: World) -> None:
    bench = Workbench(world.database, world.clock, world.settings)
    job_id = bench.submit()
    later = NOON + DAY
    bench.set(job_id, state=JobState.WAITING, not_before=later, updated_at=NOON)
    reckon_anew(world.database)
    assert bench.job(job_id).not_before == later


def test_what_cannot_be_brought_in_line_is_tried_ever_less_often(
    database: Database, settings: Settings
) -> None:
    """A row of a newer version, say, that cannot be read here: it stays so for days."""
    clock, tried = WallClock(NOON), list[datetime]()
    hang(clock, database)

    def fail() -> bool:
        tried.append(clock.now())
        return False

    scheduler = Scheduler(database, settings, clock, put_back=fail)
    for _ in range(600):
        scheduler.look()
        clock.advance(1)
    assert 8 <= len(tried) <= 12
    assert tried[1] - tried[0] <= timedelta(seconds=2)
    clock.set(NOON)
    before = len(tried)
    scheduler.look()
    assert len(tried) == before + 1


def test_failure_after_a_success_that_has_not_been_yet_needs_somebody(world: World) -> None:
    make_store(world.database, "shop")

    def succeed() -> None:
        with world.database.transaction() as db:
            now = world.clock.now()
            count(db, Name.LAST_SUCCESS, "PURGE", store="shop", value=now.timestamp(), now=now)

    world.ahead(succeed)
    world.clock.advance(60)
    bench = Workbench(world.database, world.clock, world.settings)
    error = {"code": "TARGET_UNREACHABLE"}
    bench.put(JobState.FAILED, kind="PURGE", finished_at=world.clock.now(), error=error)
    sight = Sight(Caller("tok_1", "ann", frozenset(Scope), None), world.clock.now())
    with world.database.reading() as db:
        (told,), _ = needs_somebody(db, sight, Limits(DAY, DAY), Shown())
    assert told.code == AttentionCode.JOB_FAILED


def test_a_row_that_cannot_be_read_keeps_no_other_from_its_time(world: World) -> None:
    make_store(world.database, "shop")
    bench = Workbench(world.database, world.clock, world.settings)
    job_id = bench.submit(store=None)

    def write() -> None:
        now = world.clock.now()
        bench.set(job_id, state=JobState.WAITING, not_before=now + SLACK, updated_at=now)
        with world.database.transaction() as db:
            row = {"store": "shop", "kind": "OUTGOING", "time_zone": "Mars/Olympus", "next_at": now + DAY}
            db.add(SweepTick(cron="0 0 0 * * *", **row))

    world.ahead(write)
    assert world.scheduler.look() == []  # and fails at nothing
    claimed = bench.claim()
    assert claimed is not None
