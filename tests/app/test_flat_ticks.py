"""What the looks of the loops cost does not grow with the stores, the schedules or the jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import Session

from app.backups.settling import keep_backups
from app.db import Database
from app.hooks.looks import look as look_at_hooks
from app.idle import agreements_rest_s, eraser_rest_s, first_due, is_anything_held
from app.jobs.counting import QUEUED
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.schedules.rows import Schedule
from app.schedules.rules import MissedRuns, ScheduleOverlap
from app.schedules.scheduler import Scheduler
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.resting import suspended_stores
from app.stores.rows import Store
from app.verbs.table import recurrences
from tests.app.fake_clock import FakeClock
from tests.app.jobs.test_flat_looks import Cost, cost_of
from tests.app.many import add_many, padded

FEW, MANY = 100, 1_000
SCHEDULES_FEW = 250
"""More than one look reads ahead."""
JOBS = 10_000
GROWTH_MAX = 2.0
PARAMETERS: dict[StoreKind, dict[str, Any]] = {
    StoreKind.SYMMETRICDS: {"start.purge.job": True},
    StoreKind.SLONY: {"start.cleanup_thread": True},
    StoreKind.REPLICA: {"nsslapd-changelogtrim-interval": "P1D"},
    StoreKind.JE: {},
}
OF_KIND: dict[StoreKind, dict[str, Any]] = {
    StoreKind.SYMMETRICDS: {},
    StoreKind.SLONY: {"cluster": "lab"},
    StoreKind.REPLICA: {},
    StoreKind.JE: {"path": "/nowhere", "url": None},
}


def fill_stores(database: Database, clock: FakeClock, first: int, upto: int) -> None:
    """Stores of every kind in turn, with what recurs switched on."""
    now = clock.now()
    with database.transaction() as db:
        for number in range(first, upto):
            kind = list(PARAMETERS)[number % len(PARAMETERS)]
            fields = {"url": f"sqlite:////nowhere/{number}.db"} | OF_KIND[kind]
            parameters = PARAMETERS[kind]
            name = f"store-{number:04}"
            db.add(Store(id=name, kind=kind, parameters=parameters, created_at=now, updated_at=now, **fields))


def fill_schedules(database: Database, clock: FakeClock, first: int, upto: int) -> None:
    """Schedules that come in an hour and later."""
    now = clock.now()
    with database.transaction() as db:
        for number in range(first, upto):
            due = now + timedelta(hours=1, seconds=number)
            row = Schedule(
                id=f"sch_{number:026}",
                verb="PURGE",
                body={},
                store="store-0000",
                cron="0 3 * * *",
                time_zone="UTC",
                token_id="tok",
                created_by="ann",
                created_at=now,
                updated_at=now,
                overlap=ScheduleOverlap.FORBID,
                missed=MissedRuns.SKIP,
                next_due=due,
                next_at=due,
                reckoned_at=now,
            )
            db.add(row)


def fill_jobs(database: Database, clock: FakeClock, count: int) -> None:
    """Jobs that are queued."""
    now = clock.now()
    row = Job(
        id=f"job_{0:026}", kind="PURGE", store="store-0000", created_at=now, updated_at=now,
        requested_by="ann", state=JobState.QUEUED, waiting_cause=QUEUED, waiting_since=now,
    )  # fmt: skip
    with database.transaction() as db:
        add_many(db, row, count, store=lambda number: "store-" + padded(number % MANY, 4))


Look = Callable[[], object]


def looks(database: Database, settings: Settings, clock: FakeClock) -> dict[str, Look]:
    """Every look that is made again and again."""

    def read(ask: Callable[[Session], object]) -> Look:
        def act() -> None:
            with database.reading() as db:
                ask(db)

        return act

    def submit(make: Any) -> Look:
        return lambda: make(database, settings, now=clock.now(), changed=lambda _: None)

    scheduler = Scheduler(database, settings, clock)
    found = {
        "schedules": scheduler.look,
        "backups": lambda: keep_backups(database, settings, clock=clock),
        "webhooks": lambda: look_at_hooks(database),
        "held": read(is_anything_held),
        "first due": read(first_due),
        "eraser's rest": read(lambda db: eraser_rest_s(db, now=clock.now())),
        "agreements' rest": read(agreements_rest_s),
        "suspended": read(lambda db: suspended_stores(db, now=clock.now())),
    }
    for number, each in enumerate(recurrences()):
        found[f"{each.loop} {number}"] = submit(each.make())
    return found


def costs(database: Database, made: dict[str, Look]) -> dict[str, Cost]:
    for act in made.values():
        act()
    return {name: cost_of(database, act) for name, act in made.items()}


@pytest.mark.timeout(180)
def test_looks_cost_the_same_with_ten_times_the_stores_and_schedules_and_ten_thousand_jobs(
    sqlite_database: Database, settings: Settings, clock: FakeClock
) -> None:
    fill_stores(sqlite_database, clock, 0, FEW)
    fill_schedules(sqlite_database, clock, 0, SCHEDULES_FEW)
    made = looks(sqlite_database, settings, clock)
    few = costs(sqlite_database, made)
    fill_stores(sqlite_database, clock, FEW, MANY)
    fill_schedules(sqlite_database, clock, SCHEDULES_FEW, MANY)
    with_stores = costs(sqlite_database, made)
    fill_jobs(sqlite_database, clock, JOBS)
    with_jobs = costs(sqlite_database, made)
    for name, cost in few.items():
        print(f"{name}: {cost}, {with_stores[name]}, {with_jobs[name]}")
    for name, cost in few.items():
        assert with_stores[name].statements <= cost.statements, name
        assert with_jobs[name].statements <= cost.statements, name
        assert with_jobs[name].steps <= max(GROWTH_MAX * with_stores[name].steps, 100), name
    assert with_stores["schedules"].steps <= GROWTH_MAX * few["schedules"].steps
