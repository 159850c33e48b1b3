# ruff: noqa: PT012 - where a transaction ends is part of what is tested

import json
import random
import resource
import stat
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark.targets.archive.archive import (
    archive_delete,
    job_directory,
    list_attempts,
    read_manifest_json,
    read_rows,
    read_shape,
    scan_directory,
    verify,
    write_manifest_json,
)
from spark.targets.archive.sqlite import UndecodableText
from spark.targets.connection import Connection, Target
from spark.targets.errors import ArchiveCorrupt, ArchiveFailed, TargetCancelled, TargetTablesMissing
from spark.targets.manifest import ManifestEntry
from tests.spark.targets.conftest import Connect

JOB = "job_" + "b" * 26

NASTY_TEXTS = [
    None,
    "",
    " ",
    "NULL",
    "null",
    "\\N",
    "\\.",
    "a,b",
    'say "hi"',
    '""',
    "two\nlines",
    "\r\n",
    "\n",
    "back\\slash\\n",
    "\t\b\f\v",
    "Zażółć 漢字 🙂",
    "'; drop table t; --",
    "%s :name $1",
    "x" * 100_000,
    "1",
    "true",
    "\ufeff",
]


def archived(
    conn: Connection,
    directory: Path,
    *,
    unit: str = "data-1",
    token: int = 1,
    table: str = "t",
    where: str = "true",
) -> ManifestEntry | None:
    with conn.transaction():
        return archive_delete(
            conn,
            f"delete from {conn.dialect.qualify(conn.target.schema, table)} as d where {where}",
            {},
            table=table,
            alias="d",
            directory=directory,
            job_id=JOB,
            unit_id=unit,
            token=token,
        )


@pytest.fixture
def conn(target: Target, opened: Connect) -> Connection:
    found = opened(target)
    text = "longtext" if target.dialect == "mysql" else "text"
    found.execute(f"create table t (id bigint primary key, name {text})")
    return found


def insert(conn: Connection, rows: Iterable[tuple[int, str | None]]) -> None:
    with conn.transaction():
        values = [{"id": id_, "name": name} for id_, name in rows]
        conn.execute_many("insert into t values (:id, :name)", values)


def fill(conn: Connection, count: int) -> None:
    insert(conn, [(number, f"row {number}") for number in range(count)])


def test_nasty_texts_are_kept_exactly(conn: Connection, tmp_path: Path) -> None:
    rows = list(enumerate(NASTY_TEXTS))
    insert(conn, rows)
    entry = archived(conn, tmp_path)
    assert entry is not None
    assert entry.rows == len(rows)
    assert sorted(read_rows(entry.path)) == rows
    assert conn.execute("select count(*) from t") == [(0,)]


def test_postgresql_types_are_kept_exactly(postgresql: Target, opened: Connect, tmp_path: Path) -> None:
    conn = opened(postgresql)
    conn.execute(
        """create table t (
           id bigint primary key, small smallint, mid integer,
           at timestamp, zoned timestamptz, short timestamp(3),
           amount numeric, ratio double precision, raw bytea, code char(3), flag boolean,
           doc json, tags text[], day date, twice bigint generated always as (id % 7) stored)"""
    )
    conn.execute(
        r"""insert into t values
        (9223372036854775807, -32768, 2147483647,
         '2024-02-29 23:59:59.123456', '2024-01-01 00:00:00+02', '2024-01-01 00:00:00.1',
         1.10, 0.1, '\x00ff', 'a', true, '{"a":  1}', '{"a,b",NULL,""}', '2024-01-01'),
        (-9223372036854775808, null, null, 'infinity', '-infinity', null,
         'NaN', '-Infinity', '', '', false, 'null', '{}', 'infinity'),
        (0, 0, 0, '0044-03-15 00:00:00 BC', '20240-01-01 00:00:00+00', '0001-01-01',
         1e40, '-0', null, null, null, null, null, null),
        (1, 1, 1, '1969-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00', '-infinity',
         -0.00, 1e-300, '\x5c6e', 'ab ', null, '"\\n"', null, null)"""
    )
    wanted = conn.execute(
        """select id, small::int, mid, at::text, zoned::text, short::text, amount::text, ratio::text,
           raw::text, code || '', flag, doc::text, tags::text, day::text from t order by id"""
    )
    entry = archived(conn, tmp_path)
    assert entry is not None
    found = sorted(read_rows(entry.path), key=lambda row: int(str(row[0])))

    def canonical(row: tuple[Any, ...]) -> tuple[Any, ...]:
        [(texts,)] = conn.execute(
            """select array[cast(:at as timestamp)::text, cast(:zoned as timestamptz)::text,
               cast(:short as timestamp(3))::text]""",
            {"at": row[3], "zoned": row[4], "short": row[5]},
        )
        code = None if row[9] is None else row[9].rstrip(" ")
        flag = {None: None, "t": True, "f": False}[row[10]]
        return (*row[:3], *texts, *row[6:9], code, flag, *row[11:])

    assert [canonical(row) for row in found] == wanted
    assert "twice" not in [column.name for column in read_shape(entry.path).columns]


def test_timestamps_are_typed_for_other_readers(postgresql: Target, opened: Connect, tmp_path: Path) -> None:
    conn = opened(postgresql)
    conn.execute("create table t (id int primary key, at timestamp, zoned timestamptz)")
    conn.execute(
        "insert into t values (1, '2024-01-01 12:00:00', '2024-01-01 12:00:00+00'), (2, 'infinity', null)"
    )
    entry = archived(conn, tmp_path)
    assert entry is not None
    rows = sorted(pq.read_table(entry.path).to_pylist(), key=lambda row: int(row["id"]))
    assert rows[0]["at"] == datetime(2024, 1, 1, 12)
    assert rows[0]["zoned"] == datetime(2024, 1, 1, 12, tzinfo=UTC)
    assert (rows[0]["at#exact"], rows[1]["at"], rows[1]["at#exact"]) == (None, None, "infinity")


def test_sqlite_storage_classes_are_kept_exactly(sqlite: Target, opened: Connect, tmp_path: Path) -> None:
    conn = opened(sqlite)
    columns = "id integer primary key, num int, txt varchar(9), re real, bl blob, ti timestamp"
    conn.execute(f"create table t ({columns}, any)")
    values: list[Any] = [
        None,
        0,
        -(2**63),
        2**63 - 1,
        1.5,
        float("inf"),
        "",
        "1",
        "1.0",
        "x",
        b"",
        b"\0\xff",
        "a\0b",
    ]
    conn.execute_many(
        'insert into t (num, txt, re, bl, ti, "any") values (:v, :v, :v, :v, :v, :v)',
        [{"v": v} for v in values],
    )
    conn.execute("insert into t (num, txt, bl) values (cast(x'ff41' as text), cast(x'80' as text), 1)")
    quoted = ", ".join(f"typeof({name}), hex({name})" for name in ("num", "txt", "re", "bl", "ti", '"any"'))
    wanted = conn.execute(f"select * from t where id < {len(values) + 1} order by id")
    classes = conn.execute(f"select {quoted} from t order by id")
    entry = archived(conn, tmp_path)
    assert entry is not None
    found = sorted(read_rows(entry.path), key=lambda row: int(str(row[0])))
    assert found[:-1] == wanted
    assert [[type(value) for value in row] for row in found[:-1]] == [
        [type(v) for v in row] for row in wanted
    ]
    assert found[-1][1:3] == (UndecodableText(b"\xffA"), UndecodableText(b"\x80"))
    assert isinstance(found[-1][1], UndecodableText)
    assert len(classes) == len(found)


def test_unit_without_rows_writes_no_file(conn: Connection, tmp_path: Path) -> None:
    assert archived(conn, tmp_path / "job") is None
    assert not (tmp_path / "job").exists()


def test_parameters_and_conditions_reach_the_delete(conn: Connection, tmp_path: Path) -> None:
    fill(conn, 10)
    with conn.transaction():
        entry = archive_delete(
            conn,
            "delete from t where id between :lo and :hi and name like '%row%' and name <> :other",
            {"lo": 2, "hi": 4, "other": "it's :x %"},
            table="t",
            directory=tmp_path,
            job_id=JOB,
            unit_id="data-2",
            token=7,
        )
    assert entry is not None
    assert sorted(read_rows(entry.path)) == [(2, "row 2"), (3, "row 3"), (4, "row 4")]
    assert conn.execute("select count(*) from t") == [(7,)]


def test_many_blocks_make_one_file(conn: Connection, tmp_path: Path) -> None:
    count = 6_000
    wide = "y" * 2_000
    insert(conn, [(n, f"{n}{wide}") for n in range(count)])
    entry = archived(conn, tmp_path)
    assert entry is not None
    assert pq.ParquetFile(entry.path).num_row_groups > 1
    assert sorted(read_rows(entry.path)) == [(n, f"{n}{wide}") for n in range(count)]


def test_files_are_private_and_named_by_attempt(conn: Connection, tmp_path: Path) -> None:
    directory = job_directory(tmp_path / "archive", "store-a", JOB)
    fill(conn, 2)
    first = archived(conn, directory, token=3, where="id = 0")
    second = archived(conn, directory, token=3, where="id = 1")
    assert first is not None
    assert second is not None
    assert Path(first.path) == directory / "data-1-3.parquet"
    assert Path(second.path) == directory / "data-1-3.2.parquet"
    assert stat.S_IMODE(Path(first.path).stat().st_mode) == 0o600
    for path in (directory, directory.parent, tmp_path / "archive"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert list(read_rows(first.path)) == [(0, "row 0")]


def test_file_of_a_rolled_back_transaction_is_abandoned(conn: Connection, tmp_path: Path) -> None:
    fill(conn, 5)

    class Crash(Exception):
        pass

    with pytest.raises(Crash), conn.transaction():
        archive_delete(
            conn, "delete from t", {}, table="t", directory=tmp_path, job_id=JOB, unit_id="data-1", token=1
        )
        raise Crash
    assert conn.execute("select count(*) from t") == [(5,)]
    entry = archived(conn, tmp_path, token=2)
    assert entry is not None
    (tmp_path / "stray.txt").write_text("not ours")
    assert [(file.unit_id, file.token, file.state) for file in list_attempts(tmp_path, [entry])] == [
        ("data-1", 1, "ABANDONED"),
        ("data-1", 2, "VALID"),
    ]


def test_full_disk_rolls_the_rows_back_and_leaves_a_torn_file(conn: Connection, tmp_path: Path) -> None:
    count = 3_000
    source = random.Random(1)
    insert(conn, [(n, source.randbytes(500).hex()) for n in range(count)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = 20_000 if conn.dialect.name == "postgresql" else 0
    directory = tmp_path / "archive"
    if conn.dialect.name == "sqlite":
        # Its own journal would hit a limit of the process first: take the directory away instead.
        directory.write_text("in the way")
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(ArchiveFailed):
            archived(conn, directory)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert conn.execute("select count(*) from t") == [(count,)]
    if directory.is_dir():
        scan = scan_directory(directory)
        assert (scan.entries, len(scan.unreadable)) == ((), 1)
        entry = archived(conn, directory)
        assert entry is not None
        assert entry.path.endswith("data-1-1.2.parquet")


def test_cancel_in_the_middle_of_an_archive_keeps_every_row(conn: Connection, tmp_path: Path) -> None:
    count = 20_000
    insert(conn, [(n, "x" * 1_000) for n in range(count)])
    answers: list[bool] = []
    canceller = threading.Thread(target=lambda: answers.append(conn.cancel()))
    with pytest.raises(TargetCancelled), conn.transaction():
        canceller.start()
        archive_delete(
            conn, "delete from t", {}, table="t", directory=tmp_path, job_id=JOB, unit_id="u", token=1
        )
    canceller.join()
    assert answers == [True]
    conn.reset_cancel()
    assert conn.execute("select count(*) from t") == [(count,)]


def test_missing_table_is_named(conn: Connection, tmp_path: Path) -> None:
    with pytest.raises(TargetTablesMissing, match="nowhere"):
        archived(conn, tmp_path, table="nowhere")


def test_flipped_byte_truncated_and_missing_files_are_found(conn: Connection, tmp_path: Path) -> None:
    fill(conn, 8)
    entries = [archived(conn, tmp_path, unit=f"data-{n}", where=f"id in ({n}, {n + 4})") for n in range(4)]
    found = [entry for entry in entries if entry is not None]
    assert [check.state for check in verify(found)] == ["OK"] * 4
    flipped, truncated, missing = (Path(entry.path) for entry in found[:3])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    truncated.write_bytes(truncated.read_bytes()[:-10])
    missing.unlink()
    assert [check.state for check in verify(found)] == ["CORRUPT", "CORRUPT", "MISSING", "OK"]


def test_every_flipped_byte_of_a_small_file_is_found(conn: Connection, tmp_path: Path) -> None:
    fill(conn, 2)
    entry = archived(conn, tmp_path)
    assert entry is not None
    path = Path(entry.path)
    content = path.read_bytes()
    for position in range(0, len(content), 97):
        changed = bytearray(content)
        changed[position] ^= 0x10
        path.write_bytes(changed)
        assert verify([entry])[0].state == "CORRUPT"


def test_manifest_json_survives_a_move_of_its_directory(conn: Connection, tmp_path: Path) -> None:
    fill(conn, 2)
    entry = archived(conn, tmp_path / "a")
    assert entry is not None
    assert read_manifest_json(tmp_path / "a") is None
    write_manifest_json(tmp_path / "a", [])
    written = write_manifest_json(tmp_path / "a", [entry])
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    (tmp_path / "a").rename(tmp_path / "b")
    [moved] = read_manifest_json(tmp_path / "b") or []
    assert moved.path == str(tmp_path / "b" / "data-1-1.parquet")
    assert verify([moved])[0].state == "OK"


@pytest.mark.parametrize(
    "content", ["", "[]", '{"format": 9, "entries": []}', '{"format": 1, "entries": [{}]}']
)
def test_broken_manifest_json_is_corrupt(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ArchiveCorrupt):
        read_manifest_json(tmp_path)


def test_manifest_json_leads_nowhere_else(tmp_path: Path) -> None:
    entry = ManifestEntry(JOB, "u", "t", 1, "/etc/passwd", 1, 1, "00")
    write_manifest_json(tmp_path, [entry])
    document = json.loads((tmp_path / "manifest.json").read_text())
    document["entries"][0]["path"] = "../../etc/passwd"
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    [found] = read_manifest_json(tmp_path) or []
    assert found.path == str(tmp_path / "passwd")


def test_directory_without_a_manifest_tells_its_entries(conn: Connection, tmp_path: Path) -> None:
    fill(conn, 4)
    entries = [archived(conn, tmp_path, unit=f"data-{n}", where=f"id % 2 = {n}") for n in range(2)]
    (tmp_path / "data-9-1.parquet").write_bytes(b"PAR1 torn")
    scan = scan_directory(tmp_path)
    assert list(scan.entries) == entries
    assert scan.unreadable == (str(tmp_path / "data-9-1.parquet"),)
    assert scan_directory(tmp_path / "nowhere").entries == ()


def test_foreign_parquet_is_corrupt(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ArchiveCorrupt):
        list(read_rows(str(tmp_path / "x.parquet")))
