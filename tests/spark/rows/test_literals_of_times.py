"""Times in an expression, beside columns of naive times and of instants.

Where the clocks show an hour twice, an instant in it was compared by its reading: rows of the second showing,
which is later, were older than an instant in the first, and went. A year that no calendar has was 500.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from spark.rows.expression import ExpressionInvalid, parse
from spark.rows.family import Family, Selection
from spark.rows.plan import plan_rows
from spark.targets.connection import Connection, Target, connect

ZONE = "Europe/Berlin"


KINDS = {"postgresql": ("timestamp(6)", "timestamptz"), "mariadb": ("datetime(6)", "timestamp")}


@pytest.fixture(
    params=[
        pytest.param("postgresql", marks=pytest.mark.postgresql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ]
)
def conn(request: pytest.FixtureRequest) -> Iterator[Connection]:
    url = request.getfixturevalue(f"{request.param}_url")
    with closing(connect(Target(url, table_prefix=""), application_name="rows")) as found:
        naive, moment = KINDS[request.param]
        found.execute(f"create table t (id int primary key, naive {naive}, moment {moment})")
        found.execute("insert into t values (1, '2026-10-25 02:15:00', '2026-10-25 01:15:00')")
        yield found


def planned(conn: Connection, where: str) -> int:
    family = Family.read(conn, Selection("t", None, parse(where)), time_zone=ZONE)
    family.steps()
    return plan_rows(conn, family, should_stop=lambda: False).rows_to_remove


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("naive < '2026-10-24T23:59:00Z'", 0),
        ("naive < '2026-10-25T02:00:00Z'", 1),
        ("naive < '2026-10-25T02:30:00'", 1),
        ("moment < '2026-10-25T02:15:00+02:00'", 0),
        ("moment = '2026-10-25T02:15:00+01:00'", 1),
        ("moment < '2026-10-25T03:00:00'", 1),
    ],
)
def test_time_that_is_one_is_compared(conn: Connection, where: str, rows: int) -> None:
    assert planned(conn, where) == rows


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("naive < '2026-10-25T00:45:00Z'", "twice"),
        ("not naive >= '2026-10-25T02:45:00+02:00'", "twice"),
        ("moment < '2026-10-25T02:45:00'", "no or two"),
        ("moment in ('2026-03-29 02:30:00')", "no or two"),
        ("moment < '0001-01-01T00:00:00+01:00'", "year"),
        ("naive > '9999-12-31T23:59:59-01:00'", "year"),
    ],
)
def test_time_that_is_none_or_two_is_refused(conn: Connection, where: str, told: str) -> None:
    with pytest.raises(ExpressionInvalid, match=told):
        planned(conn, where)
