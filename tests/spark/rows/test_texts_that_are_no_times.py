"""SQLite keeps times as texts. Whatever began like a date passed for one: 0000-00-00 was older than anything,
and ten in the evening (`10:00:00 PM`) than eleven in the morning. Such rows went; the plan did not name them.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spark.rows.condition import Cutoff
from spark.rows.family import Family, Selection
from spark.rows.plan import plan_rows
from spark.targets.connection import Target, connect

CUTOFF = datetime(2026, 1, 1, 11, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ("0000-00-00 00:00:00", None),
        ("0000-00-00", None),
        ("0000-12-31", None),
        ("2025-13-01", None),
        ("2025-00-10 10:00:00", None),
        ("2026-01-01 10:00:00 PM", None),
        ("2025-01-01 and more", None),
        ("2025-01-01 25:30", None),
        ("2026-01-01", True),
        ("0001-01-02 00:00:00", True),
        ("2026-01-01 10:59:59.999", True),
        ("2025-12-31T23:59:59", True),
        ("2026-01-01 11:00:00.001", False),
        ("2026-01-01 11:00:00", False),
    ],
)
def test_text_is_older_only_where_it_is_a_time(text: str, goes: bool | None, tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    path.touch()
    with closing(connect(Target(f"sqlite:///{path}", table_prefix=""), application_name="rows")) as conn:
        conn.execute("create table t (id integer primary key, at text)")
        conn.execute("insert into t values (1, :at)", {"at": text})
        family = Family.read(conn, Selection("t", Cutoff("at", CUTOFF), None), time_zone="UTC")
        plan = plan_rows(conn, family, should_stop=lambda: False)
    assert plan.rows_to_remove == int(goes is True)
    unreadable = [warning.count for warning in plan.warnings if warning.code == "TIME_UNREADABLE"]
    assert unreadable == ([1] if goes is None else [])


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ("2025-12-31", True),
        ("2026-01-01", False),
        ("2026-01-01 10:59:59", True),
        ("2026-01-01 11:00:00", False),
    ],
)
@pytest.mark.parametrize("declared", ["date", "DATE"])
def test_day_goes_only_when_all_of_it_is_over(declared: str, text: str, goes: bool, tmp_path: Path) -> None:
    """In a column of days it went in the morning of its own day; PostgreSQL and MariaDB kept it."""
    path = tmp_path / "rows.db"
    path.touch()
    with closing(connect(Target(f"sqlite:///{path}", table_prefix=""), application_name="rows")) as conn:
        conn.execute(f"create table t (id integer primary key, day {declared})")
        conn.execute("insert into t values (1, :day)", {"day": text})
        family = Family.read(conn, Selection("t", Cutoff("day", CUTOFF), None), time_zone="UTC")
        assert plan_rows(conn, family, should_stop=lambda: False).rows_to_remove == int(goes)
