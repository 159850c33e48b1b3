"""Bring a metadata database to head, or tell where it stands; the same on SQLite and PostgreSQL."""

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from app.db import Database

HERE = Path(__file__).parent
ADVISORY_KEY = 5_104_104_101  # one migration at a time on one PostgreSQL
LIMITS = ("lock_timeout", "statement_timeout")
TURN_MAX = "10min"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(HERE))
    return config


@cache
def _scripts() -> ScriptDirectory:
    """All revisions of the code; reading them takes a third of a second."""
    return ScriptDirectory.from_config(_config())


def head_revision() -> str:
    """The newest revision of the code."""
    revision = _scripts().get_current_head()
    assert revision is not None
    return revision


def current_revision(database: Database) -> str | None:
    """Where a database stands; None: empty."""
    with database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def is_known(revision: str) -> bool:
    """Whether the code has this revision; not so after a newer Lethe has migrated the database."""
    return any(item.revision == revision for item in _scripts().walk_revisions())


def upgrade(database: Database) -> None:
    """Run all missing migrations in one transaction."""
    with database.engine.begin() as connection:
        if not database.is_sqlite:
            _await_turn(connection)
        upgrade_within(connection, "head")


def _await_turn(connection: sa.Connection) -> None:
    """Wait for whoever migrates this database now, longer than for a row; then the usual limits hold again.

    Raises: sqlalchemy.exc.OperationalError: another one has migrated for ten minutes, and has not ended.
    """
    limit = sa.text("select set_config(:name, :value, true)")
    kept = {name: connection.exec_driver_sql(f"show {name}").scalar_one() for name in LIMITS}
    for name in LIMITS:
        connection.execute(limit, {"name": name, "value": TURN_MAX})
    connection.execute(sa.text("select pg_advisory_xact_lock(:key)"), {"key": ADVISORY_KEY})
    for name, value in kept.items():
        connection.execute(limit, {"name": name, "value": value})


def upgrade_within(connection: sa.Connection, revision: str) -> None:
    """Run the missing migrations up to a revision, in the transaction of a connection."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def copy_before_upgrade(database: Database, revision: str) -> Path | None:
    """Copy a SQLite database before it is changed (a plain copy of a WAL database would be empty).

    Returns: the copy's path; None where there is nothing to copy.
    """
    path = database.url.database
    if not database.is_sqlite or not path or not Path(path).exists():
        return None
    copy = Path(path).with_suffix(f".before-{revision}.db")
    copy.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as source:
        source.execute("VACUUM INTO ?", (str(copy),))
    copy.chmod(0o600)
    return copy
