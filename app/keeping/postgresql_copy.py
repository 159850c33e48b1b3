"""The metadata on PostgreSQL: one snapshot of all its tables as text, and back.

pg_dump of the server's version is seldom where Lethe is, so that it is done by COPY: text holds every value
exactly, between versions of the server too, and wants no model of this program, so that metadata of a former
revision is kept as well. The schema is not in the files: migrations make it.

Rules:
- all tables are read in one REPEATABLE READ transaction, while no migration can begin;
- a restore is one transaction: a database that it did not finish is as empty as before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import sql

from app.db import Database
from app.keeping.errors import NotKept, misconfigured
from app.keeping.folder import created, measured, verified
from app.keeping.models import TABLE_PREFIX, TABLE_SUFFIX, Kept, Manifest
from app.kit.metadata.engines import wait_without_end
from migrations.upgrade import ADVISORY_KEY, TURN_MAX, await_turn, upgrade_within

VERSIONS = "alembic_version"
UNLIMITED = ("set local statement_timeout = 0", "set local idle_in_transaction_session_timeout = 0")
RELATIONS = (
    "select relname from pg_class where relnamespace = current_schema()::regnamespace and relkind in"
    " ('r', 'p', 'v', 'm', 'S', 'f') order by relname limit 3"
)


@contextmanager
def _frozen(database: Database) -> Iterator[sa.Connection]:
    """A connection that sees one moment of it, while no migration can begin."""
    with database.engine.connect() as guard:
        guard = guard.execution_options(isolation_level="AUTOCOMMIT")
        key = {"key": ADVISORY_KEY}
        wait_without_end(guard)
        guard.exec_driver_sql(f"set lock_timeout = '{TURN_MAX}'")
        guard.exec_driver_sql("set statement_timeout = 0")
        guard.execute(sa.text("select pg_advisory_lock_shared(:key)"), key)
        try:
            engine = database.engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            with engine.connect() as connection:
                wait_without_end(connection)
                for statement in UNLIMITED:
                    connection.exec_driver_sql(statement)
                yield connection
        finally:
            guard.execute(sa.text("select pg_advisory_unlock_shared(:key)"), key)
            guard.exec_driver_sql("reset lock_timeout")
            guard.exec_driver_sql("reset statement_timeout")


def snapshot(database: Database, into: Path, say: Callable[[str], None]) -> tuple[str, list[Kept]]:
    """Write all tables as they are at one moment; returns the schema revision and the files.

    Raises: NotKept: there is no metadata.
    """
    with _frozen(database) as connection:
        inspector = sa.inspect(connection)
        names = sorted(inspector.get_table_names())
        revision = revision_of(connection) if VERSIONS in names else None
        if revision is None:
            raise misconfigured("METADATA_EMPTY", "there is no metadata of Lethe in this database")
        kept = []
        for name in (name for name in names if name != VERSIONS):
            columns = [column["name"] for column in inspector.get_columns(name)]
            kept.append(_copy_out(_raw(connection), name, columns, into))
            say(f"{name}: {kept[-1].rows} rows")
    return revision, kept


def revision_of(connection: sa.Connection) -> str | None:
    """The schema revision of a database that has one."""
    found: str | None = connection.execute(sa.text(f"select version_num from {VERSIONS}")).scalar()
    return found


def _raw(connection: sa.Connection) -> psycopg.Connection[Any]:
    raw = connection.connection.driver_connection
    assert isinstance(raw, psycopg.Connection)
    return raw


def _copy_out(raw: psycopg.Connection[Any], table: str, columns: list[str], into: Path) -> Kept:
    path, rows = into / f"{TABLE_PREFIX}{table}{TABLE_SUFFIX}", 0
    statement = _statement("copy {} ({}) to stdout", table, columns)
    with created(path) as file, raw.cursor() as cursor, cursor.copy(statement) as copy:
        for chunk in copy:
            rows += bytes(chunk).count(b"\n")  # one in a value is written as \n, two characters
            file.write(chunk)
    return measured(path, columns=columns, rows=rows)


def _statement(form: str, table: str, columns: list[str]) -> sql.Composed:
    listed = sql.SQL(", ").join(map(sql.Identifier, columns))
    return sql.SQL(form).format(sql.Identifier(table), listed)


def check_empty(database: Database) -> None:
    """Raises: NotKept: there is something in the schema that connections use."""
    with database.engine.connect() as connection:
        _refuse_unless_empty(connection)


def _refuse_unless_empty(connection: sa.Connection) -> None:
    found = connection.execute(sa.text(RELATIONS)).scalars().all()
    if found:
        raise misconfigured(
            "DATABASE_NOT_EMPTY",
            f"the PostgreSQL database is not empty: it has {', '.join(found)}",
            "Make a new one (`createdb`), and name it by --metadata-url.",
        )


def restore(database: Database, manifest: Manifest, place: Path, say: Callable[[str], None]) -> None:
    """Make the schema of the backup's revision and fill it, or leave the database empty.

    Raises: NotKept.
    """
    files = {kept.table: kept for kept in manifest.tables}
    with database.engine.begin() as connection:
        await_turn(connection)
        _refuse_unless_empty(connection)
        upgrade_within(connection, manifest.revision)
        tables = _in_order(connection)
        if set(tables) != set(files):
            odd = ", ".join(sorted(set(tables) ^ {str(name) for name in files}))
            raise NotKept(
                "BACKUP_INVALID", f"its tables are not those of revision {manifest.revision}: {odd}"
            )
        for table in reversed(tables):  # rows that migrations have made
            connection.execute(sa.delete(sa.table(table)))
        for table in tables:
            _copy_in(_raw(connection), files[table], place)
            say(f"{table}: {files[table].rows} rows")


def _in_order(connection: sa.Connection) -> list[str]:
    """All tables, those that are referred to first."""
    found = sa.inspect(connection).get_sorted_table_and_fkc_names()
    return [name for name, _ in found if name is not None and name != VERSIONS]


def _copy_in(raw: psycopg.Connection[Any], kept: Kept, place: Path) -> None:
    assert kept.table is not None
    with raw.cursor() as cursor:
        with cursor.copy(_statement("copy {} ({}) from stdin", kept.table, kept.columns or [])) as copy:
            for chunk in verified(place, kept):
                copy.write(chunk)
        if cursor.rowcount != kept.rows:
            raise NotKept("BACKUP_INVALID", f"{kept.name} has {cursor.rowcount} rows, not {kept.rows}")
