"""MariaDB keeps dates like 2026-00-00. One of this year was older than a cut-off in January, and went: nobody
knows its day.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

import pytest

from spark.rows.condition import Cutoff
from spark.rows.family import Family, Selection
from spark.rows.plan import plan_rows
from spark.targets.connection import Target, connect

CUTOFF = datetime(2026, 1, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize("declared", ["date", "datetime", "datetime(6)"])
@pytest.mark.parametrize(
    ("day", "goes"),
    [
        ("0000-00-00", None),
        ("2025-00-00", None),
        ("2026-00-00", None),
        ("2026-01-00", None),
        ("2025-12-31", True),
        ("2026-01-16", False),
    ],
)
def test_day_that_is_none_is_older_than_nothing(
    mariadb_url: str, declared: str, day: str, goes: bool | None
) -> None:
    with closing(connect(Target(mariadb_url, table_prefix=""), application_name="rows")) as conn:
        conn.execute("set session sql_mode = ''")
        conn.execute(f"create table t (id int primary key, day {declared})")
        conn.execute(f"insert into t values (1, '{day}')")
        family = Family.read(conn, Selection("t", Cutoff("day", CUTOFF), None), time_zone="UTC")
        plan = plan_rows(conn, family, should_stop=lambda: False)
    assert plan.rows_to_remove == int(goes is True)
    unreadable = [warning.count for warning in plan.warnings if warning.code == "TIME_UNREADABLE"]
    assert unreadable == ([1] if goes is None else [])
