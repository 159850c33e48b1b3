"""Keys of rows are texts here ("i:9"), and were compared as texts in two places: "i:9" comes behind "i:10".

A unit that was too long was divided after a row had come into its range; the last part seemed to reach the
unit's end, and the rows behind it stayed, in a job that SUCCEEDED. A later pass over a table that refers to
itself ended at the last row of all, in place of the last that the first pass had seen: what had come since
the limits were looked at went too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.rows.planned import PlannedKeys, PlannedWalk
from app.sweeps.windows import WindowPlan, Windows
from spark.rows.expression import parse
from spark.rows.family import Family, Selection
from spark.rows.unit import RowsUnit, unit_id
from spark.rows.walk import RowsWalk, place_of, texts, within
from spark.targets.connection import Connection, Target, connect
from spark.targets.errors import TargetStatementTimeout
from spark.targets.walk import Piece, Walk
from tests.app.jobs.workbench import Workbench

ALL = Selection("node", None, parse("id >= 0"))


@pytest.fixture(params=["sqlite", "postgresql"])
def conn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    if request.param == "sqlite":
        (tmp_path / "rows.db").touch()
        url = f"sqlite:///{tmp_path / 'rows.db'}"
    else:
        url = str(request.getfixturevalue("postgresql_url"))
    with closing(connect(Target(url, table_prefix=""), application_name="rows")) as found:
        found.execute("create table node (id integer primary key, above integer references node (id))")
        yield found


def _add(conn: Connection, *ids: int) -> None:
    conn.execute("insert into node (id) values " + ", ".join(f"({each})" for each in ids))


def _ids(conn: Connection) -> list[int]:
    return [int(each) for (each,) in conn.execute("select id from node order by id")]


def _windows(bench: Workbench, conn: Connection, walk: Walk, steps: Any, *, rows: int) -> Windows:
    def make_unit(step: str, piece: Piece) -> RowsUnit:
        after, upto = texts(piece.lo), texts(piece.hi)
        name = unit_id(step, after or (str(piece.lo[0]),), upto or (str(piece.hi[0]),))
        return RowsUnit("job", name, step, steps[place_of(step)], after, upto, 1, "rows")

    bench.submit()
    plan = WindowPlan(walk, make_unit, dict.fromkeys(walk.steps, rows), None, target_s=1.0, window_units=4)
    return Windows(bench.context(), conn, plan)


def _remove(conn: Connection, unit: RowsUnit) -> None:
    between = within(unit.table, unit.after, unit.upto)
    conn.execute(f"delete from {unit.table.source} where {between.text}", dict(between.bound))


@pytest.mark.parametrize(
    ("there", "comes"),
    [
        ([6, 7, 8, 10, 11], 9),  # the last part seems to lie behind the end
        ([90, 95, 97, 100, 101], 91),  # and here it does not
        ([10, 11], 9),  # the first part does
    ],
)
def test_parts_of_a_unit_hold_all_of_its_rows(
    bench: Workbench, conn: Connection, there: list[int], comes: int
) -> None:
    _add(conn, *there)
    steps = Family.read(conn, ALL, time_zone="UTC").steps()
    windows = _windows(bench, conn, RowsWalk(steps, False, {}), steps, rows=len(there) - 1)
    units = windows.next_units()
    assert units is not None
    first, *others = [unit for unit in units if isinstance(unit, RowsUnit)]
    _add(conn, comes)
    parts = [part for part in windows.parts(first, elapsed_s=1.0) if isinstance(part, RowsUnit)]
    assert len(parts) > 1
    for unit in [*parts, *others]:
        _remove(conn, unit)
    assert _ids(conn) == []


def test_parts_of_a_unit_of_a_plan_hold_all_of_its_rows(bench: Workbench, conn: Connection) -> None:
    steps = Family.read(conn, ALL, time_zone="UTC").steps()
    walk = PlannedWalk(["0-0"], PlannedKeys({"counts": {"0": [25]}}, lambda _name: None))
    windows = _windows(bench, conn, walk, steps, rows=10)
    units = windows.next_units()
    assert units is not None
    first, *_ = list(units)
    assert len(windows.parts(first, elapsed_s=1.0)) == 5
    window = windows.state.window
    assert [(item.lo, item.hi, item.rows) for item in window] == [
        ((0,), (2,), 2),
        ((2,), (4,), 2),
        ((4,), (6,), 2),
        ((6,), (8,), 2),
        ((8,), (10,), 2),
        ((10,), (20,), 10),
        ((20,), (25,), 5),
    ]


@pytest.fixture
def later(conn: Connection) -> tuple[RowsWalk, dict[str, Any]]:
    """A walk whose first pass saw 99 rows; three more have come since, which could go too."""
    _add(conn, *range(1, 100))
    walk = RowsWalk(Family.read(conn, ALL, time_zone="UTC").steps(), True, {})
    known = {"0-0": walk.bounds(conn, "0-0", {})}
    _add(conn, 100, 101, 102)
    return walk, known


def test_a_later_pass_ends_where_the_first_one_did(
    conn: Connection, later: tuple[RowsWalk, dict[str, Any]]
) -> None:
    walk, known = later
    assert walk.bounds(conn, "1-0", known) == known["0-0"]
    conn.execute("update node set above = 101 where id = 102")
    conn.execute("delete from node where id between 50 and 99")
    found = walk.bounds(conn, "1-0", known)
    assert found is not None
    assert texts(found[1]) == ("i:49" if conn.dialect.name == "sqlite" else "s:49",)
    conn.execute("delete from node where id < 100")
    assert walk.bounds(conn, "1-0", known) is None


def test_a_later_pass_that_finds_its_end_too_slowly_takes_that_of_the_first(
    conn: Connection, later: tuple[RowsWalk, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    walk, known = later

    def too_slow(*_: object) -> Any:
        monkeypatch.undo()
        raise TargetStatementTimeout("too slow")

    monkeypatch.setattr("spark.rows.walk.select_by_index", too_slow)
    assert walk.bounds(conn, "1-0", known) == known["0-0"]
