"""Checks that come by themselves: each store once per period, by one instance, and never one that rests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlmodel import select

from app.clock import Clock
from app.db import Database
from app.errors import Unprocessable
from app.figures.rows import SeriesPoint
from app.fleet.checker import CLAIM, DUE_MAX, FIRST, Checker
from app.kinds.table import StoreKind
from app.settings import Settings
from app.stores.checks.models import Finding, FindingSeverity, StoreCheck, TableSize
from app.stores.checks.rows import StoreHealth
from app.stores.rows import Store
from tests.app.fake_clock import FakeClock

PERIOD = timedelta(minutes=5)
Look = Callable[[Store], StoreCheck]


def fine(_store: Store) -> StoreCheck:
    return StoreCheck(ok=True, reachable=True, sizes=[TableSize(table="t", rows_estimate=42, bytes=1)])


class Watched:
    """A checker, and the stores that it has looked at."""

    def __init__(self, database: Database, clock: FakeClock, settings: Settings, look: Look = fine) -> None:
        self.database, self.clock = database, clock
        self.looked: list[str] = []

        def check(_database: Database, store: Store, _settings: Settings, _now: datetime) -> StoreCheck:
            self.looked.append(store.id)
            return look(store)

        self.checker = Checker(database, settings, clock, {StoreKind.SQL: check})

    def add(self, name: str, **fields: object) -> None:
        now = self.clock.now()
        with self.database.transaction() as db:
            db.add(Store(id=name, kind="SQL", url="sqlite:////x", created_at=now, updated_at=now, **fields))

    def run(self) -> list[str]:
        """Look at all that is due; which stores those were."""
        self.looked.clear()
        while self.checker.check_some():
            pass
        return list(self.looked)

    def after(self, span: timedelta) -> list[str]:
        self.clock.advance(span.total_seconds())
        return self.run()

    def health(self, name: str) -> StoreHealth:
        with self.database.reading() as db:
            return db.get_one(StoreHealth, name)


@pytest.fixture
def watched(database: Database, clock: FakeClock, settings: Settings) -> Watched:
    return Watched(database, clock, settings)


def test_new_store_is_looked_at_soon_and_then_every_period(watched: Watched) -> None:
    watched.add("a")
    assert watched.run() == []
    assert watched.after(FIRST) == ["a"]
    assert watched.after(PERIOD / 2) == []
    assert watched.after(PERIOD / 2) == ["a"]
    row = watched.health("a")
    assert (row.trouble, row.is_reachable, row.checked_at) == (None, True, watched.clock.now())


def test_period_of_a_store_wins_and_nothing_at_all_switches_it_off(watched: Watched) -> None:
    watched.add("often", parameters={"store.check.period": "PT1M"})
    watched.add("never", parameters={"store.check.period": "PT0S"})
    watched.run()
    assert watched.after(FIRST) == ["often"]
    assert watched.after(timedelta(minutes=1)) == ["often"]
    assert watched.after(timedelta(hours=1)) == ["often"]
    assert watched.health("never").stale_at is None


def test_store_that_rests_is_left_alone(watched: Watched) -> None:
    watched.add("a", is_suspended=True)
    watched.run()
    assert watched.after(timedelta(hours=1)) == []


def test_store_that_other_runners_reach_is_left_to_them(watched: Watched) -> None:
    watched.add("a", runs_on=["zone-b"])
    watched.run()
    assert watched.after(timedelta(hours=1)) == []


def test_store_that_is_never_looked_at_becomes_stale(watched: Watched) -> None:
    watched.add("a")
    watched.run()
    stale_at = watched.health("a").stale_at
    assert stale_at is not None
    assert timedelta() < stale_at - watched.clock.now() < timedelta(hours=1)


def test_trouble_keeps_the_time_since_when_it_is_so(
    database: Database, clock: FakeClock, settings: Settings
) -> None:
    troubles = iter([True, True, False])

    def look(_store: Store) -> StoreCheck:
        if next(troubles):
            finding = Finding(code="TARGET_UNREACHABLE", severity=FindingSeverity.ERROR, detail="d" * 900)
            return StoreCheck(ok=False, reachable=False, findings=[finding])
        return fine(_store)

    watched = Watched(database, clock, settings, look)
    watched.add("a")
    watched.run()
    watched.after(FIRST)
    first = watched.health("a")
    assert (first.trouble, first.trouble_since) == ("TARGET_UNREACHABLE", clock.now())
    assert len(first.findings[0]["detail"]) <= 300
    watched.after(PERIOD)
    assert watched.health("a").trouble_since == first.trouble_since
    watched.after(PERIOD)
    assert (watched.health("a").trouble, watched.health("a").trouble_since) == (None, None)


def test_refused_border_is_a_finding(database: Database, clock: FakeClock, settings: Settings) -> None:
    def look(_store: Store) -> StoreCheck:
        raise Unprocessable("not here", code="TARGET_URL_REFUSED")

    watched = Watched(database, clock, settings, look)
    watched.add("a")
    watched.run()
    watched.after(FIRST)
    assert watched.health("a").trouble == "TARGET_URL_REFUSED"


def test_checker_that_dies_in_a_check_is_followed_by_another(
    database: Database, clock: FakeClock, settings: Settings
) -> None:
    class Killed(BaseException):
        pass

    def look(_store: Store) -> StoreCheck:
        raise Killed

    dying, other = Watched(database, clock, settings, look), Watched(database, clock, settings)
    dying.add("a")
    dying.run()
    with pytest.raises(Killed):
        dying.after(FIRST)
    assert other.run() == []
    assert other.after(CLAIM) == ["a"]


def test_several_instances_look_at_each_store_once(
    database: Database, clock: FakeClock, settings: Settings
) -> None:
    names = [f"s{number}" for number in range(8)]
    crowd = [Watched(database, clock, settings) for _ in range(3)]
    for name in names:
        crowd[0].add(name)
    crowd[0].run()
    clock.advance(FIRST.total_seconds())
    threads = [threading.Thread(target=each.run) for each in crowd]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for each in crowd for name in each.looked) == names
    with database.reading() as db:
        points = db.exec(select(SeriesPoint).where(SeriesPoint.name == "backlog")).all()
    assert {(point.store, point.number, point.last) for point in points} == {
        (name, 1, 42.0) for name in names
    }


def test_checks_that_are_off_for_all_by_the_setting_look_at_nothing(
    database: Database, clock: FakeClock, settings: Settings
) -> None:
    off = settings.model_copy(update={"store_check_s": 0.0})
    watched = Watched(database, clock, off)
    watched.add("a")
    watched.add("b", parameters={"store.check.period": "PT2M"})
    watched.run()
    assert watched.after(timedelta(minutes=3)) == ["b"]
    assert watched.after(timedelta(days=1)) == ["b"]


def test_clock_of_a_checker_is_the_one_that_it_was_given(watched: Watched) -> None:
    given: Clock = watched.clock
    watched.add("a")
    watched.run()
    assert watched.health("a").due_at == given.now() + FIRST


def test_stores_that_are_due_together_are_claimed_and_kept_together(watched: Watched) -> None:
    """Before: 4 transactions for each store."""
    for number in range(40):
        watched.add(f"s-{number:02}")
    watched.run()
    watched.after(FIRST)
    begun: list[int] = []
    sa.event.listen(watched.database.engine, "begin", lambda _conn: begun.append(1))
    assert len(watched.after(PERIOD)) == 40
    assert len(begun) <= 40


def test_rows_of_stores_that_wait_for_their_turn_are_not_read_again_and_again(watched: Watched) -> None:
    """Before: all that were due, for each four of them; a thousand took seconds from those who asked."""
    for number in range(40):
        watched.add(f"s-{number:02}")
    watched.run()
    watched.after(FIRST)
    read: list[object] = []

    def note(store: object, _context: object) -> None:
        read.append(store)

    sa.event.listen(Store, "load", note)
    try:
        assert len(watched.after(PERIOD)) == 40
    finally:
        sa.event.remove(Store, "load", note)
    assert len(read) <= 3 * 40


def test_check_that_breaks_holds_up_no_other_store(
    database: Database, clock: FakeClock, settings: Settings
) -> None:
    def look(store: Store) -> StoreCheck:
        if store.id == "a":
            raise RuntimeError("a fault of this version")
        return fine(store)

    watched = Watched(database, clock, settings, look)
    for name in ("a", "b", "c"):
        watched.add(name)
    watched.run()
    assert watched.after(FIRST) == ["a", "b", "c"]
    assert [watched.health(name).checked_at for name in ("a", "b", "c")] == [None, clock.now(), clock.now()]
    assert watched.after(CLAIM) == ["a"]


def test_any_number_of_stores_that_nobody_reaches_hides_no_other(watched: Watched, clock: FakeClock) -> None:
    now = clock.now()
    with watched.database.transaction() as db:
        for number in range(DUE_MAX + 1):
            store_id = f"far-{number:04d}"
            fields = {"url": "sqlite:////x", "created_at": now, "updated_at": now, "runs_on": ["far"]}
            db.add(Store(id=store_id, kind="SQL", **fields))
            db.flush()
            if number % 2:  # seen before its runner went away
                db.add(StoreHealth(store=store_id, due_at=now))
    watched.add("near")
    watched.run()
    assert watched.after(FIRST) == ["near"]
    assert watched.after(PERIOD) == ["near"]
