"""Rows that others need stay, however the database lets the others name them.

A foreign key of PostgreSQL may name a partition of the table: it was not seen, the rows went, and ON DELETE
CASCADE took those that needed them without archive or count. A foreign key of SQLite compares by the
collation of the column that it refers to, the look at it by that of the other: rows that were needed went.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spark.rows.expression import parse
from spark.rows.family import Family, Selection
from spark.rows.plan import plan_rows
from spark.targets.connection import Connection, Target, connect
from spark.targets.errors import TargetSchemaUnsupported
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger
from tests.conftest import need_slony
from tests.postgresql_server import PostgresqlServer
from tests.slony_cluster import slony_server
from tests.spark.rows.test_random_tables import RESOURCE, sweep

NUMBERS = itertools.count()


@pytest.fixture
def heavy(postgresql_url: str) -> Iterator[Connection]:
    with closing(connect(Target(postgresql_url, table_prefix=""), application_name="rows")) as found:
        assert ensure_ledger(found)
        yield found


@pytest.fixture(scope="module")
def with_icu() -> Iterator[PostgresqlServer]:
    need_slony()
    with slony_server() as (server, _):
        yield server


@pytest.fixture
def lettered(with_icu: PostgresqlServer) -> Iterator[Connection]:
    """A database with a collation to which letters are the same in both cases."""
    url = with_icu.create_database(f"rows_{next(NUMBERS)}")
    with closing(connect(Target(url, table_prefix=""), application_name="rows")) as found:
        assert ensure_ledger(found)
        found.execute(MADE_LETTERS)
        yield found


@pytest.fixture
def light(tmp_path: Path) -> Iterator[Connection]:
    path = tmp_path / "rows.db"
    path.touch()
    with closing(connect(Target(f"sqlite:///{path}", table_prefix=""), application_name="rows")) as found:
        assert ensure_ledger(found)
        yield found


def family_of(conn: Connection, *statements: str, children: tuple[str, ...] = ()) -> Family:
    """A purge of all rows of the table `p` whose `n` is 1."""
    for statement in statements:
        conn.execute(statement)
    return Family.read(conn, Selection("p", None, parse("n = 1"), children), time_zone="UTC")


def purged(conn: Connection, family: Family) -> list[object]:
    """The keys of `p` that are left; as many went as were planned."""
    plan = plan_rows(conn, family, should_stop=lambda: False)
    raise_fence(conn, RESOURCE, token=1, owner="test")
    sweep(conn, family, random.Random(1), job="job_1", archive=None)
    left = [row[0] for row in conn.execute("select id from p order by id")]
    assert plan.tables[-1].rows - plan.tables[-1].rows_to_remove == len(left)
    return left


PARTITIONS = (
    "create table p (id int, n int not null, primary key (id)) partition by range (id)",
    "create table p1 partition of p for values from (0) to (10) partition by range (id)",
    "create table p11 partition of p1 for values from (0) to (5)",
    "create table p12 partition of p1 for values from (5) to (10)",
    "create table p2 partition of p for values from (10) to (20)",
    "insert into p select i, 1 from generate_series(0, 19) i",
)


def test_row_that_a_foreign_key_of_its_partition_needs_stays(heavy: Connection) -> None:
    family = family_of(
        heavy,
        *PARTITIONS,
        "create table c (id int primary key, p int references p1 (id))",
        "create table d (id int primary key, p int references p11 (id) on delete set null)",
        "create table e (id int primary key, p int references p (id))",
        "insert into c values (1, 3), (2, 7)",
        "insert into d values (1, 4)",
        "insert into e values (1, 15)",
    )
    assert len(family.tables["p"].incoming) == 3, "one of each constraint, none of its clones"
    assert purged(heavy, family) == [3, 4, 7, 15]


def test_cascade_of_a_partition_is_refused_until_its_table_is_named(heavy: Connection) -> None:
    family = family_of(
        heavy,
        *PARTITIONS,
        "create table c (id int primary key, p int references p1 (id) on delete cascade)",
        "insert into c values (1, 3), (2, 7)",
    )
    assert [found.code for found in family.findings() if found.severity == "ERROR"] == ["CASCADES"]
    assert purged(heavy, family_of(heavy, children=("c",))) == []
    assert heavy.execute("select count(*) from c") == [(0,)]


def test_partition_of_another_schema_is_looked_at_by_its_name(heavy: Connection) -> None:
    family = family_of(
        heavy,
        *PARTITIONS,
        "create schema parts",
        "create table parts.p3 partition of p for values from (20) to (30)",
        "insert into p select i, 1 from generate_series(20, 29) i",
        "create table parts.c (id int primary key, p int references parts.p3 (id))",
        "insert into parts.c values (1, 25)",
    )
    assert purged(heavy, family) == [25]


@pytest.mark.parametrize("rule", ["", " on delete set null", " on delete cascade"])
def test_row_that_is_named_in_other_letters_stays(rule: str, light: Connection) -> None:
    family = family_of(
        light,
        "create table p (id text collate nocase primary key not null, n int, of text references p)",
        f"create table c (id integer primary key, p text references p (id){rule})",
        "insert into p values ('a', 1, null), ('b', 1, null), ('c', 1, null), ('d', 0, 'C')",
        "insert into c values (1, 'A')",
        children=("c",) if "cascade" in rule else (),
    )
    if "cascade" in rule:
        assert purged(light, family) == ["c", "d"]
        assert light.execute("select count(*) from c") == [(0,)]
    else:
        assert purged(light, family) == ["a", "c", "d"]
    assert light.execute("pragma foreign_key_check") == []


@pytest.mark.parametrize("action", ["instead update p set n = 0 where id = old.id", "also delete from c"])
def test_table_with_a_rule_on_delete_is_refused_until_it_is_disabled(action: str, heavy: Connection) -> None:
    """The purge said that no row was removed, and all were changed; or rows of others went uncounted."""
    statements = (
        "create table p (id int primary key, n int)",
        "create table c (id int primary key)",
        f"create rule odd as on delete to p do {action}",
    )
    with pytest.raises(TargetSchemaUnsupported, match="rule odd"):
        family_of(heavy, *statements)
    family = family_of(heavy, "alter table p disable rule odd", "insert into p values (1, 1)")
    assert purged(heavy, family) == []


@pytest.mark.parametrize("key", ["id", "id integer primary key"])
def test_foreign_key_that_sqlite_cannot_follow_is_refused_by_name(key: str, light: Connection) -> None:
    """Such a table answered every check of its store by 500."""
    with pytest.raises(TargetSchemaUnsupported, match="foreign key of c"):
        family_of(
            light,
            f"create table p ({key}, n int)",
            "create table c (a int, b int, foreign key (a, b) references p)",
        )


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (f"n <= {10**30}", []),
        (f"n < -{10**30}", [1, 2, 3]),
        (f"n between {2**63} and {2**70}", [1, 2]),
        (f"n in (1, {2**64}, {2**63 - 1})", [3]),
    ],
)
def test_numbers_that_sqlite_has_not_are_compared(where: str, left: list[int], light: Connection) -> None:
    """The job ended INTERNAL."""
    for statement in (
        "create table p (id integer primary key, n)",
        f"insert into p values (1, 1), (2, {2**63 - 1}), (3, {float(2**63)!r})",
    ):
        light.execute(statement)
    family = Family.read(light, Selection("p", None, parse(where)), time_zone="UTC")
    assert purged(light, family) == left


ANY_LETTERS = "collate lettered"
MADE_LETTERS = "create collation lettered (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
OTHER_COLLATION = (
    "create table p (id text {of_row} primary key, n int not null, above text {of_child} references p)",
    "create table r (id int primary key, p text {of_child} references p)",
    "create table q (id int primary key, r int references r)",
    "insert into p values ('a', 1, null), ('b', 1, null), ('c', 1, 'c'), ('d', 0, null)",
    "insert into r values (1, '{a}'), (2, null)",
    "insert into q values (1, 1)",
)


def with_collations(
    conn: Connection, of_row: str, of_child: str, a: str, children: tuple[str, ...]
) -> Family:
    made = (each.format(of_row=of_row, of_child=of_child, a=a) for each in OTHER_COLLATION)
    return family_of(conn, *made, children=children)


@pytest.mark.parametrize(("of_row", "of_child"), [('collate "C"', ""), ("", 'collate "C"'), ("", "")])
@pytest.mark.parametrize("children", [(), ("r",)])
def test_row_that_is_needed_by_a_column_of_another_collation_stays(
    of_row: str, of_child: str, children: tuple[str, ...], heavy: Connection
) -> None:
    """PostgreSQL does not compare the two by itself: the plan failed, and nobody could say how to mend it."""
    assert purged(heavy, with_collations(heavy, of_row, of_child, "a", children)) == ["a", "d"]


@pytest.mark.slony  # for its server: that of the wheel is built without ICU
@pytest.mark.parametrize("of_child", ['collate "C"', ANY_LETTERS])
@pytest.mark.parametrize("children", [(), ("r",)])
def test_collation_that_counts_is_that_of_the_row(
    of_child: str, children: tuple[str, ...], lettered: Connection
) -> None:
    """To it 'A' is 'a'."""
    assert purged(lettered, with_collations(lettered, ANY_LETTERS, of_child, "A", children)) == ["a", "d"]
