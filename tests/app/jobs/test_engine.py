"""The inline engine: bounded workers on connections of their own, cancelled at once, closed for good."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.clock import SystemClock
from app.jobs.engines.engine import InlineEngine
from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.errors import TargetCancelled, TargetDatabaseMissing, TargetUnreachable
from spark.targets.work import Outcome, UnitWork

ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"


@pytest.fixture
def target(tmp_path: Path) -> Target:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as made:
        made.execute("create table sym_data (data_id integer primary key)")
        made.commit()
    return Target(url=f"sqlite:///{tmp_path / 'shop.db'}")


def work(target: Target, run: Callable[[Connection, int], int]) -> UnitWork[int, int]:
    return UnitWork(target=target, limits=SessionLimits(), application_name="lethe:test", run=run)


def square(conn: Connection, unit: int) -> int:
    return int(conn.execute("select :n * :n", {"n": unit})[0][0])


def test_every_unit_has_one_outcome(target: Target) -> None:
    with InlineEngine(SystemClock()).lease(work(target, square), workers=3) as lease:
        outcomes = list(lease.map(iter(range(40))))
    assert sorted((outcome.unit, outcome.result) for outcome in outcomes) == [(n, n * n) for n in range(40)]
    assert all(outcome.error is None and outcome.elapsed_s >= 0 for outcome in outcomes)


def test_units_are_drawn_only_as_workers_can_take_them(target: Target) -> None:
    drawn: list[int] = []

    def units() -> Iterator[int]:
        for unit in range(1_000):
            drawn.append(unit)
            yield unit

    with InlineEngine(SystemClock()).lease(work(target, square), workers=2) as lease:
        outcomes = lease.map(units())
        for taken in range(1, 20):
            next(outcomes)
            assert len(drawn) <= taken + 3


def test_at_most_so_many_units_run_at_once_on_as_many_connections(target: Target) -> None:
    guard, running, most, connections = threading.Lock(), [0], [0], set()

    def run(conn: Connection, unit: int) -> int:
        with guard:
            running[0] += 1
            most[0] = max(most[0], running[0])
            connections.add(conn)
        time.sleep(0.003)
        with guard:
            running[0] -= 1
        return unit

    with InlineEngine(SystemClock()).lease(work(target, run), workers=3) as lease:
        assert len(list(lease.map(iter(range(30))))) == 30
    assert most[0] <= 3
    assert len(connections) <= 3
    assert all(conn.closed for conn in connections)


def test_cancel_ends_what_runs_and_refuses_what_follows(target: Target) -> None:
    began = threading.Event()

    def endless(conn: Connection, unit: int) -> int:
        began.set()
        return int(conn.execute(ENDLESS)[0][0])

    outcomes: list[Outcome[int, int]] = []
    with InlineEngine(SystemClock()).lease(work(target, endless), workers=2) as lease:
        reader = threading.Thread(target=lambda: outcomes.extend(lease.map(iter(range(6)))))
        reader.start()
        assert began.wait(10)
        asked = time.monotonic()
        lease.cancel()
        reader.join(10)
        assert time.monotonic() - asked < 5
    assert len(outcomes) == 6
    assert {type(outcome.error) for outcome in outcomes} == {TargetCancelled}


def test_error_of_the_target_is_the_units_outcome_and_not_the_maps_end(target: Target) -> None:
    def sometimes(conn: Connection, unit: int) -> int:
        if unit == 2:
            raise TargetUnreachable("gone")
        return unit

    with InlineEngine(SystemClock()).lease(work(target, sometimes), workers=1) as lease:
        outcomes = list(lease.map(iter(range(5))))
    assert [outcome.result for outcome in outcomes] == [0, 1, None, 3, 4]
    assert isinstance(outcomes[2].error, TargetUnreachable)


def test_lost_connection_is_opened_anew_for_the_next_unit(target: Target) -> None:
    def loses(conn: Connection, unit: int) -> int:
        if unit == 1:
            conn.close()
        return square(conn, unit)

    with InlineEngine(SystemClock()).lease(work(target, loses), workers=1) as lease:
        outcomes = list(lease.map(iter(range(4))))
    assert [outcome.result for outcome in outcomes] == [0, None, 4, 9]
    assert outcomes[1].error is not None


def test_target_that_is_not_there_is_an_outcome(tmp_path: Path) -> None:
    missing = Target(url=f"sqlite:///{tmp_path / 'none.db'}")
    with InlineEngine(SystemClock()).lease(work(missing, square), workers=2) as lease:
        errors = [outcome.error for outcome in lease.map(iter(range(3)))]
    assert {type(error) for error in errors} == {TargetDatabaseMissing}


def test_bug_in_a_unit_is_not_swallowed(target: Target) -> None:
    def broken(conn: Connection, unit: int) -> int:
        raise ZeroDivisionError

    with (
        pytest.raises(ZeroDivisionError),
        InlineEngine(SystemClock()).lease(work(target, broken), workers=2) as lease,
    ):
        list(lease.map(iter(range(3))))
