"""Whatever stood in a row stands in it again after archive and restore."""

import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark.targets.archive.archive import archive_delete, read_rows, verify_file
from spark.targets.archive.restore import restore_into_file, restore_live
from spark.targets.archive.restored_file import Attempt
from spark.targets.connection import Connection, Target
from tests.spark.targets.conftest import Connect

JOB = "job_" + "d" * 26
MANY = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# PostgreSQL has no NUL in a text; neither has surrogates.
pg_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
pg_time = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat(" ")),
    st.sampled_from(
        ["infinity", "-infinity", "0001-12-31 23:59:59 BC", "10000-01-01 00:00:00", "294276-12-31"]
    ),
)
pg_row = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | pg_text | st.sampled_from(["\\.", "\\N", '"', '""', ",", "\r\n", "NULL", "\\"]),
    st.none() | pg_time,
    st.none() | pg_time,
    st.none() | st.just("NaN") | st.decimals(allow_nan=False, allow_infinity=False).map(str),
)
lite_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
lite_value = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    lite_text,
    st.binary(max_size=40),
    st.sampled_from(["1", "1.0", " 1", "1e3", "0x10"]),
)
my_time = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat(" ")),
    st.sampled_from(
        ["0000-00-00 00:00:00", "2026-02-31 10:00:00", "2026-00-10 00:00:00", "9999-12-31 23:59:59"]
    ),
)
my_zoned = st.datetimes(datetime(1971, 1, 1), datetime(2037, 1, 1)).map(lambda moment: moment.isoformat(" "))
my_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
my_row = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(0, 2**64 - 1),
    st.none()
    | my_text
    | st.sampled_from(["\\", "\\N", "'", '"', "`", "%", "%s", ":lo", "\0", "\x1a", " ", "x  "]),
    st.none() | st.binary(max_size=40),
    st.none() | my_time,
    st.none() | my_zoned,
    st.none() | st.decimals(-(10**6), 10**6, places=2).map(str),
    st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.none() | st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False),
    st.none() | st.integers(0, 255).map(lambda number: bytes([number])),
)
lite_row = st.tuples(*[lite_value] * 6)


def archived_and_back(conn: Connection, directory: Path, query: str) -> None:
    before = conn.execute(query)
    with conn.transaction():
        entry = archive_delete(
            conn, "delete from t", {}, table="t", directory=directory, job_id=JOB, unit_id="u", token=1
        )
    assert conn.execute("select count(*) from t") == [(0,)]
    if entry is None:
        assert before == []
        return
    assert verify_file(entry).state == "OK"
    assert len(list(read_rows(entry.path))) == len(before)
    report = restore_into_file([entry], directory / "out.db", attempt=Attempt("job_of_restore", 1))
    assert (report.rows, report.refused) == (len(before), ())
    assert restore_live(conn, [entry]).refused == ()
    assert conn.execute(query) == before


@pytest.fixture
def heavy(postgresql: Target, opened: Connect) -> Connection:
    conn = opened(postgresql)
    conn.execute(
        "create table t (id integer primary key, n bigint, s text, at timestamp, zoned timestamptz, "
        "d numeric)"
    )
    return conn


@pytest.fixture
def light(sqlite: Target, opened: Connect) -> Connection:
    conn = opened(sqlite)
    conn.execute(
        "create table t (id integer primary key, i int, t text, r real, b blob, n numeric, ts timestamp)"
    )
    return conn


@pytest.fixture
def middle(mysql: Target, opened: Connect) -> Connection:
    conn = opened(mysql)
    conn.execute(
        "create table t (id integer primary key, n bigint, u bigint unsigned, s longtext, b longblob,"
        " at datetime(6) null, zoned timestamp(6) null, d decimal(12,2), f float, r double, bits bit(8),"
        " twice bigint generated always as (id * 2) virtual)"
    )
    return conn


@settings(parent=MANY, max_examples=25)
@given(rows=st.lists(my_row, max_size=8))
def test_any_row_of_mysql_comes_back(rows: list[tuple[Any, ...]], middle: Connection) -> None:
    names = ("n", "u", "s", "b", "at", "zoned", "d", "f", "r", "bits")
    with middle.transaction():
        middle.execute("delete from t")
        for index, row in enumerate(rows):
            marks = ", ".join(f":{name}" for name in names)
            values = dict(zip(names, row, strict=True))
            sql = f"insert into t (id, {', '.join(names)}) values (:id, {marks})"
            middle.execute(sql, {"id": index, **values})
    columns = ", ".join(f"hex(cast({name} as char))" for name in ("n", "u", "at", "zoned", "d", "r"))
    columns += ", cast(f as double), hex(s), hex(b), bits + 0, s is null, b is null"
    with tempfile.TemporaryDirectory() as directory:
        archived_and_back(middle, Path(directory), f"select id, {columns} from t order by id")


@MANY
@given(rows=st.lists(pg_row, max_size=12))
def test_any_row_of_postgresql_comes_back(rows: list[tuple[Any, ...]], heavy: Connection) -> None:
    with heavy.transaction():
        heavy.execute("delete from t")
        for index, (n, s, at, zoned, d) in enumerate(rows):
            heavy.execute(
                "insert into t values (:id, :n, :s, cast(cast(:at as text) as timestamp), "
                "cast(cast(:zoned as text) as timestamptz), cast(cast(:d as text) as numeric))",
                {"id": index, "n": n, "s": s, "at": at, "zoned": zoned, "d": d},
            )
    columns = ", ".join(f"{name}::text" for name in ("n", "s", "at", "zoned", "d"))
    with tempfile.TemporaryDirectory() as directory:
        archived_and_back(heavy, Path(directory), f"select id, {columns} from t order by id")


@MANY
@given(rows=st.lists(lite_row, max_size=12))
def test_any_row_of_sqlite_comes_back(rows: list[tuple[Any, ...]], light: Connection) -> None:
    with light.transaction():
        light.execute("delete from t")
        for index, row in enumerate(rows):
            values = {f"p{position}": value for position, value in enumerate(row)}
            marks = ", ".join(f":{name}" for name in values)
            light.execute(f"insert into t values (:id, {marks})", {"id": index, **values})
    columns = ", ".join(
        f"typeof({name}), hex(cast({name} as blob)), {name}" for name in ("i", "t", "r", "b", "n", "ts")
    )
    with tempfile.TemporaryDirectory() as directory:
        archived_and_back(light, Path(directory), f"select id, {columns} from t order by id")


OWN_SETTINGS = (
    "array_nulls = off",
    "bytea_output = escape",
    "datestyle = 'German'",
    "timezone = 'Asia/Tokyo'",
)


def test_settings_of_the_database_change_no_value(
    postgresql: Target, opened: Connect, tmp_path: Path
) -> None:
    """By `array_nulls`, which a database or a role may set, NULLs of arrays came back as texts."""
    conn = opened(postgresql)
    [(name,)] = conn.execute("select current_database()")
    for setting in OWN_SETTINGS:
        conn.execute(f"alter database {conn.dialect.quote(name)} set {setting}")
    conn = opened(postgresql)
    conn.execute("create table t (id int primary key, a text[], b bytea, d date, z timestamptz, f float4)")
    conn.execute("insert into t values (1, array['a', null, 'NULL'], '\\x00ff', '2026-02-03', now(), 0.1)")
    asked = "select a[2] is null, t::text from t"
    [(is_null, _)] = conn.execute(asked)
    assert is_null
    archived_and_back(conn, tmp_path, asked)
