"""Archived rows whose tables refer to each other: parents come back before their children."""

import os
from pathlib import Path

import pytest

from spark.targets.archive.archive import archive_delete
from spark.targets.archive.parents import in_a_circle, parents_first
from spark.targets.archive.restore import RestoreReport, restore_live
from spark.targets.connection import Connection, Target
from spark.targets.ledger import archive_manifest, ensure_ledger, record_manifest
from tests.spark.targets.conftest import Connect

JOB = "job_" + "d" * 26
ROWS = 6
# The names are against the order in which they must come back.
CHAIN = {"z_order": None, "m_line": "z_order", "a_note": "m_line"}


@pytest.fixture
def conn(target: Target, opened: Connect) -> Connection:
    """A target with a ledger, whose foreign keys hold on every database."""
    found = opened(target)
    ensure_ledger(found)
    enforce(found, True)
    return found


def enforce(conn: Connection, is_on: bool) -> None:
    if conn.dialect.name == "sqlite":
        conn.execute(f"pragma foreign_keys = {'on' if is_on else 'off'}")
    if conn.dialect.name == "mysql":
        conn.execute(f"set foreign_key_checks = {int(is_on)}")


def table_of(conn: Connection, name: str, parent: str | None) -> None:
    column = ""
    if parent is not None:
        column = f", up int, constraint {name}_fk foreign key (up) references {parent} (id)"
    end = " engine=innodb" if conn.dialect.name == "mysql" else ""
    conn.execute(f"create table {name} (id int primary key, word varchar(10){column}){end}")


def take(conn: Connection, root: Path, table: str, *ids: int) -> None:
    """Remove rows as a unit of a purge does."""
    unit = f"u-{table}-{'-'.join(map(str, ids))}"
    with conn.transaction():
        entry = archive_delete(
            conn,
            f"delete from {table} where id in ({', '.join(map(str, ids))})",
            {},
            table=table,
            directory=root / "s" / JOB,
            job_id=JOB,
            unit_id=unit,
            token=1,
        )
        assert entry is not None
        record_manifest(conn, entry)


def back(conn: Connection) -> RestoreReport:
    return restore_live(conn, archive_manifest(conn, JOB))


def rows_of(conn: Connection, table: str) -> list[object]:
    return list(conn.execute(f"select * from {table} order by id"))


def test_chain_of_tables_comes_back_parents_first(conn: Connection, tmp_path: Path) -> None:
    for name, parent in CHAIN.items():
        table_of(conn, name, parent)
        rows = [f"({n}, 'w'{'' if parent is None else f', {n}'})" for n in range(ROWS)]
        conn.execute(f"insert into {name} values {', '.join(rows)}")
    before = {name: rows_of(conn, name) for name in CHAIN}
    for name in reversed(CHAIN):
        for first in range(0, ROWS, 2):
            take(conn, tmp_path, name, first, first + 1)
    for file in (tmp_path / "s" / JOB).iterdir():  # a copy of an archive has lost its times
        os.utime(file, (0, 0))

    report = back(conn)

    assert [unit.state for unit in report.units] == ["RESTORED"] * 9
    order = list(dict.fromkeys(unit.table_name for unit in report.units))
    assert order == list(CHAIN)
    assert {name: rows_of(conn, name) for name in CHAIN} == before
    assert {unit.state for unit in back(conn).units} == {"ALREADY"}


@pytest.mark.parametrize("has_times", [True, False])
def test_table_that_refers_to_itself_comes_back_from_its_roots(
    conn: Connection, tmp_path: Path, has_times: bool
) -> None:
    table_of(conn, "tree", "tree")
    ups = [None, 0, 1, 2, 3, 4]
    values = ", ".join(f"({n}, 'w', {'null' if up is None else up})" for n, up in enumerate(ups))
    conn.execute(f"insert into tree values {values}")
    before = rows_of(conn, "tree")
    for n in reversed(range(len(ups))):
        take(conn, tmp_path, "tree", n)
    if not has_times:
        for file in (tmp_path / "s" / JOB).iterdir():
            os.utime(file, (0, 0))

    report = back(conn)

    assert not report.refused
    assert rows_of(conn, "tree") == before


def test_circle_of_tables_is_refused_with_what_to_do_and_the_rest_comes_back(
    conn: Connection, tmp_path: Path
) -> None:
    enforce(conn, False)
    for name, parent in (("one", "two"), ("two", "one")):
        table_of(conn, name, parent if conn.dialect.name == "sqlite" else None)
        if conn.dialect.name != "sqlite":
            conn.execute(f"alter table {name} add column up int")
        conn.execute(f"insert into {name} values (1, 'w', 1), (2, 'w', null)")
    for name in ("one", "two"):
        take(conn, tmp_path, name, 1)
        take(conn, tmp_path, name, 2)
    if conn.dialect.name != "sqlite":
        for name, parent in (("one", "two"), ("two", "one")):
            conn.execute(
                f"alter table {name} add constraint {name}_fk foreign key (up) references {parent} (id)"
            )
    enforce(conn, True)

    report = back(conn)

    assert [(unit.table_name, unit.state) for unit in report.refused] == [
        ("one", "CONFLICT"),
        ("two", "CONFLICT"),
    ]
    for unit in report.refused:
        assert "rows of one, two need each other" in unit.detail
        assert "restore into a schema or file" in unit.detail
    assert rows_of(conn, "one") == rows_of(conn, "two") == [(2, "w", None)]


def test_row_whose_parent_is_nowhere_is_refused_and_says_so(conn: Connection, tmp_path: Path) -> None:
    table_of(conn, "z_order", None)
    table_of(conn, "m_line", "z_order")
    conn.execute("insert into z_order values (1, 'w')")
    conn.execute("insert into m_line values (1, 'w', 1), (2, 'w', null)")
    take(conn, tmp_path, "m_line", 1)
    take(conn, tmp_path, "m_line", 2)
    conn.execute("delete from z_order")

    report = back(conn)

    [refused] = report.refused
    assert (refused.state, refused.rows) == ("CONFLICT", 0)
    assert "restore the rows that they need first" in refused.detail
    assert rows_of(conn, "m_line") == [(2, "w", None)]


def test_order_of_tables_by_a_graph() -> None:
    parents = {
        "a": frozenset({"b"}),
        "b": frozenset({"c", "b"}),
        "c": frozenset[str](),
        "x": frozenset({"y"}),
        "y": frozenset({"x"}),
        "under": frozenset({"x"}),
    }

    assert parents_first(parents) == ["c", "b", "a", "under", "x", "y"]
    assert in_a_circle(parents, ["x", "y", "under", "a"]) == ["x", "y"]
    assert in_a_circle(parents, ["b"]) == ["b"]
