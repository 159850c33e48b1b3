"""A savepoint that is rolled back takes along what was to be done, counted and said because of it.

What happened before: a batch tries each of its members in a savepoint. A member that was refused after its
job was counted and its line was due left both behind: the log told of a job that never was.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from sqlmodel import Session, select

from app.db import Database, Turn, after_commit, before_commit
from app.figures.rows import Figure
from app.figures.sums import Name, count
from app.jobs.rows import Counter

NOW = datetime(2026, 11, 1, tzinfo=UTC)


class _Undone(Exception):
    pass


def _noting(db: Session, done: list[str], name: str) -> None:
    before_commit(db, lambda session: session.add(Counter(name=name, value=1)))
    before_commit(db, lambda _session: done.append(f"last {name}"), turn=Turn.CHAIN)
    after_commit(db, lambda: done.append(f"after {name}"))
    count(db, Name.ABORTS, name, store="shop", now=NOW)


def _undone(db: Session, act: Callable[[], None]) -> None:
    with suppress(_Undone), db.begin_nested():
        act()
        raise _Undone


def _kept(database: Database) -> tuple[list[str], list[tuple[str, float]]]:
    with database.reading() as db:
        counters = db.exec(
            select(Counter.name).where(Counter.name != "fencing_token").order_by(Counter.name)
        ).all()
        figures = db.exec(select(Figure.label, Figure.value).order_by(Figure.label)).all()
    return list(counters), [(label, value) for label, value in figures]


def test_acts_of_a_savepoint_that_is_rolled_back_are_not_done(database: Database) -> None:
    done: list[str] = []
    with database.transaction() as db:
        _undone(db, lambda: _noting(db, done, "undone first"))
        _noting(db, done, "outside")
        _undone(db, lambda: _noting(db, done, "undone"))
        with db.begin_nested():
            _noting(db, done, "kept")
            _undone(db, lambda: _noting(db, done, "undone within"))

    assert done == ["last outside", "last kept", "after outside", "after kept"]
    assert _kept(database) == (["kept", "outside"], [("kept", 1.0), ("outside", 1.0)])


def test_outer_savepoint_takes_along_those_that_were_released_within(database: Database) -> None:
    done: list[str] = []
    with database.transaction() as db:

        def act() -> None:
            with db.begin_nested():
                _noting(db, done, "released within")

        _undone(db, act)
        _noting(db, done, "outside")

    assert done == ["last outside", "after outside"]
    assert _kept(database) == (["outside"], [("outside", 1.0)])


def test_count_of_a_savepoint_does_not_stand_in_a_sum_of_its_transaction(database: Database) -> None:
    with database.transaction() as db:
        count(db, Name.ABORTS, "same", store="shop", now=NOW)
        _undone(db, lambda: count(db, Name.ABORTS, "same", store="shop", value=40.0, now=NOW))
        count(db, Name.ABORTS, "same", store="shop", now=NOW)

    assert _kept(database)[1] == [("same", 2.0)]


def test_transaction_that_is_rolled_back_does_nothing(database: Database) -> None:
    done: list[str] = []
    with suppress(_Undone), database.transaction() as db:
        _noting(db, done, "undone")
        raise _Undone

    assert (done, _kept(database)) == ([], ([], []))
