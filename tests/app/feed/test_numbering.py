"""Numbers of the feed: nothing appears behind a reader, whatever the order of commits."""

from __future__ import annotations

import threading
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from sqlmodel import Session, col, select

from app.db import Database
from app.feed import numbering
from app.feed.numbering import NAME, forget, give_numbers, in_order
from app.feed.rows import FeedEvent, FeedNumber
from app.feed.writing import announce
from app.fleet.queries import events_after, reach_of
from tests.app.fake_clock import FakeClock


def write(db: Session, clock: FakeClock, subject: str, seq: int) -> None:
    announce(db, "job.state", kind="TOY", store="shop", subject=subject, seq=seq, data={}, now=clock.now())


def read(database: Database, after: int) -> list[tuple[int, str, int]]:
    """What a reader of the feed hears after a number."""
    give_numbers(database)
    with database.reading() as db:
        found = events_after(db, after, limit=10_000)
    return [(each.number, each.event.subject, each.event.seq) for each in found]


def test_transaction_that_commits_late_is_heard_by_who_read_on(
    postgresql_database: Database, clock: FakeClock
) -> None:
    # A number taken at the insert would be the smaller one, and the reader would be past it.
    with Session(postgresql_database.engine) as late:
        write(late, clock, "jobs/late", 1)
        late.flush()
        with postgresql_database.transaction() as db:
            write(db, clock, "jobs/early", 1)
        heard = read(postgresql_database, 0)
        assert [subject for _, subject, _ in heard] == ["jobs/early"]
        late.commit()
    assert [subject for _, subject, _ in read(postgresql_database, heard[-1][0])] == ["jobs/late"]


@pytest.mark.parametrize("comes_before", ["is_any_waiting", "last_number"])
def test_numbers_that_another_gives_meanwhile_are_told(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, comes_before: str
) -> None:
    # Numbering is no news: who was told a smaller number would not look again before the next commit.
    with database.transaction() as db:
        write(db, clock, "jobs/1", 1)
    asked = getattr(numbering, comes_before)

    def after_another(database: Database) -> Any:
        monkeypatch.undo()
        assert give_numbers(database) == 1
        return asked(database)

    monkeypatch.setattr(numbering, comes_before, after_another)
    assert give_numbers(database) == 1


def test_crowd_of_writers_and_readers_skips_and_doubles_nothing(database: Database, clock: FakeClock) -> None:
    writers, each = 4, 25
    done = threading.Event()

    def work(number: int) -> None:
        random = Random(number)
        for seq in range(1, each + 1):
            with database.transaction() as db:
                write(db, clock, f"jobs/{number}", seq)
                db.flush()
                done.wait(random.random() * 0.004)

    heard: list[list[tuple[int, str, int]]] = [[], []]

    def listen(mine: list[tuple[int, str, int]]) -> None:
        while True:
            is_last = done.is_set()
            mine += read(database, mine[-1][0] if mine else 0)
            if is_last:
                return

    workers = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    listeners = [threading.Thread(target=listen, args=(mine,)) for mine in heard]
    for thread in [*workers, *listeners]:
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    for thread in listeners:
        thread.join()
    assert heard[0] == heard[1]
    assert [number for number, _, _ in heard[0]] == list(range(1, writers * each + 1))
    for number in range(writers):
        assert [seq for _, subject, seq in heard[0] if subject == f"jobs/{number}"] == [*range(1, each + 1)]


def test_events_of_a_subject_keep_their_order_whatever_the_clocks_say() -> None:
    rows = [("a", "x", 2), ("b", "y", 7), ("c", "x", 1), ("d", "x", 3)]
    assert in_order(rows) == ["c", "b", "a", "d"]


def test_event_of_a_transaction_that_is_rolled_back_is_never_told(
    database: Database, clock: FakeClock
) -> None:
    class Undone(Exception):
        pass

    try:
        with database.transaction() as db:
            write(db, clock, "jobs/undone", 1)
            db.flush()
            raise Undone
    except Undone:
        pass
    assert read(database, 0) == []


def test_numbers_go_on_when_every_event_is_forgotten(database: Database, clock: FakeClock) -> None:
    for seq in (1, 2):
        with database.transaction() as db:
            write(db, clock, "jobs/a", seq)
    read(database, 0)
    with database.transaction() as db:
        assert forget(db, before=clock.now() + timedelta(seconds=1)) == 2
    with database.reading() as db:
        reach = reach_of(db)
    assert (reach.holds(1), reach.holds(2), reach.holds(3)) == (False, True, False)
    with database.transaction() as db:
        write(db, clock, "jobs/a", 3)
    assert read(database, 2) == [(3, "jobs/a", 3)]


def test_events_that_nobody_numbered_are_missed_by_who_comes_later(
    database: Database, clock: FakeClock
) -> None:
    before = read(database, 0)
    with database.transaction() as db:
        write(db, clock, "jobs/a", 1)
    with database.transaction() as db:
        assert forget(db, before=clock.now() + timedelta(seconds=1)) == 1
    assert before == []
    with database.reading() as db:
        assert not reach_of(db).holds(0)
        assert db.exec(select(FeedEvent)).all() == []
        assert db.exec(select(col(FeedNumber.last)).where(FeedNumber.name == NAME)).one() == 1
