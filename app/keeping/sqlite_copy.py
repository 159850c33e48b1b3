"""The metadata on SQLite: one snapshot of it in a file, and what a file of it says.

`VACUUM INTO` reads in one transaction while others write; the online copy of pages would begin anew with
each write of another process, and never end beside busy jobs.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from app.keeping.folder import created
from app.keeping.models import CheckRead

BUSY_TIMEOUT_S = 30.0
FOUND_MAX = 20


def snapshot(database: Path, into: Path) -> None:
    """Copy the database as it is at one moment; the copy is on the disk at the end."""
    with created(into):  # ours alone from its first byte on; SQLite fills a file that is empty
        pass
    with closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as source:
        source.execute("VACUUM INTO ?", (str(into.absolute()),))
    with into.open("rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def looking_at(path: Path, *, alone: bool) -> Iterator[sqlite3.Connection]:
    """A database to read; `alone`: nobody writes it, and nothing is made beside it."""
    options = "mode=ro&immutable=1" if alone else "mode=ro"
    uri = f"file:{quote(str(path.absolute()))}?{options}"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as database:
        yield database


def revision_of(path: Path, *, alone: bool = True) -> str | None:
    """Its schema revision; None: it has none."""
    with looking_at(path, alone=alone) as database:
        return _revision(database)


def _revision(database: sqlite3.Connection) -> str | None:
    known = database.execute("select 1 from sqlite_master where name = 'alembic_version'").fetchone()
    row = database.execute("select version_num from alembic_version").fetchone() if known else None
    return None if row is None else str(row[0])


def stores_of(path: Path) -> list[str]:
    """The ids of its stores."""
    with looking_at(path, alone=True) as database:
        return [str(row[0]) for row in database.execute("select id from stores order by id")]


def examine(path: Path, said: CheckRead, *, alone: bool, advice: str) -> None:
    """Look at every page, every reference, and count the rows of each table."""
    try:
        with looking_at(path, alone=alone) as database:
            said.revision = _revision(database)
            for (found,) in database.execute(f"pragma integrity_check({FOUND_MAX})"):
                if found != "ok":
                    said.blame("DATABASE_DAMAGED", f"SQLite: {found}", advice)
            for table, row_id, parent, _ in database.execute("pragma foreign_key_check").fetchmany(FOUND_MAX):
                detail = f"{table}, row {row_id}: its row in {parent} is missing"
                said.blame("REFERENCE_BROKEN", detail, advice)
            query = "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
            for (table,) in database.execute(f"{query} order by name").fetchall():
                said.rows[table] = database.execute(f'select count(*) from "{table}"').fetchone()[0]
            if "stores" in said.rows:
                ids = database.execute("select id from stores order by id")
                said.stores = [str(row[0]) for row in ids]
    except sqlite3.Error as error:
        said.blame("DATABASE_DAMAGED", f"SQLite: {error}", advice)
