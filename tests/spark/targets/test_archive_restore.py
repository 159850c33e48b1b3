# ruff: noqa: PT012 - where a transaction ends is part of what is tested

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from spark.targets.archive.archive import ManifestEntry, archive_delete, scan_directory
from spark.targets.archive.restore import restore_into_file, restore_into_schema, restore_live
from spark.targets.archive.restored_file import Attempt
from spark.targets.connection import Connection, Target
from spark.targets.dialects.dialect import Row
from spark.targets.errors import ArchiveFailed, FenceRaised, RestoreConflict, TargetSchemaUnsupported
from spark.targets.fence import raise_fence
from spark.targets.ledger import (
    LedgerRow,
    archive_manifest,
    ensure_ledger,
    ledger_totals,
    record_manifest,
    record_unit,
)
from tests.spark.targets.conftest import Connect

JOB = "job_" + "c" * 26
ATTEMPT = Attempt("job_" + "d" * 26, token=1)
TABLES = ("sym_outgoing_batch", "sym_data_event", "sym_data")
AWKWARD = ["", None, "a\tb", "c\nd", "\\N", "\\", "é'\"", "\r", "1"]


@pytest.fixture
def conn(target: Target, opened: Connect) -> Connection:
    """A target with a ledger and nine rows in each of three tables."""
    found = opened(target)
    ensure_ledger(found)
    timestamp = "datetime" if target.dialect == "mysql" else "timestamp"
    found.execute(
        "create table sym_outgoing_batch (batch_id bigint, node_id varchar(50), status char(2), "
        f"create_time {timestamp}, primary key (batch_id, node_id))"
    )
    found.execute(
        "create table sym_data_event (data_id bigint, batch_id bigint, primary key (data_id, batch_id))"
    )
    found.execute(
        f"create table sym_data (data_id bigint primary key, row_data text, create_time {timestamp})"
    )
    time = "2024-01-01 10:00:00"
    with found.transaction():
        found.execute_many(
            "insert into sym_outgoing_batch values (:id, 'n''1', 'OK', :time)",
            [{"id": n, "time": time} for n in range(9)],
        )
        found.execute_many("insert into sym_data_event values (:id, :id)", [{"id": n} for n in range(9)])
        found.execute_many(
            "insert into sym_data values (:id, :text, :time)",
            [{"id": n, "text": text, "time": time if n else None} for n, text in enumerate(AWKWARD)],
        )
    return found


def contents(conn: Connection, prefix: str = "") -> dict[str, list[Row]]:
    return {table: conn.execute(f"select * from {prefix}{table} order by 1, 2") for table in TABLES}


def purge(
    conn: Connection, directory: Path, *, token: int = 1, below: int = 100, ledger: bool = True
) -> list[ManifestEntry]:
    """Data, events, batches: each in two units."""
    entries: list[ManifestEntry] = []
    for table in reversed(TABLES):
        key = "data_id" if table != "sym_outgoing_batch" else "batch_id"
        for lo, hi in ((0, 4), (5, min(below, 8))):
            with conn.transaction():
                entry = archive_delete(
                    conn,
                    f"delete from {table} where {key} between :lo and :hi",
                    {"lo": lo, "hi": hi},
                    table=table,
                    directory=directory,
                    job_id=JOB,
                    unit_id=f"{table.removeprefix('sym_')}-{lo}",
                    token=token,
                )
                if entry is None:
                    continue
                entries.append(entry)
                if ledger:
                    record_manifest(conn, entry)
                    record_unit(conn, LedgerRow(JOB, entry.unit_id, "X", 1, token, entry.rows))
    return entries


def states(report_units: Sequence[object]) -> list[tuple[str, str]]:
    return [(unit.unit_id, unit.state) for unit in report_units]  # type: ignore[attr-defined]


def test_restored_file_holds_exactly_the_archived_rows(conn: Connection, tmp_path: Path) -> None:
    before = contents(conn)
    purge(conn, tmp_path / "a")
    report = restore_into_file(archive_manifest(conn, JOB), tmp_path / "out" / "restored.db", attempt=ATTEMPT)
    assert (report.rows, report.refused, report.stopped) == (27, (), False)
    raw = sqlite3.connect(tmp_path / "out" / "restored.db")
    found = {table: raw.execute(f"select * from {table} order by 1, 2").fetchall() for table in TABLES}
    raw.close()
    assert {table: [row[0] for row in rows] for table, rows in found.items()} == {
        table: [row[0] for row in rows] for table, rows in before.items()
    }
    assert [row[1] for row in found["sym_data"]] == AWKWARD
    assert found["sym_data"][0][2] is None
    assert str(found["sym_data"][1][2]).startswith("2024-01-01 10:00:00")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["restored.db"]


def test_tables_whose_names_differ_in_case_alone_are_not_mixed_in_a_file(
    postgresql: Target, opened: Connect, tmp_path: Path
) -> None:
    """They became one table: rows with the same key were left out, and counted as there already."""
    conn = opened(postgresql)
    entries = []
    for number, table in enumerate(('"T"', "t")):
        conn.execute(f"create table {table} (id int primary key, word text)")
        conn.execute(f"insert into {table} values (1, 'of {number}')")
        with conn.transaction():
            entry = archive_delete(
                conn,
                f"delete from {table}",
                {},
                table=table.strip('"'),
                directory=tmp_path / "a",
                job_id=JOB,
                unit_id=f"u{number}",
                token=1,
            )
        assert entry is not None
        entries.append(entry)
    report = restore_into_file(entries, tmp_path / "out.db", attempt=ATTEMPT)
    assert states(report.units) == [("u0", "RESTORED"), ("u1", "CONFLICT")]
    assert restore_into_schema(conn, "back", entries).rows == 2


def test_existing_file_is_never_touched(conn: Connection, tmp_path: Path) -> None:
    entries = purge(conn, tmp_path / "a")
    (tmp_path / "mine.db").write_text("precious")
    with pytest.raises(RestoreConflict):
        restore_into_file(entries, tmp_path / "mine.db", attempt=ATTEMPT)
    assert (tmp_path / "mine.db").read_text() == "precious"


def test_place_that_cannot_be_written_is_reported(conn: Connection, tmp_path: Path) -> None:
    entries = purge(conn, tmp_path / "a")
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(ArchiveFailed):
        restore_into_file(entries, tmp_path / "file" / "out.db", attempt=ATTEMPT)


def test_stopped_restore_leaves_no_file(conn: Connection, tmp_path: Path) -> None:
    entries = purge(conn, tmp_path / "a")
    report = restore_into_file(entries, tmp_path / "out.db", attempt=ATTEMPT, should_stop=lambda: True)
    assert report.stopped
    assert not (tmp_path / "out.db").exists()


def test_damaged_and_missing_files_refuse_only_their_units(conn: Connection, tmp_path: Path) -> None:
    entries = purge(conn, tmp_path / "a")
    Path(entries[0].path).write_bytes(b"PAR1")
    Path(entries[3].path).unlink()
    report = restore_live(conn, entries)
    assert sorted(states(report.refused)) == [
        (entries[0].unit_id, "CORRUPT"),
        (entries[3].unit_id, "MISSING"),
    ]
    assert report.rows == 27 - entries[0].rows - entries[3].rows
    assert conn.execute("select count(*) from sym_outgoing_batch") == [(9,)]


def test_restored_live_rows_are_what_they_were_and_repeating_changes_nothing(
    conn: Connection, tmp_path: Path
) -> None:
    before = contents(conn)
    entries = purge(conn, tmp_path / "a")
    assert contents(conn) == {table: [] for table in TABLES}
    report = restore_live(conn, entries)
    assert contents(conn) == before
    assert [unit.table_name for unit in report.units] == [table for table in TABLES for _ in range(2)]
    assert report.rows == 27
    again = restore_live(conn, entries)
    assert {unit.state for unit in again.units} == {"ALREADY"}
    assert again.rows == 0
    assert contents(conn) == before
    assert ledger_totals(conn, JOB)["RESTORE"].rows == 27


def test_rows_that_went_again_after_a_restore_come_back(conn: Connection, tmp_path: Path) -> None:
    """Restored, purged once more, restored again: SUCCEEDED with nothing, as the ledger knew the units."""
    before = contents(conn)
    entries = purge(conn, tmp_path / "a")
    restore_live(conn, entries)
    for table in TABLES:
        conn.execute(f"delete from {table}")
    assert restore_live(conn, entries).rows == 27
    assert contents(conn) == before
    conn.execute("delete from sym_data where data_id = 3")
    assert restore_live(conn, entries).rows == 1
    assert contents(conn) == before


def test_taken_key_refuses_only_its_unit(conn: Connection, tmp_path: Path) -> None:
    entries = purge(conn, tmp_path / "a")
    conn.execute("insert into sym_data values (3, 'new', null)")
    report = restore_live(conn, entries)
    assert states(report.refused) == [("data-0", "CONFLICT")]
    assert [row[0] for row in conn.execute("select data_id from sym_data order by 1")] == [3, 5, 6, 7, 8]
    conn.execute("delete from sym_data where data_id = 3")
    assert states(restore_live(conn, entries).units)[-2:] == [("data-0", "RESTORED"), ("data-5", "ALREADY")]
    assert [row[1] for row in conn.execute("select * from sym_data order by 1")] == AWKWARD


def test_key_that_was_taken_since_an_earlier_restore_refuses_only_its_unit(
    conn: Connection, tmp_path: Path
) -> None:
    """On SQLite the other row passed for the archived one: ALREADY, and it had not come back."""
    entries = purge(conn, tmp_path / "a")
    restore_live(conn, entries)
    conn.execute("delete from sym_data where data_id in (2, 4)")
    conn.execute("insert into sym_data values (4, 'another', null)")
    for _ in range(2):
        assert states(restore_live(conn, entries).refused) == [("data-0", "CONFLICT")]
        assert conn.execute("select row_data from sym_data where data_id in (2, 4)") == [("another",)]
    conn.execute("delete from sym_data where data_id = 4")
    assert restore_live(conn, entries).rows == 2
    assert [row[1] for row in conn.execute("select * from sym_data order by 1")] == AWKWARD


def test_live_restore_stops_at_a_raised_fence(conn: Connection, tmp_path: Path) -> None:
    entries = purge(conn, tmp_path / "a")
    raise_fence(conn, "purge", token=5, owner="job_x")
    with pytest.raises(FenceRaised):
        restore_live(conn, entries, fence=("purge", 4))
    assert contents(conn) == {table: [] for table in TABLES}
    assert restore_live(conn, entries, fence=("purge", 5)).rows == 27


def test_live_table_without_a_key_refuses(conn: Connection, tmp_path: Path) -> None:
    entries = purge(conn, tmp_path / "a")
    conn.execute("drop table sym_data")
    conn.execute("create table sym_data (data_id bigint, row_data text, create_time timestamp)")
    report = restore_live(conn, entries)
    assert states(report.refused) == [("data-0", "CONFLICT"), ("data-5", "CONFLICT")]
    assert conn.execute("select count(*) from sym_data") == [(0,)]


def test_changed_live_table_refuses_with_the_reason(conn: Connection, tmp_path: Path) -> None:
    entries = purge(conn, tmp_path / "a")
    conn.execute("alter table sym_data drop column row_data")
    conn.execute("drop table sym_data_event")
    report = restore_live(conn, entries)
    assert len(report.refused) == 4
    assert any("row_data" in unit.detail for unit in report.refused)
    assert report.rows == 9


@pytest.mark.parametrize(
    "change",
    [
        "add column extra int not null",
        "add constraint strict check (row_data <> 'c, 14: my secret')",
        "alter column row_data type varchar(3) using null",
    ],
)
def test_refusal_of_postgresql_does_not_quote_the_row(
    postgresql: Target, opened: Connect, tmp_path: Path, change: str
) -> None:
    """Whoever reads jobs, or gets webhooks, read whole rows in the errors of a restore."""
    conn = opened(postgresql)
    conn.execute("create table sym_data (data_id bigint primary key, row_data text)")
    conn.execute("insert into sym_data values (4711, 'c, 14: my secret')")
    with conn.transaction():
        entry = archive_delete(
            conn,
            "delete from sym_data",
            {},
            table="sym_data",
            directory=tmp_path,
            job_id=JOB,
            unit_id="u",
            token=1,
        )
    assert entry is not None
    conn.execute(f"alter table sym_data {change}")
    [unit] = restore_live(conn, [entry]).units
    assert unit.state == "CONFLICT"
    assert "4711" not in unit.detail
    assert "my secret" not in unit.detail


def test_new_column_of_the_live_table_stays_empty(conn: Connection, tmp_path: Path) -> None:
    entries = purge(conn, tmp_path / "a")
    conn.execute("alter table sym_data add column extra text")
    assert restore_live(conn, entries).refused == ()
    assert conn.execute("select count(*) from sym_data where extra is null") == [(9,)]


def test_schema_beside_the_live_one_gets_tables_and_rows(
    conn: Connection, tmp_path: Path, target: Target
) -> None:
    before = contents(conn)
    entries = purge(conn, tmp_path / "a")
    if target.dialect == "sqlite":
        with pytest.raises(TargetSchemaUnsupported):
            restore_into_schema(conn, "back", entries)
        return
    live = target.url.rpartition("/")[2] if target.dialect == "mysql" else "public"
    with pytest.raises(RestoreConflict):
        restore_into_schema(conn, live, entries)
    beside = live + 'we"ird`'
    quoted = conn.dialect.quote(beside)
    try:
        assert restore_into_schema(conn, beside, entries).rows == 27
        assert contents(conn, f"{quoted}.") == before
        again = restore_into_schema(conn, beside, entries)
        assert {unit.state for unit in again.units} == {"ALREADY"}
        assert contents(conn, f"{quoted}.") == before
        assert contents(conn) == {table: [] for table in TABLES}
        conn.execute(f"update {quoted}.sym_data set row_data = 'changed' where data_id = 1")
        assert states(restore_into_schema(conn, beside, entries).refused) == [("data-0", "CONFLICT")]
    finally:
        if target.dialect == "mysql":  # it is a database of the whole server
            conn.execute(f"drop database if exists {quoted}")


def test_schema_gets_tables_of_the_archive_where_the_live_ones_are_gone(
    postgresql: Target, opened: Connect, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    conn = opened(postgresql)
    conn.execute(
        'create table "T 1" (id bigint, part varchar(10), at timestamp(3) without time zone, n numeric(9,2), '
        "tags text[], primary key (part, id))"
    )
    conn.execute("""insert into "T 1" values (1, 'a', 'infinity', 1.10, '{a,NULL}')""")
    before = conn.execute('select id, part, at::text, n::text, tags::text from "T 1"')
    with conn.transaction():
        entry = archive_delete(
            conn, 'delete from "T 1"', {}, table="T 1", directory=tmp_path, job_id=JOB, unit_id="u", token=1
        )
    assert entry is not None
    conn.execute('drop table "T 1"')
    assert restore_into_schema(conn, "back", [entry]).refused == ()
    assert conn.execute('select id, part, at::text, n::text, tags::text from back."T 1"') == before
    assert states(restore_into_schema(conn, "back", [entry]).units) == [("u", "ALREADY")]


def test_archive_of_another_kind_of_database_is_refused(
    postgresql: Target, sqlite: Target, opened: Connect, tmp_path: Path
) -> None:
    light, heavy = opened(sqlite), opened(postgresql)
    for conn in (light, heavy):
        conn.execute("create table t (id integer primary key)")
    light.execute("insert into t values (1)")
    with light.transaction():
        entry = archive_delete(
            light, "delete from t", {}, table="t", directory=tmp_path, job_id=JOB, unit_id="u", token=1
        )
    assert entry is not None
    assert states(restore_live(heavy, [entry]).refused) == [("u", "CONFLICT")]


def test_without_a_ledger_each_key_comes_back_once_from_the_newest_attempt(
    target: Target, opened: Connect, tmp_path: Path
) -> None:
    # A unit was rolled back after its file was written, a row changed, and the unit was repeated: both files
    # are whole, and nothing tells which transaction committed.
    conn = opened(target)
    conn.execute("create table sym_data (data_id bigint primary key, row_data text)")
    conn.execute("insert into sym_data values (1, 'old'), (2, 'same'), (3, 'protected later')")

    def attempt(token: int, hi: int) -> None:
        archive_delete(
            conn,
            "delete from sym_data where data_id <= :hi",
            {"hi": hi},
            table="sym_data",
            directory=tmp_path,
            job_id=JOB,
            unit_id="data-1",
            token=token,
        )

    class Crash(Exception):
        pass

    with pytest.raises(Crash), conn.transaction():
        attempt(1, 3)
        raise Crash
    conn.execute("update sym_data set row_data = 'new' where data_id = 1")
    with pytest.raises(Crash), conn.transaction():
        attempt(1, 2)
        raise Crash
    conn.execute("update sym_data set row_data = 'newest' where data_id = 1")
    with conn.transaction():
        attempt(2, 2)
    entries = scan_directory(tmp_path).entries
    assert len(entries) == 3
    assert restore_into_file(entries, tmp_path / "out.db", attempt=ATTEMPT).rows == 3
    raw = sqlite3.connect(tmp_path / "out.db")
    assert raw.execute("select * from sym_data order by 1").fetchall() == [
        (1, "newest"),
        (2, "same"),
        (3, "protected later"),
    ]
    raw.close()
    # Row 3 was never deleted: the live restore must refuse rather than guess.
    assert states(restore_live(conn, entries).units) == [("data-1", "CONFLICT")]
    conn.execute("delete from sym_data")
    assert restore_live(conn, entries).rows == 3


def test_texts_that_are_none_come_back_to_the_byte(sqlite: Target, opened: Connect, tmp_path: Path) -> None:
    conn = opened(sqlite)
    conn.execute("create table t (id integer primary key, v text, n numeric)")
    conn.execute("insert into t values (1, cast(x'ff00fe' as text), 1.5), (2, x'ff', 'abc'), (3, 'ok', 7)")
    query = "select id, typeof(v), hex(cast(v as blob)), typeof(n), n from t order by id"
    before = conn.execute(query)
    with conn.transaction():
        entry = archive_delete(
            conn, "delete from t", {}, table="t", directory=tmp_path, job_id=JOB, unit_id="u", token=1
        )
    assert entry is not None
    restore_into_file([entry], tmp_path / "out.db", attempt=ATTEMPT)
    assert opened(Target(f"sqlite:///{tmp_path}/out.db")).execute(query) == before
    assert restore_live(conn, [entry]).refused == ()
    assert conn.execute(query) == before


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_other_encodings_of_sqlite_come_back(encoding: str, opened: Connect, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "wide.db")) as raw, raw:
        raw.execute(f"pragma encoding = '{encoding}'")
        raw.execute("create table t (id integer primary key, v text)")
        raw.execute("insert into t values (1, 'é🙂'), (2, cast(x'00d800' as text)), (3, '')")
    raw.close()
    conn = opened(Target(f"sqlite:///{tmp_path}/wide.db"))
    query = "select id, hex(cast(v as blob)) from t order by id"
    before = conn.execute(query)
    with conn.transaction():
        entry = archive_delete(
            conn, "delete from t", {}, table="t", directory=tmp_path, job_id=JOB, unit_id="u", token=1
        )
    assert entry is not None
    restore_into_file([entry], tmp_path / "out.db", attempt=ATTEMPT)
    assert opened(Target(f"sqlite:///{tmp_path}/out.db")).execute(query) == before
    assert restore_live(conn, [entry]).refused == ()
    assert conn.execute(query) == before


def test_bytes_of_a_database_without_encoding_come_back(
    postgresql: Target, opened: Connect, tmp_path: Path
) -> None:
    admin = opened(postgresql)
    name = postgresql.url.rsplit("/", 1)[1] + "_ascii"
    admin.execute(f"create database {name} encoding 'SQL_ASCII' locale 'C' template template0")
    conn = opened(Target(postgresql.url + "_ascii", password=postgresql.password))
    try:
        conn.execute("create table t (id integer primary key, v text)")
        conn.execute(r"insert into t values (1, convert_from('\xff5c09', 'SQL_ASCII')), (2, 'ok'), (3, null)")
        with conn.transaction():
            entry = archive_delete(
                conn, "delete from t", {}, table="t", directory=tmp_path, job_id=JOB, unit_id="u", token=1
            )
        assert entry is not None
        assert restore_live(conn, [entry]).refused == ()
        assert conn.execute("select id, length(v), ascii(v) from t order by id") == [
            (1, 3, 255),
            (2, 2, 111),
            (3, None, None),
        ]
    finally:
        conn.close()
        admin.execute(f"drop database {name}")
