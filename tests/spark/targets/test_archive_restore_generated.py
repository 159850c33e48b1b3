"""Tables with generated columns: these are not archived, and computed again when the others come back.

What the primary key lacked without them was taken for the whole: rows with the same rest of the key were left
out of a restored file. A second restore of a table with an identity column that is GENERATED ALWAYS ended the
job, and one with a generated column that is NOT NULL came back into no schema.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spark.targets.archive.archive import ManifestEntry, read_shape
from spark.targets.archive.restore import restore_into_file, restore_into_schema, restore_live
from spark.targets.connection import Connection, Target
from spark.targets.ledger import archive_manifest, ensure_ledger
from tests.spark.targets.conftest import Connect
from tests.spark.targets.test_archive_restore import ATTEMPT
from tests.spark.targets.test_archive_restore_parents import JOB, take


@pytest.fixture
def heavy(postgresql: Target, opened: Connect) -> Connection:
    found = opened(postgresql)
    ensure_ledger(found)
    return found


def archived(conn: Connection, root: Path, *columns: str) -> list[ManifestEntry]:
    """The table `t` with the ids 1 to 6, each `n` twice, archived in two units."""
    conn.execute(f"create table t (n int not null, {', '.join(columns)})")
    conn.execute("insert into t (n) select i / 2 from generate_series(0, 5) i")
    take(conn, root, "t", 1, 2, 3)
    take(conn, root, "t", 4, 5, 6)
    return archive_manifest(conn, JOB)


IDENTITY = "id int generated always as identity"
TWICE = "twice int generated always as (n * 2) stored not null"


@pytest.mark.parametrize("columns", [(f"{IDENTITY} primary key",), (f"{IDENTITY} primary key", TWICE)])
def test_repeated_restore_of_generated_columns_changes_nothing(
    columns: tuple[str, ...], heavy: Connection, tmp_path: Path
) -> None:
    entries = archived(heavy, tmp_path, *columns)
    asked = "select * from {}t order by id"
    assert {unit.state for unit in restore_live(heavy, entries).units} == {"RESTORED"}
    before = heavy.execute(asked.format(""))
    assert {unit.state for unit in restore_live(heavy, entries).units} == {"ALREADY"}
    heavy.execute("delete from t where id < 3")
    assert restore_live(heavy, entries).rows == 2
    assert heavy.execute(asked.format("")) == before
    for state in ("RESTORED", "ALREADY"):
        assert {unit.state for unit in restore_into_schema(heavy, "back", entries).units} == {state}
        assert heavy.execute(asked.format("back.")) == before


def test_rows_that_only_a_generated_column_of_the_key_tells_apart_all_come_back(
    heavy: Connection, tmp_path: Path
) -> None:
    heavy.execute("create sequence ids")
    entries = archived(
        heavy,
        tmp_path,
        "id int not null default nextval('ids')",
        "other int generated always as (id + 1) stored",
        "primary key (n, other)",
    )
    assert not read_shape(entries[0].path).key_is_whole
    report = restore_into_file(entries, tmp_path / "out.db", attempt=ATTEMPT)
    assert [(unit.state, unit.rows, unit.skipped) for unit in report.units] == [("RESTORED", 3, 0)] * 2
    with closing(sqlite3.connect(tmp_path / "out.db")) as file:
        assert file.execute("select id from t order by id").fetchall() == [(n,) for n in range(1, 7)]
    assert restore_live(heavy, entries).rows == 6
    heavy.execute("delete from t where id = 1")
    assert restore_live(heavy, entries).rows == 1
    heavy.execute("drop table t")
    report = restore_into_schema(heavy, "back", entries)
    assert {unit.state for unit in report.units} == {"CONFLICT"}
    assert "restore into a file" in report.units[0].detail


def test_column_that_is_generated_by_now_refuses_only_its_units(heavy: Connection, tmp_path: Path) -> None:
    entries = archived(heavy, tmp_path, f"{IDENTITY} primary key", "twice int")
    heavy.execute("alter table t drop column twice")
    heavy.execute("alter table t add column twice int generated always as (n * 2) stored")
    for report in (restore_live(heavy, entries), restore_into_schema(heavy, "back", entries)):
        assert {unit.state for unit in report.units} == {"CONFLICT"}
