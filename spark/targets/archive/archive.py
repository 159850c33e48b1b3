"""Archives: the rows that a unit removes go to a Parquet file inside the unit's transaction.

A file counts when a manifest names it; all others are ABANDONED attempts. Where the target has no ledger
there is no manifest: then every whole file counts, and readers keep each key once, from the newest attempt.
Source: design.md, 'Purge', `archive`.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from spark.formats.arrow import pa, pq
from spark.targets.archive import mariadb as archive_mariadb
from spark.targets.archive import mysql as archive_mysql
from spark.targets.archive import postgresql as archive_postgresql
from spark.targets.archive import sqlite as archive_sqlite
from spark.targets.archive.columns import TableShape, describe_table, shape_of_schema
from spark.targets.archive.file import ATTEMPT_NAME, AttemptWriter, Written, job_directory, unlinked
from spark.targets.connection import Connection
from spark.targets.dialects.dialect import Params
from spark.targets.errors import ArchiveCorrupt
from spark.targets.files.beneath import open_beneath
from spark.targets.manifest import ManifestEntry, read_manifest_json, write_manifest_json

__all__ = [
    "AttemptFile",
    "FileCheck",
    "ManifestEntry",
    "Scan",
    "archive_delete",
    "job_directory",
    "list_attempts",
    "read_manifest_json",
    "read_rows",
    "read_shape",
    "rows_of",
    "scan_directory",
    "verified_batches",
    "verify",
    "verify_file",
    "write_manifest_json",
]

READ_ROWS = 10_000
HASH_BYTES = 2**20
READERS_MAX: Final = 4
"""Files that are read at once, where there are so many cores."""
HELD_BYTES_MAX = 64 * 2**20


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What became of one archive file."""

    entry: ManifestEntry
    state: Literal["OK", "MISSING", "CORRUPT"]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class AttemptFile:
    """One file of a job's directory; VALID when the manifest names it."""

    path: str
    unit_id: str
    token: int
    bytes: int
    state: Literal["VALID", "ABANDONED"]


@dataclass(frozen=True, slots=True)
class Scan:
    """What a directory without a manifest holds: whole files, and names that nobody can read."""

    entries: tuple[ManifestEntry, ...]
    unreadable: tuple[str, ...]


def archive_delete(
    conn: Connection,
    delete_sql: str,
    params: Params,
    *,
    table: str,
    alias: str | None = None,
    directory: Path,
    job_id: str,
    unit_id: str,
    token: int,
) -> ManifestEntry | None:
    """Delete rows into a file that is durable when this returns; the caller records the entry and commits.

    Args:
        delete_sql: one DELETE without RETURNING; `alias` is the name that it gives to `table`.
        table: the table's bare name, in the schema of the connection.
        directory: see `job_directory`; created when needed.
    Returns: None: nothing was deleted, and no file was written.
    Raises: ArchiveFailed: the file could not be made durable; the transaction must not commit.
    """
    assert conn.in_transaction, "the rows must stay until the file is durable"
    shape = describe_table(conn, table)
    schema = shape.schema({"job_id": job_id, "unit_id": unit_id, "token": str(token)})
    written: Written | None = None
    with closing(_deleted_blocks(conn, shape, delete_sql, params, alias=alias, schema=schema)) as blocks:
        first = next(blocks, None)
        if first is None:
            return None
        with AttemptWriter(directory, unit_id=unit_id, token=token, schema=schema) as writer:
            writer.write(first)
            for block in blocks:
                writer.write(block)
            written = writer.finish()
    return ManifestEntry(
        job_id, unit_id, table, token, str(written.path), written.rows, written.bytes, written.sha256
    )


def _deleted_blocks(
    conn: Connection, shape: TableShape, delete_sql: str, params: Params, *, alias: str | None, schema: Any
) -> Any:
    if shape.dialect == "postgresql":
        return archive_postgresql.deleted_blocks(conn, shape, delete_sql, params, alias=alias, schema=schema)
    if shape.dialect == "mysql" and alias is None and archive_mariadb.can_return(conn, shape):
        return archive_mariadb.deleted_blocks(conn, shape, delete_sql, params, schema=schema)
    if shape.dialect == "mysql":
        return archive_mysql.deleted_blocks(conn, shape, delete_sql, params, alias=alias, schema=schema)
    return archive_sqlite.deleted_blocks(conn, shape, delete_sql, params, schema=schema)


def read_shape(path: str) -> TableShape:
    """The table that an archive file was written from.

    Raises: ArchiveCorrupt: it cannot be read.
    """
    with _opened(path) as file:
        return shape_of_schema(file.schema_arrow, path=path)


def read_rows(path: str) -> Iterator[tuple[object, ...]]:
    """The rows of an archive file, in the order of `read_shape(path).columns`.

    Raises: ArchiveCorrupt: it cannot be read.
    """
    with _opened(path) as file:
        shape = shape_of_schema(file.schema_arrow, path=path)
        try:
            for batch in file.iter_batches(batch_size=READ_ROWS):
                yield from rows_of(shape, batch)
        except (OSError, pa.ArrowException) as exc:
            raise ArchiveCorrupt(f"{path}: {exc}") from exc


def rows_of(shape: TableShape, batch: Any) -> Iterator[tuple[object, ...]]:
    """The rows of a record batch of an archive file.

    Values of PostgreSQL are int or the server's text (bytes in a SQL_ASCII database), those of MySQL too,
    with bytes of binary columns; those of SQLite int, float, str, bytes or UndecodableText; None is NULL.
    """
    values_of = {
        "sqlite": archive_sqlite.values_of,
        "mysql": archive_mysql.values_of,
        "postgresql": archive_postgresql.texts_of,
    }[shape.dialect]
    yield from zip(*values_of(shape, batch), strict=True)


def verified_batches(entry: ManifestEntry) -> Iterator[tuple[TableShape, Any]]:
    """The record batches of a file that is what its entry says, each with the shape of the table.

    What is read is what was hashed: a file up to HELD_BYTES_MAX is held in memory, a larger one stays open.
    The number of rows is known behind the last batch: until then whatever was read counts for nothing.

    Raises: ArchiveCorrupt: it is not there, not as it was written, or holds another number of rows.
    """
    rows = 0
    try:
        with open(_descriptor(entry.path), "rb", buffering=0) as opened, _verified(opened, entry) as file:
            shape = shape_of_schema(file.schema_arrow, path=entry.path)
            for batch in file.iter_batches(batch_size=READ_ROWS):
                rows += batch.num_rows
                yield shape, batch
    except FileNotFoundError as exc:
        raise ArchiveCorrupt(f"{entry.path} is not there") from exc
    except (OSError, pa.ArrowException) as exc:
        raise ArchiveCorrupt(f"{entry.path}: {exc}") from exc
    if rows != entry.rows:
        raise ArchiveCorrupt(f"{entry.path} has {rows} rows, not {entry.rows}")


def _verified(opened: io.FileIO, entry: ManifestEntry) -> Any:
    """The Parquet file of an open one whose bytes are those of its entry. Raises: ArchiveCorrupt."""
    size = os.fstat(opened.fileno()).st_size
    if size != entry.bytes:
        raise ArchiveCorrupt(f"{entry.path} has {size} bytes, not {entry.bytes}")
    if size <= HELD_BYTES_MAX:
        held = opened.read(size)
        digest = hashlib.sha256(held).hexdigest()
        source: Any = pa.BufferReader(held)
    else:
        digest = _hash_of(opened)[1]
        source = f"/proc/self/fd/{opened.fileno()}"
    if digest != entry.sha256:
        raise ArchiveCorrupt(f"{entry.path} has SHA-256 {digest}, not {entry.sha256}")
    return pq.ParquetFile(source, page_checksum_verification=True)


def verify(entries: Sequence[ManifestEntry]) -> list[FileCheck]:
    """Check files against their entries, some at once: hash and reader of one let those of others go on."""
    with ThreadPoolExecutor(min(READERS_MAX, os.cpu_count() or 1), "lethe-verify") as readers:
        return list(readers.map(verify_file, entries))


def verify_file(entry: ManifestEntry) -> FileCheck:
    """Check one file: its bytes, their hash, and the number of rows that can really be read from it."""
    try:
        size, digest = _hashed(entry.path)
    except FileNotFoundError:
        return FileCheck(entry, "MISSING", f"{entry.path} is not there")
    except OSError as exc:
        return FileCheck(entry, "CORRUPT", f"{entry.path}: {exc.strerror}")
    if size != entry.bytes:
        return FileCheck(entry, "CORRUPT", f"{entry.path} has {size} bytes, not {entry.bytes}")
    if digest != entry.sha256:
        return FileCheck(entry, "CORRUPT", f"{entry.path} has SHA-256 {digest}, not {entry.sha256}")
    try:
        with _opened(entry.path) as file:
            rows = sum(batch.num_rows for batch in file.iter_batches(batch_size=READ_ROWS))
    except (ArchiveCorrupt, OSError, pa.ArrowException) as exc:
        return FileCheck(entry, "CORRUPT", str(exc))
    if rows != entry.rows:
        return FileCheck(entry, "CORRUPT", f"{entry.path} has {rows} rows, not {entry.rows}")
    return FileCheck(entry, "OK")


def list_attempts(directory: Path, entries: Sequence[ManifestEntry]) -> list[AttemptFile]:
    """Every attempt file of a job's directory; those that no entry names are ABANDONED.

    The file of a unit that is being written at this moment is ABANDONED until its transaction commits.
    """
    valid = {Path(entry.path).name for entry in entries}
    found = []
    for path in _attempt_paths(directory):
        name = ATTEMPT_NAME.fullmatch(path.name)
        assert name is not None
        state: Literal["VALID", "ABANDONED"] = "VALID" if path.name in valid else "ABANDONED"
        found.append(AttemptFile(str(path), name["unit"], int(name["token"]), path.stat().st_size, state))
    return found


def scan_directory(directory: Path) -> Scan:
    """Entries for every whole file of a directory that has no manifest (a target without a ledger).

    A torn file belongs to a transaction that never committed, unless it was damaged later: it is reported,
    and the reader of the report decides.
    """
    entries = []
    unreadable = []
    for path in _attempt_paths(directory):
        try:
            entries.append(_entry_of(path))
        except (ArchiveCorrupt, OSError):
            unreadable.append(str(path))
    return Scan(tuple(entries), tuple(unreadable))


def _entry_of(path: Path) -> ManifestEntry:
    with _opened(str(path)) as file:
        shape = shape_of_schema(file.schema_arrow, path=str(path))
        metadata = file.schema_arrow.metadata
        rows = file.metadata.num_rows
    size, digest = _hashed(str(path))
    return ManifestEntry(
        metadata[b"lethe.job_id"].decode(),
        metadata[b"lethe.unit_id"].decode(),
        shape.table,
        int(metadata[b"lethe.token"]),
        str(path),
        rows,
        size,
        digest,
    )


def _attempt_paths(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(
        path for path in directory.iterdir() if ATTEMPT_NAME.fullmatch(path.name) and path.is_file()
    )


def _opened(path: str) -> Any:
    try:
        descriptor = _descriptor(path)
        try:
            return pq.ParquetFile(f"/proc/self/fd/{descriptor}", page_checksum_verification=True)
        finally:
            os.close(descriptor)
    except (OSError, pa.ArrowException) as exc:
        raise ArchiveCorrupt(f"{path}: {exc}") from exc


def _descriptor(path: str) -> int:
    return open_beneath(unlinked(Path(path).parent) / Path(path).name, os.O_RDONLY)


def _hashed(path: str) -> tuple[int, str]:
    with open(_descriptor(path), "rb", buffering=0) as file:
        return _hash_of(file)


def _hash_of(file: io.FileIO) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    while block := file.read(HASH_BYTES):
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()
