"""Bring a metadata database to head, or tell where it stands; the same on SQLite and PostgreSQL."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from app.db import Database
from app.kit.metadata.engines import wait_without_end
from migrations.revisions import current_revision, head_revision, is_known

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = [
    "ADVISORY_KEY",
    "TURN_MAX",
    "await_turn",
    "copy_before_upgrade",
    "current_revision",
    "head_revision",
    "is_known",
    "upgrade",
    "upgrade_within",
]

HERE = Path(__file__).parent
ADVISORY_KEY = 5_104_104_101  # one migration at a time on one PostgreSQL
TURN_MAX = "15min"
"""How long a migration waits for another one, or for a backup that is being made, in PostgreSQL's words."""
TURN_MAX_MS = 15 * 60 * 1000
_ALONE = (
    "set local statement_timeout = 0",  # a large table is rewritten, or gets an index
    "set local idle_in_transaction_session_timeout = 0",
    f"set local lock_timeout = '{TURN_MAX}'",
    f"select pg_advisory_xact_lock({ADVISORY_KEY})",
    "set local lock_timeout to default",  # of tables: instances that run beside it must not wait behind it
)


def _config() -> "Config":
    # Alembic takes a tenth of a second and ten megabytes, and a database at head needs nothing of it.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(HERE))
    return config


def upgrade(database: Database) -> None:
    """Run all missing migrations in one transaction, after whoever migrates just now."""
    with database.engine.connect() as connection, _patient(connection), connection.begin():
        if not database.is_sqlite:
            await_turn(connection)
        upgrade_within(connection, "head")


@contextmanager
def _patient(connection: sa.Connection) -> Iterator[None]:
    """On SQLite a transaction that writes begins when the writer before it has ended, even if he migrates."""
    if connection.dialect.name != "sqlite":
        yield
        return
    raw: Any = connection.connection
    [(usual_ms,)] = raw.execute("pragma busy_timeout").fetchall()
    raw.execute(f"pragma busy_timeout = {TURN_MAX_MS}")
    try:
        yield
    finally:
        raw.execute(f"pragma busy_timeout = {usual_ms}")


def await_turn(connection: sa.Connection) -> None:
    """Let the transaction of a connection to PostgreSQL migrate alone, and take the time that it needs."""
    wait_without_end(connection)
    for statement in _ALONE:
        connection.exec_driver_sql(statement)


def upgrade_within(connection: sa.Connection, revision: str) -> None:
    """Run the missing migrations up to a revision, in the transaction of a connection."""
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def copy_before_upgrade(database: Database, revision: str) -> Path | None:
    """Copy a SQLite database before it is changed (a plain copy of a WAL database would be empty).

    Returns: the copy's path; None where there is nothing to copy, or where somebody else was quicker to
        upgrade: his copy stays.
    """
    path = database.url.database
    if not database.is_sqlite or not path or not Path(path).exists():
        return None
    copy = Path(path).with_suffix(f".before-{revision}.db")
    fresh = copy.with_suffix(f".{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as source:
        source.execute("VACUUM INTO ?", (str(fresh),))
    fresh.chmod(0o600)
    with closing(sqlite3.connect(fresh)) as copied:
        [(is_of,)] = copied.execute("select version_num from alembic_version").fetchall()
    if is_of != revision:
        fresh.unlink()
        return None
    fresh.replace(copy)
    return copy
