"""What a look for work costs does not grow with the queue, the stores or the schedules.

Counted are statements, and the steps of SQLite's machine: all rows that they touch, also those that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlmodel import insert

from app.db import Database
from app.jobs.rows import Job, JobClass
from app.jobs.running.candidates import is_anything_due, next_due
from app.jobs.running.claims import claim_next, reap
from app.jobs.states import JobState
from app.kit.ids import new_id
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import parallel_limits
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import claimer
from tests.app.many import add_many, padded

FEW, MANY = 100, 10_000
GROWTH_MAX = 2.0
STEPS_AT_ONCE = 10
SHAPES: dict[str, dict[str, Any]] = {
    "queued": {"state": JobState.QUEUED},
    "queued for runners elsewhere": {"state": JobState.QUEUED, "runs_on_key": "elsewhere"},
    "waiting for news": {"state": JobState.WAITING},
    "waiting for later": {"state": JobState.WAITING, "not_before": timedelta(hours=1)},
    "waiting and due": {"state": JobState.WAITING, "not_before": timedelta(hours=-1)},
    "paused": {"state": JobState.PAUSED},
    "ended": {"state": JobState.SUCCEEDED, "finished_at": timedelta(hours=-1)},
}


@dataclass
class Cost:
    """What a look took."""

    statements: int = 0
    steps: int = 0


@contextmanager
def counted(database: Database) -> Iterator[Cost]:
    """Count what the metadata is asked in the block."""
    cost = Cost()

    def note(_conn: Any, _cursor: Any, *_rest: Any) -> None:
        cost.statements += 1

    def step() -> int:
        cost.steps += STEPS_AT_ONCE
        return 0

    def watch(connection: Any, *_rest: Any) -> None:
        if database.is_sqlite:
            connection.set_progress_handler(step, STEPS_AT_ONCE)

    engine = database.engine
    engine.dispose()  # each connection is a new one, and watched
    sa.event.listen(engine, "before_cursor_execute", note)
    sa.event.listen(engine, "connect", watch)
    try:
        yield cost
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
        sa.event.remove(engine, "connect", watch)
        engine.dispose()


def fill(database: Database, clock: FakeClock, count: int, **fields: Any) -> None:
    """So many jobs of 1,000 stores."""
    now = clock.now()
    values = {name: now + each if isinstance(each, timedelta) else each for name, each in fields.items()}
    with database.transaction() as db:
        if not database.is_sqlite:
            now = database.now(db)
        fields = {"kind": "TOY", "created_at": now, "updated_at": now, "requested_by": "ann", **values}
        row = Job(id=new_id("job"), store="store-0000", **fields)
        add_many(db, row, count, store=lambda number: "store-" + padded(number % 1000, 4))


def fill_stores(database: Database, clock: FakeClock, count: int, *, first: int = 0) -> None:
    """Stores up to so many."""
    now = clock.now()
    base = Store(id="", kind=StoreKind.SYMMETRICDS, url="sqlite:////nowhere", created_at=now, updated_at=now)
    shape = base.model_dump()
    rows = [shape | {"id": f"store-{number:04}"} for number in range(first, count)]
    with database.transaction() as db:
        db.execute(insert(Store), rows)


def look(database: Database) -> None:
    """What a runner does when something was written: look, take back, claim one of each class."""
    with database.reading() as db:
        now = database.now(db)
        if not is_anything_due(db, now=now):
            next_due(db, now=now)
            return
    with database.transaction() as db:
        reap(db, database, claimer())
    for job_class in JobClass:
        with database.transaction() as db:
            claim_next(
                db,
                database,
                claimer(),
                job_class=job_class,
                parallel_limits=parallel_limits,
                kinds=["TOY"],
            )


def cost_of(database: Database, act: Callable[[], object]) -> Cost:
    act()  # what is done once is not counted
    with counted(database) as cost:
        act()
    return cost


@pytest.mark.parametrize("shape", SHAPES)
def test_a_look_for_work_costs_the_same_with_a_hundred_times_the_jobs(
    sqlite_database: Database, clock: FakeClock, shape: str
) -> None:
    fill_stores(sqlite_database, clock, 100)
    fill(sqlite_database, clock, FEW, **SHAPES[shape])
    few = cost_of(sqlite_database, lambda: look(sqlite_database))
    fill(sqlite_database, clock, MANY - FEW, **SHAPES[shape])
    fill_stores(sqlite_database, clock, 1000, first=100)
    many = cost_of(sqlite_database, lambda: look(sqlite_database))
    print(few, many)
    assert many.statements <= few.statements
    assert many.steps <= GROWTH_MAX * few.steps
