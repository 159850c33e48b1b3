"""The keys of a plan, and the bounds of a sweep, were kept by the place of a table in the order of deletes. A
foreign key that came between plan and act gave the places to other tables: rows went whose keys only another
table's rows had in the plan. The same with a primary key that moved to another column, and after a resume.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.clock import SystemClock
from app.jobs.again import set_throttle
from app.jobs.models import ThrottleSetting
from app.jobs.rows import JobCheckpoint
from tests.regressions.purges import Purges
from tests.regressions.row_purges import RowPurges

OLD = "2020-01-01 10:00:00"
FAMILY = {
    "table": "item",
    "children": ["left_note", "right_note"],
    "time_column": "at",
    "cutoff": "2026-01-01T00:00:00Z",
}
ITEMS = 60
LEFT = "create table left_note (id integer primary key, item integer references item (id){more})"
MORE = ", other integer references right_note (id)"
"""A foreign key by which the left notes go before the right ones, and no longer after them."""


@pytest.fixture
def clock() -> SystemClock:
    """A throttle waits by time."""
    return SystemClock()


class Target:
    """Items that are all old; each has a left note of its number, and a right one of a greater number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        items = ", ".join(f"({n}, {ITEMS - n}, '{OLD}')" for n in range(ITEMS))
        self.run("create table item (id integer primary key, code integer not null, at text)")
        self.run(f"insert into item values {items}")
        self.run(LEFT.format(more=""))
        self.run("create table right_note (id integer primary key, item integer references item (id))")
        self.run(f"insert into left_note select id, id from item where id < {ITEMS // 2}")
        self.run(f"insert into right_note select id, id from item where id >= {ITEMS // 2}")

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=20)) as raw, raw:
            return [row for each in statements for row in raw.execute(each).fetchall()]

    def rows(self) -> dict[str, int]:
        tables = ("item", "left_note", "right_note")
        return {table: self.run(f"select count(*) from {table}")[0][0] for table in tables}

    def add_a_foreign_key(self) -> None:
        """And left notes that have numbers of right ones, whose items are old too."""
        self.run(
            "alter table left_note rename to was",
            LEFT.format(more=MORE),
            "insert into left_note select id, item, null from was",
            "drop table was",
            f"insert into left_note select id, id, null from item where id >= {ITEMS // 2}",
        )

    def move_the_key(self) -> None:
        """Each number of an item names another item now."""
        self.run(
            "create table new (id integer not null unique, code integer primary key, at text)",
            "insert into new select id, code, at from item",
            "drop table item",
            "alter table new rename to item",
        )


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path / "items.db")


@pytest.fixture
def rows(target: Target, purges: Purges) -> RowPurges:
    found = RowPurges(purges, f"sqlite:///{target.path}")
    found.add_store()
    return found


def _forget(purges: Purges, job_id: str, name: str, fields: Sequence[str]) -> None:
    """A checkpoint as a version before has written it."""
    with purges.bench.database.transaction() as db:
        row = db.get_one(JobCheckpoint, (job_id, name))
        assert set(fields) <= set(row.value)
        row.value = {key: value for key, value in row.value.items() if key not in fields}
        db.add(row)


@pytest.mark.parametrize("change", ["add_a_foreign_key", "move_the_key"])
def test_a_plan_whose_keys_stand_for_other_rows_removes_nothing(
    rows: RowPurges, target: Target, purges: Purges, change: str
) -> None:
    plan = rows.plan(**FAMILY, where="id < 50")
    getattr(target, change)()
    before = target.rows()
    job = purges.run(rows.submit(table="item", plan_id=plan.id))
    assert job.state == "FAILED", job.result
    assert job.error is not None
    assert job.error["code"] == "PLAN_NO_LONGER_HOLDS"
    what = {"add_a_foreign_key": "left_note, right_note, item now", "move_the_key": "key of item was (id"}
    assert what[change] in job.error["detail"]
    assert target.rows() == before


def test_a_plan_of_the_version_before_is_executed(rows: RowPurges, target: Target, purges: Purges) -> None:
    plan = rows.plan(**FAMILY, where="id < 50")
    _forget(purges, plan.id, "keys", ["tables", "key_columns"])
    job = purges.run(rows.submit(table="item", plan_id=plan.id))
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert target.rows() == {"item": 10, "left_note": 0, "right_note": 10}


def _half_done(rows: RowPurges, target: Target, purges: Purges) -> str:
    """A purge that was stopped after some of its units."""
    job_id = rows.submit(**FAMILY, max_rows_in_tx=5, throttle={"rows_per_s": 20})
    before = target.rows()
    with purges.bench.running(purges.kinds):
        while target.rows() == before:
            assert purges.bench.job(job_id).state in ("QUEUED", "RUNNING")
            time.sleep(0.01)
    assert target.rows()["item"] == ITEMS
    assert purges.bench.job(job_id).state == "QUEUED"
    return job_id


@pytest.mark.parametrize(
    ("change", "forgotten", "said"),
    [
        ("add_a_foreign_key", [], "left_note, right_note, item now"),
        ("add_a_foreign_key", ["key_columns"], "left_note, right_note, item now"),
        ("move_the_key", [], "key of item was (id"),
    ],
)
def test_a_purge_does_not_go_on_with_bounds_of_other_rows(
    rows: RowPurges, target: Target, purges: Purges, change: str, forgotten: list[str], said: str
) -> None:
    job_id = _half_done(rows, target, purges)
    _forget(purges, job_id, "limits", forgotten)
    getattr(target, change)()
    before = target.rows()
    job = purges.run(job_id)
    assert job.state == "FAILED", job.result
    assert job.error is not None
    assert job.error["code"] == "STORE_CHANGED"
    assert said in job.error["detail"]
    assert "submit the purge again for the rest" in job.error["detail"]
    assert target.rows() == before
    again = purges.run(rows.submit(**FAMILY))
    assert (again.state, again.error) == ("SUCCEEDED", None)
    assert target.rows() == dict.fromkeys(before, 0)


def test_a_purge_of_the_version_before_goes_on(rows: RowPurges, target: Target, purges: Purges) -> None:
    job_id = _half_done(rows, target, purges)
    _forget(purges, job_id, "limits", ["key_columns"])
    purges.bench.do(set_throttle, job_id, setting=ThrottleSetting())
    job = purges.run(job_id)
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert target.rows() == {"item": 0, "left_note": 0, "right_note": 0}
