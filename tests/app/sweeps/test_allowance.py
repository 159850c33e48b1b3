"""A sweep with a limit removes no more rows than that, whatever comes between the count and the last unit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.db import Database
from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from app.settings import Settings
from app.stores.models import Reach, StoreLimits, exceeded
from app.sweeps.allowance import Limit
from app.sweeps.limits import most_rows
from app.sweeps.windows import WindowPlan, Windows
from spark.rows.expression import parse
from spark.rows.family import Family, Selection
from spark.rows.unit import RowsUnit, run_rows, unit_id
from spark.rows.walk import RowsWalk, texts
from spark.targets.connection import Connection, Target, connect
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger, ledger_totals
from spark.targets.walk import Piece
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench

OLD = Selection("item", None, parse("age > 10"))
ROWS = 120


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[Connection]:
    (tmp_path / "rows.db").touch()
    with closing(
        connect(Target(f"sqlite:///{tmp_path / 'rows.db'}", table_prefix=""), application_name="t")
    ) as found:
        found.execute("create table item (id integer primary key, age integer)")
        assert ensure_ledger(found)
        raise_fence(found, "items", token=1, owner="test")
        yield found


@pytest.fixture
def context(sqlite_database: Database, clock: FakeClock, settings: Settings) -> JobContext:
    bench = Workbench(sqlite_database, clock, settings)
    bench.submit()
    return bench.context()


class Purge:
    """The rows of a table, with a limit; others write beside it."""

    def __init__(
        self, context: JobContext, conn: Connection, *, seed: int, most: int, unit_rows: int | None = None
    ) -> None:
        self.conn, self.rng, self.job = conn, random.Random(seed), f"job_{seed}"
        conn.execute("delete from item")
        rows = ", ".join(f"({number * 10}, {self.rng.choice([1, 20])})" for number in range(ROWS))
        conn.execute(f"insert into item values {rows}")
        steps = Family.read(conn, OLD, time_zone="UTC").steps()

        def make_unit(step: str, piece: Piece) -> RowsUnit:
            after, upto = texts(piece.lo), texts(piece.hi)
            name = unit_id(step, after, upto)
            return RowsUnit(self.job, name, step, steps[0], after, upto, token=1, resource="items")

        walk = RowsWalk(steps, False, {})
        self.plan = WindowPlan(
            walk=walk,
            make_unit=make_unit,
            most_rows=dict.fromkeys(walk.steps, unit_rows or self.rng.choice([4, 15, 200])),
            outlook=None,
            target_s=1.0,
            window_units=5,
            limit=Limit(most, lambda _rows: self.gone, bound=lambda unit, rows: replace(unit, most=rows)),
        )
        self.windows = Windows(context, conn, self.plan)

    @property
    def gone(self) -> int:
        return sum(total.rows for total in ledger_totals(self.conn, self.job).values())

    @property
    def old(self) -> int:
        [(count,)] = self.conn.execute("select count(*) from item where age > 10")
        return int(count)

    def sweep(self, *, writes: float, cuts: float = 0.0) -> None:
        """To the end; others write before some units, and some are too long for one statement."""
        while (units := self.windows.next_units()) is not None:
            waiting = list(units)
            while waiting:
                unit = waiting.pop(0)
                assert isinstance(unit, RowsUnit)
                if self.rng.random() < cuts:
                    parts = self.windows.parts(unit, elapsed_s=1.0)
                    unit, *others = parts
                    waiting = [*others, *waiting]
                    assert isinstance(unit, RowsUnit)
                if self.rng.random() < writes:
                    self.conn.execute(
                        "insert or ignore into item values (:n, 30)", {"n": self.rng.randrange(ROWS * 10)}
                    )
                    self.conn.execute(
                        "update item set age = 30 where id >= :n and id < :n + 50",
                        {"n": self.rng.randrange(ROWS * 10)},
                    )
                self.windows.done(unit, run_rows(self.conn, unit), elapsed_s=0.001)
            self.windows.ended()


@pytest.mark.parametrize("seed", range(8))
def test_what_others_write_meanwhile_never_makes_more_go_than_may(
    context: JobContext, conn: Connection, seed: int
) -> None:
    purge = Purge(context, conn, seed=seed, most=0)
    most = purge.old + purge.rng.choice([0, 1, 5, 30, 500])
    purge = Purge(context, conn, seed=seed, most=most)
    failed = None
    try:
        purge.sweep(writes=0.7, cuts=0.2)
    except JobFailed as error:
        failed = error.code
    assert failed in (None, "LIMIT_EXCEEDED")
    assert failed is None or purge.gone + purge.old > most
    assert purge.gone <= most
    [(left,)] = conn.execute("select count(*) from item where age = 20")
    assert failed or left == 0, "a row that was old before all writes is gone"


@pytest.mark.parametrize("seed", range(3))
def test_a_limit_that_just_holds_is_no_hindrance(context: JobContext, conn: Connection, seed: int) -> None:
    most = Purge(context, conn, seed=seed, most=0).old
    purge = Purge(context, conn, seed=seed, most=most)
    purge.sweep(writes=0.0, cuts=0.2)
    assert (purge.gone, purge.old) == (most, 0)


def test_one_row_too_many_ends_the_job_and_says_what_to_do(context: JobContext, conn: Connection) -> None:
    most = Purge(context, conn, seed=1, most=0).old - 1
    purge = Purge(context, conn, seed=1, most=most)
    with pytest.raises(JobFailed, match=rf"the limits allow {most}\. What is removed stays removed: look at"):
        purge.sweep(writes=0.0)
    assert purge.gone <= most


def test_the_next_attempt_keeps_to_what_the_first_has_left(context: JobContext, conn: Connection) -> None:
    most = Purge(context, conn, seed=3, most=0).old
    purge = Purge(context, conn, seed=3, most=most, unit_rows=15)
    units = purge.windows.next_units()
    assert units is not None
    for unit in list(units)[:2]:  # then the service dies: the window alone is noted
        assert isinstance(unit, RowsUnit)
        assert run_rows(conn, unit).refused is None
    assert purge.gone > 0
    conn.execute("update item set age = 30")
    purge.windows = Windows(context, conn, purge.plan)
    with pytest.raises(JobFailed):
        purge.sweep(writes=0.0)
    assert purge.gone <= most


@pytest.mark.parametrize("share", [0.0, 0.1, 0.29, 1 / 3, 0.57, 0.7, 0.999, 1.0])
def test_the_most_rows_are_those_that_no_limit_refuses(share: float) -> None:
    limits = StoreLimits(max_fraction=share)
    for whole in [1, 2, 3, 7, 10, 100, 999, 1000]:
        most = most_rows(limits, whole=whole)
        assert most is not None
        assert not exceeded(limits, Reach(rows=most, part=most, whole=whole))
        assert most == whole or exceeded(limits, Reach(rows=most + 1, part=most + 1, whole=whole))
    assert most_rows(limits, whole=0) == 0
    assert most_rows(StoreLimits(max_rows=5, max_fraction=share), whole=1000) == min(
        5, most_rows(limits, whole=1000) or 0
    )
    assert most_rows(StoreLimits(), whole=9) is None
