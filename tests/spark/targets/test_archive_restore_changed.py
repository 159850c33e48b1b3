"""Tables whose columns were changed between purge and restore: a value comes back as it was, or not at all.

The server rounded and cut them without a word, and the restore said RESTORED.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.targets.archive.restore import restore_into_file, restore_into_schema, restore_live
from spark.targets.connection import Target
from spark.targets.ledger import archive_manifest, ensure_ledger
from tests.spark.targets.conftest import Connect
from tests.spark.targets.test_archive_restore import ATTEMPT
from tests.spark.targets.test_archive_restore_parents import JOB, take

POSTGRESQL = [
    ("numeric(12,4)", "1.2345", "numeric(12,2)", False),
    ("numeric", "1.2345", "numeric(12,2)", False),
    ("numeric(12,4)", "1.2345", "double precision", False),
    ("double precision", "0.1234567890123", "real", False),
    ("timestamp(6)", "2026-01-02 03:04:05.678", "timestamp(0)", False),
    ("timestamp", "2026-01-02 03:04:05.678", "timestamp(3)", False),
    ("timestamp", "2026-01-02 03:04:05", "date", False),
    ("timestamptz", "2026-01-02 03:04:05+09", "timestamp", False),
    ("text", "007", "integer", False),
    ("json", '{"a": 1, "a": 2}', "jsonb", False),
    ("numeric(12,2)", "1.23", "numeric(14,4)", True),
    ("numeric(12,2)", "1.23", "numeric", True),
    ("integer", "7", "bigint", True),
    ("integer", "7", "numeric(12,2)", True),
    ("real", "0.5", "double precision", True),
    ("timestamp(0)", "2026-01-02 03:04:05", "timestamp", True),
    ("varchar(5)", "abc", "text", True),
    ("uuid", "123e4567-e89b-12d3-a456-426655440000", "text", True),
]
MARIADB = [
    ("decimal(12,4)", "1.2345", "decimal(12,2)", False),
    ("decimal(12,4)", "1.2345", "int", False),
    ("double", "0.1234567890123", "float", False),
    ("datetime(6)", "2026-01-02 03:04:05.678", "datetime", False),
    ("datetime", "2026-01-02 03:04:05", "date", False),
    ("varchar(5)", "007", "int", False),
    ("decimal(12,2)", "1.23", "decimal(14,4)", True),
    ("int", "7", "bigint unsigned", True),
    ("datetime", "2026-01-02 03:04:05", "datetime(3)", True),
    ("varchar(5)", "abc", "text", True),
]


@pytest.mark.parametrize(("was", "value", "now", "comes"), POSTGRESQL)
def test_value_of_postgresql(
    postgresql: Target, opened: Connect, tmp_path: Path, was: str, value: str, now: str, comes: bool
) -> None:
    _check(opened, postgresql, tmp_path, was, value, f"alter v type {now} using null", comes=comes)


@pytest.mark.parametrize(("was", "value", "now", "comes"), MARIADB)
def test_value_of_mariadb(
    mysql: Target, opened: Connect, tmp_path: Path, was: str, value: str, now: str, comes: bool
) -> None:
    _check(opened, mysql, tmp_path, was, value, f"modify v {now}", comes=comes)


def _check(
    opened: Connect, target: Target, root: Path, was: str, value: str, change: str, *, comes: bool
) -> None:
    conn = opened(target)
    ensure_ledger(conn)
    conn.execute(f"create table t (id integer primary key, v {was})")
    conn.execute("insert into t values (1, :value)", {"value": value})
    before = conn.execute("select * from t")
    take(conn, root, "t", 1)
    conn.execute(f"alter table t {change}")
    entries = archive_manifest(conn, JOB)
    [unit] = restore_live(conn, entries).units
    assert unit.state == ("RESTORED" if comes else "CONFLICT"), unit
    assert conn.execute("select count(*) from t") == [(int(comes),)]
    if target.dialect == "postgresql":
        [unit] = restore_into_schema(conn, "back", entries).units
        assert unit.state == ("RESTORED" if comes else "CONFLICT"), unit
    assert restore_into_file(entries, root / "out.db", attempt=ATTEMPT).rows == len(before) == 1


def test_value_that_is_no_label_comes_back(mysql: Target, opened: Connect, tmp_path: Path) -> None:
    """A server that was not strict keeps '' for it; a strict one took none of the unit's rows."""
    conn = opened(mysql)
    ensure_ledger(conn)
    conn.execute("create table t (id int primary key, e enum('a', 'it''s'), s set('x'), v varchar(3))")
    [(mode,)] = conn.execute("select @@session.sql_mode")
    conn.execute("set session sql_mode = ''")
    conn.execute("insert into t values (1, 'a', '', 'abc'), (2, 'other', 'x', 'abd'), (3, '', null, null)")
    conn.execute("set session sql_mode = :mode", {"mode": mode})
    asked = "select id, e + 0, e, s + 0, v from t order by id"
    before = conn.execute(asked)
    assert [row[1] for row in before] == [1, 0, 0]
    take(conn, tmp_path, "t", 1, 3)
    take(conn, tmp_path, "t", 2)
    for state in ("RESTORED", "ALREADY"):
        units = restore_live(conn, archive_manifest(conn, JOB)).units
        assert [unit.state for unit in units] == [state] * 2, units
        assert conn.execute(asked) == before
        assert conn.execute("select @@session.sql_mode") == [(mode,)]
    conn.execute("delete from t")
    conn.execute("alter table t modify v varchar(2)")
    units = restore_live(conn, archive_manifest(conn, JOB)).units
    assert [unit.state for unit in units] == ["CONFLICT"] * 2
    assert conn.execute("select count(*), @@session.sql_mode from t") == [(0, mode)]
