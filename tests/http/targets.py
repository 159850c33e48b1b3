"""SymmetricDS databases to register as stores, and digests of every row that they hold."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from tests.oracles.symmetricds_schema import Version, reference_database

# The reference databases were recorded for this cut-off: 246 data, 301 events and 46 batches of 3.x go.
CUTOFF = "2026-11-01T10:00:00Z"
REMOVED_3X = {"data": 246, "data_event": 301, "outgoing_batch": 46}
STRANDED_3X = 15


def copy_reference(path: Path, version: Version = "3.x") -> Path:
    """Copy a reference database to a path; no row of it has ever been purged."""
    shutil.copyfile(reference_database(version), path)
    return path


def digest_sqlite(path: Path) -> str:
    """Hash of the schema and of every row of a SQLite file."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return _digest("\n".join(connection.iterdump()))


def digest_bytes(path: Path) -> str:
    """Hash of the file itself and of the names of its companions (journal, write-ahead log)."""
    companions = sorted(file.name for file in path.parent.iterdir() if file.name.startswith(path.name))
    return _digest(repr(companions)) + hashlib.sha256(path.read_bytes()).hexdigest()


def digest_postgresql(url: str) -> str:
    """Hash of every row of every table of every schema that is not the server's own."""
    conninfo = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo) as connection:
        names = connection.execute(
            "select format('%I.%I', schemaname, tablename) from pg_tables "
            "where schemaname not in ('pg_catalog', 'information_schema') order by 1"
        ).fetchall()
        rows: list[Any] = []
        for (name,) in names:
            query = f"select md5(string_agg(t::text, E'\\n' order by t::text)) from {name} t"
            rows.append((name, connection.execute(query).fetchone()))
    return _digest(repr(rows))


def count_rows(path: Path, table: str) -> int:
    """Rows of a table of a SQLite file."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return int(connection.execute(f'select count(*) from "{table}"').fetchone()[0])


def symmetricds_rows(path: Path) -> str:
    """Hash of the rows of the SymmetricDS tables alone: Lethe's own ledger may stand beside them."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        names = [
            row[0]
            for row in connection.execute(
                "select name from sqlite_master where type = 'table' and name like 'sym%' order by name"
            )
        ]
        rows = [
            (name, connection.execute(f'select * from "{name}" order by rowid').fetchall()) for name in names
        ]
    return _digest(repr(rows))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
