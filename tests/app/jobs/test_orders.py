"""Orders are heard at once where there is news, and soon where there is none; a look costs only then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlmodel import col, update

from app.db import Database
from app.errors import MetadataUnavailable
from app.jobs.errors import StopCause
from app.jobs.rows import Job
from app.jobs.running.context import JobContext
from app.jobs.running.openings import AlwaysOpen
from app.jobs.running.orders import LONGEST_S, OrderDesk
from app.jobs.service import request_abort
from app.jobs.states import JobState
from app.settings import Settings
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench, finish, kind


class Desk:
    """A desk whose looks are counted, with one job that is held."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.clock = FakeClock()
        self.bench = Workbench(database, self.clock, settings)
        self.suspended: set[str] = set()
        self.looks = 0
        self.is_away = False
        self.desk = OrderDesk(
            database,
            kinds=kind(finish),
            openings=AlwaysOpen(),
            suspended_stores=self._suspended,
            monotonic=self.clock.boottime_s,
        )
        self.job_id = self.bench.submit()
        self.context = self.bench.context()

    def _suspended(self, _db: object) -> set[str]:
        self.looks += 1
        if self.is_away:
            raise MetadataUnavailable("away")
        return self.suspended

    def give(self, *contexts: JobContext) -> StopCause | None:
        self.desk.give({each.job.id: each for each in contexts or (self.context,)})
        return self.context.stop_cause


@pytest.fixture
def desk(database: Database, settings: Settings) -> Desk:
    return Desk(database, settings)


@pytest.fixture
def another(database: Database) -> Iterator[Database]:
    """The same metadata as another process has it: nobody here hears what it writes."""
    found = Database(database.engine.url.render_as_string(hide_password=False))
    yield found
    found.close()


def abort_unheard(another: Database, job_id: str) -> None:
    with another.engine.begin() as connection:
        connection.execute(update(Job).where(col(Job.id) == job_id).values(state=JobState.ABORTING))


def test_a_desk_at_rest_asks_nothing_between_its_looks(desk: Desk) -> None:
    for _ in range(600):
        desk.context.renewed(desk.clock.boottime_s())
        assert desk.give() is None
        desk.clock.advance(0.5)
    assert 300 / LONGEST_S - 2 <= desk.looks <= 300 / LONGEST_S + 2


def test_an_order_of_this_process_is_heard_at_the_next_turn(desk: Desk) -> None:
    desk.give()
    desk.bench.do(request_abort, desk.job_id)
    assert desk.give() is StopCause.ABORT


def test_an_order_that_no_news_tells_of_is_heard_soon(desk: Desk, another: Database) -> None:
    desk.give()
    abort_unheard(another, desk.job_id)
    desk.clock.advance(LONGEST_S)
    assert desk.give() is StopCause.ABORT


def test_a_job_that_is_new_here_is_looked_at(desk: Desk) -> None:
    desk.give()
    desk.bench.submit(store="other")
    second = desk.bench.context()
    before = desk.looks
    desk.give(desk.context, second)
    desk.give(desk.context, second)
    assert desk.looks == before + 1
    desk.give(second)
    assert desk.looks == before + 2


def test_a_look_that_fails_is_made_again(desk: Desk, another: Database) -> None:
    desk.give()
    abort_unheard(another, desk.job_id)
    desk.clock.advance(LONGEST_S)
    desk.is_away = True
    for _ in range(3):
        with pytest.raises(MetadataUnavailable):
            desk.give()
    desk.is_away = False
    assert desk.give() is StopCause.ABORT


def test_a_lease_that_another_has_is_heard(desk: Desk, another: Database) -> None:
    desk.give()
    with another.engine.begin() as connection:
        connection.execute(sa.text("update jobs set fencing_token = fencing_token + 1"))
    desk.clock.advance(LONGEST_S)
    assert desk.give() is StopCause.LEASE_LOST
