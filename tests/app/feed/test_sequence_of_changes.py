"""A store, a schedule or a window counts no changes of its own: the sequence of their events is no clock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from sqlmodel import select

from app.db import Database
from app.feed.numbering import give_numbers
from app.feed.rows import FeedEvent
from app.fleet.queries import events_after
from app.stores.telling import StoreChange, tell_change
from tests.app.fake_clock import FakeClock


def change(database: Database, now: datetime, *, place: int, store: str = "shop") -> None:
    """What a transaction of its own tells."""
    with database.transaction() as db:
        tell_change(db, store, StoreChange.CHANGED, now=now, place=place)


def heard(database: Database) -> list[FeedEvent]:
    give_numbers(database)
    with database.reading() as db:
        return [each.event for each in events_after(db, 0, limit=10_000)]


def places(events: list[FeedEvent]) -> list[int]:
    return [event.data["place"] for event in events]


def grows(events: list[FeedEvent]) -> bool:
    seqs = [event.seq for event in events]
    return seqs == sorted(set(seqs))


def test_changes_of_one_instant_have_a_sequence_each(database: Database, clock: FakeClock) -> None:
    # The time stood for the sequence: who remembers the last one took the second for the first again.
    with database.transaction() as db:
        for place in range(3):
            tell_change(db, "shop", StoreChange.CHANGED, now=clock.now(), place=place)
    change(database, clock.now(), place=3)
    events = heard(database)
    assert places(events) == [0, 1, 2, 3]
    assert grows(events)


def test_clock_that_is_put_back_turns_nothing_round(database: Database, clock: FakeClock) -> None:
    # Both wait for their numbers, and one subject is told in the order of its sequence.
    change(database, clock.now(), place=0)
    change(database, clock.now() - timedelta(hours=1), place=1)
    change(database, clock.now() + timedelta(days=400), place=2)
    change(database, clock.now(), place=3)
    events = heard(database)
    assert places(events) == [0, 1, 2, 3]
    assert grows(events)


def test_store_that_comes_again_goes_on_when_all_is_forgotten(database: Database, clock: FakeClock) -> None:
    change(database, clock.now(), place=0)
    [before] = heard(database)
    with database.transaction() as db:
        for row in db.exec(select(FeedEvent)).all():
            db.delete(row)
    change(database, clock.now() - timedelta(hours=2), place=1)
    with database.reading() as db:
        assert db.exec(select(FeedEvent)).one().seq > before.seq


def test_instances_whose_clocks_differ_double_nothing(database: Database, clock: FakeClock) -> None:
    each = 20
    clocks = [clock.now() + timedelta(hours=hours) for hours in (-1, 0, 1)]

    def work(number: int) -> None:
        for place in range(each):
            change(database, clocks[number], place=place * 10 + number, store=f"shop{number % 2}")

    with ThreadPoolExecutor(len(clocks)) as pool:
        list(pool.map(work, range(len(clocks))))
    events = heard(database)
    assert len(events) == each * len(clocks)
    assert len({event.seq for event in events}) == len(events)
    for store in ("shop0", "shop1"):
        assert grows([event for event in events if event.store == store])
    for number in range(len(clocks)):
        mine = [place // 10 for place in places(events) if place % 10 == number]
        assert mine == [*range(each)], "what a writer told first is heard first"
