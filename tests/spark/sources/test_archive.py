"""`lethe_archive`: rows only of files that a manifest names and that are as they were written."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from lethe_spark import ArchiveSource, LedgerSource, OptionInvalid
from lethe_spark.archive_values import json_of
from pyspark.sql.datasource import DataSourceReader

from spark.targets.archive.archive import read_rows, read_shape, verify
from spark.targets.connection import Target
from spark.targets.errors import ArchiveCorrupt
from spark.targets.manifest import MANIFEST_NAME, ManifestEntry, write_manifest_json
from tests.spark.sources.archives import Archives, job_id, make_table
from tests.spark.sources.conftest import Reading
from tests.spark.targets.conftest import Connect

SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 200))]


def direct(path: Path, **options: str) -> DataSourceReader:
    """The reader of a source, without Spark."""
    source = ArchiveSource({"path": str(path), **options})
    return source.reader(source.schema())


def rows_of(reader: DataSourceReader) -> list[dict[str, Any]]:
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def expected(entries: list[ManifestEntry]) -> list[dict[str, Any]]:
    """The rows of files as `lethe archive restore` would bring them back."""
    found = []
    for entry in entries:
        shape = read_shape(entry.path)
        names = [column.name for column in shape.columns]
        for number, row in enumerate(read_rows(entry.path)):
            values = dict(zip(names, row, strict=True))
            found.append(
                {
                    "job_id": entry.job_id,
                    "unit_id": entry.unit_id,
                    "table_name": entry.table_name,
                    "token": entry.token,
                    "file": entry.path,
                    "row": number,
                    "primary_key": json_of([values[name] for name in shape.primary_key]),
                    "values": json_of(values),
                }
            )
    return found


def _keep_random(archives: Archives, target: Target, opened: Connect, seed: int) -> list[ManifestEntry]:
    rng = random.Random(seed)
    conn = opened(target)
    entries = []
    for job in range(1, rng.randint(2, 4)):
        table = f"t{job}"
        make_table(conn, table, rng, rng.randint(1, 60))
        for unit, low in enumerate(range(0, 60, 20)):
            archives.keep(conn, table, f"id >= {low} and id < {low + 20}", job=job, unit=f"u-{unit}")
        entries += archives.close(conn, job)
    return entries


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_of_a_random_archive_is_that_of_its_files(
    archives: Archives, sqlite: Target, opened: Connect, seed: int
) -> None:
    entries = _keep_random(archives, sqlite, opened, seed)
    assert rows_of(direct(archives.root)) == expected(entries)


@pytest.mark.parametrize(
    "dialect",
    [
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.postgresql),
        pytest.param("mysql", marks=pytest.mark.mariadb),
    ],
)
def test_spark_has_the_same_rows_and_verification(
    reading: Reading, archives: Archives, opened: Connect, request: pytest.FixtureRequest, dialect: str
) -> None:
    target: Target = request.getfixturevalue(dialect)
    entries = _keep_random(archives, target, opened, seed=7)
    assert rows_of(direct(archives.root)) == expected(entries)
    rows = reading.rows("lethe_archive", path=archives.root)
    assert sorted(rows, key=_place) == sorted(expected(entries), key=_place)
    files = reading.rows("lethe_archive", path=archives.root, view="files")
    checks = verify(entries)
    assert [(file["path"], file["rows"], file["state"], file["detail"]) for file in files] == [
        (check.entry.path, check.entry.rows, check.state, check.detail) for check in checks
    ]
    for table in {entry.table_name for entry in entries}:
        typed = reading.rows("lethe_archive", path=archives.root, table=table)
        assert sorted((row["_file"], row["_row"], row["id"]) for row in typed) == sorted(
            (row["file"], row["row"], json.loads(row["values"])["id"])
            for row in rows
            if row["table_name"] == table
        )


def _place(row: dict[str, Any]) -> tuple[str, int]:
    return row["file"], row["row"]


def test_columns_of_a_table_have_its_types(archives: Archives, sqlite: Target, opened: Connect) -> None:
    conn = opened(sqlite)
    conn.execute("create table t (id integer primary key, at datetime, note text)")
    conn.execute("insert into t values (1, '2026-11-25', 'a'), (2, 7, x'00')")
    archives.keep(conn, "t", "id = 1", job=1, unit="u")
    conn.execute("alter table t add column later real")
    conn.execute("update t set later = 0.5")
    archives.keep(conn, "t", "id = 2", job=2, unit="u")
    archives.close(conn, 1)
    archives.close(conn, 2)
    first, second = rows_of(direct(archives.root, table="t"))
    nothing = {"integer": None, "real": None, "text": None, "blob": None}
    assert (first["id"], first["at"], first["note"], first["later"]) == (1, "2026-11-25", "a", None)
    assert (first["_job_id"], first["_unit_id"], first["_token"], first["_row"]) == (job_id(1), "u", 1, 0)
    assert (second["at"], second["at#exact"]) == (None, nothing | {"integer": 7})
    assert (second["note"], second["note#exact"]) == (None, nothing | {"blob": b"\x00"})
    assert second["later"] == 0.5
    assert rows_of(direct(archives.root, jobs=job_id(2))) == expected(archives.close(conn, 2))


@pytest.mark.parametrize("name", ["_row", "_FILE"])
def test_a_column_with_the_name_of_one_of_ours_is_refused(
    archives: Archives, sqlite: Target, opened: Connect, name: str
) -> None:
    """The number of the row stood where the table's own value was asked for."""
    conn = opened(sqlite)
    conn.execute(f"create table t (id integer primary key, {name} text)")
    conn.execute("insert into t values (1, 'own')")
    archives.keep(conn, "t", "id = 1", job=1, unit="u")
    archives.close(conn, 1)
    with pytest.raises(ArchiveCorrupt, match=f"the column {name} of .*; leave the option 'table' out"):
        direct(archives.root, table="t")
    [row] = rows_of(direct(archives.root))
    assert json.loads(row["values"]) == {"id": 1, name: "own"}


def test_a_column_with_the_name_of_what_another_holds_beside_is_refused(
    archives: Archives, postgresql: Target, opened: Connect
) -> None:
    """Of the time that fits no type nothing was shown but the other column's text."""
    conn = opened(postgresql)
    conn.execute('create table t (id bigint primary key, at timestamp, "at#exact" text)')
    conn.execute("insert into t values (1, 'infinity', 'own')")
    archives.keep(conn, "t", "id = 1", job=1, unit="u")
    archives.close(conn, 1)
    with pytest.raises(ArchiveCorrupt, match="two columns called at#exact; leave the option 'table' out"):
        rows_of(direct(archives.root, table="t"))
    [row] = rows_of(direct(archives.root))
    assert json.loads(row["values"]) == {"id": 1, "at": "infinity", "at#exact": "own"}


def test_an_archive_behind_a_link_is_not_left_out_without_a_word(
    archives: Archives, sqlite: Target, opened: Connect, tmp_path: Path
) -> None:
    """Its rows were in no answer: no row of a purge on another disk was purged twice."""
    conn = opened(sqlite)
    conn.execute("create table t (id integer primary key)")
    conn.execute("insert into t values (1), (2)")
    for job in (1, 2):
        archives.keep(conn, "t", f"id = {job}", job=job, unit="u")
        archives.close(conn, job)
    (archives.root / "newest").symlink_to(archives.directory(2))
    assert len(rows_of(direct(archives.root))) == 2
    archives.directory(1).rename(tmp_path / "old")
    archives.directory(1).symlink_to(tmp_path / "old")
    with pytest.raises(ArchiveCorrupt, match=r"is a link to .*/old, which is not below .*: mount it"):
        rows_of(direct(archives.root))


def test_columns_that_differ_between_files_are_refused(
    archives: Archives, sqlite: Target, opened: Connect
) -> None:
    conn = opened(sqlite)
    for job, kind in enumerate(("integer", "text"), start=1):
        conn.execute(f"create table t (id integer primary key, c {kind})")
        conn.execute("insert into t values (1, null)")
        archives.keep(conn, "t", "true", job=job, unit="u")
        archives.close(conn, job)
        conn.execute("drop table t")
    with pytest.raises(ArchiveCorrupt, match=r"the column c is int64 in .* leave the option 'table'"):
        direct(archives.root, table="t")
    assert len(rows_of(direct(archives.root))) == 2
    with pytest.raises(OptionInvalid, match="no file of the table 'sym'; there is t"):
        direct(archives.root, table="sym")


@pytest.fixture
def kept(archives: Archives, sqlite: Target, opened: Connect) -> list[ManifestEntry]:
    """Two files of three rows."""
    conn = opened(sqlite)
    conn.execute("create table t (id integer primary key, c text)")
    for unit in range(2):
        conn.execute("insert into t values (1, 'a'), (2, 'b'), (3, null)")
        archives.keep(conn, "t", "true", job=1, unit=f"u-{unit}")
    return archives.close(conn, 1)


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_file_that_is_not_as_it_was_written_fails_the_query(
    kept: list[ManifestEntry], archives: Archives
) -> None:
    path = Path(kept[0].path)
    whole = path.read_bytes()
    for at in (0, len(whole) // 2, len(whole) - 1):
        _flip(path, at)
        with pytest.raises(ArchiveCorrupt, match="has SHA-256"):
            rows_of(direct(archives.root))
        path.write_bytes(whole)
    path.write_bytes(whole + b"x")
    with pytest.raises(ArchiveCorrupt, match="bytes, not"):
        rows_of(direct(archives.root))
    path.unlink()
    with pytest.raises(ArchiveCorrupt, match="is not there"):
        rows_of(direct(archives.root))
    shutil.copy(kept[1].path, path)
    path.unlink()
    path.symlink_to(kept[1].path)
    with pytest.raises(ArchiveCorrupt):
        rows_of(direct(archives.root))
    states = [row["state"] for row in rows_of(direct(archives.root, view="files"))]
    assert states == [check.state for check in verify(kept)]
    assert states != ["OK", "OK"]


def test_a_manifest_that_says_other_rows_fails_the_query(
    kept: list[ManifestEntry], archives: Archives
) -> None:
    manifest = archives.directory(1) / MANIFEST_NAME
    document = json.loads(manifest.read_text())
    document["entries"][0]["rows"] = 4
    manifest.write_text(json.dumps(document))
    with pytest.raises(ArchiveCorrupt, match="has 3 rows, not 4"):
        rows_of(direct(archives.root))


def test_what_no_manifest_names_is_not_read(kept: list[ManifestEntry], archives: Archives) -> None:
    shutil.copy(kept[0].path, archives.directory(1) / "u-9-1.parquet")
    open_job = archives.directory(2)
    open_job.mkdir()
    shutil.copy(kept[0].path, open_job / "u-0-1.parquet")
    assert rows_of(direct(archives.root)) == expected(kept)
    with pytest.raises(ArchiveCorrupt, match=r"has no manifest\.json, and without one no file counts"):
        direct(open_job).partitions()


def test_a_copy_beside_an_archive_is_not_counted_twice(kept: list[ManifestEntry], archives: Archives) -> None:
    shutil.copytree(archives.directory(1), archives.root / "copy")
    with pytest.raises(ArchiveCorrupt, match=r"is named twice: .*; read one of the copies"):
        direct(archives.root).partitions()
    shutil.rmtree(archives.root / "copy")
    again = [
        kept[0],
        ManifestEntry(kept[0].job_id, "u-7", "t", 1, kept[0].path, 3, kept[0].bytes, kept[0].sha256),
    ]
    write_manifest_json(archives.directory(1), again)
    with pytest.raises(ArchiveCorrupt, match="is named by two units"):
        direct(archives.root).partitions()


def test_options_that_are_wrong_are_refused_by_name(tmp_path: Path) -> None:
    for options, words in (
        ({}, "'path' is missing"),
        ({"path": str(tmp_path / "none")}, "there is no folder"),
        ({"path": str(tmp_path), "view": "x"}, "give one of files, rows"),
        ({"path": str(tmp_path), "tables": "x"}, "there is no option 'tables'"),
        ({"path": str(tmp_path), "jobs": "01m8mdw6sbcqkvsmq911jtss9d"}, "which is no id of a job"),
    ):
        with pytest.raises(OptionInvalid, match=words):
            ArchiveSource(options).schema()


def test_jobs_of_a_ledger_that_are_none_are_refused_and_not_found_empty() -> None:
    options = {"url": "sqlite:////srv/shop.db", "jobs": job_id(1).upper()}
    with pytest.raises(OptionInvalid, match=r"lethe_ledger: jobs names 'JOB_.*', which is no id of a job"):
        LedgerSource(options).schema()


def test_values_that_json_has_not_are_told_apart() -> None:
    assert json_of([b"\x00", float("-inf"), 2**63, None, "é"]) == (
        '[{"base64":"AA=="},{"real":"-inf"},9223372036854775808,null,"é"]'
    )
