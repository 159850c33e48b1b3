"""Bring a metadata database to head, or tell where it stands; the same on SQLite and PostgreSQL."""

import fcntl
import glob
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from app.db import Database
from app.kit.metadata.engines import READ_ONLY, wait_without_end
from migrations.held_up import tell_holders, tell_turn_is_taken
from migrations.revisions import current_revision, head_revision, is_known, revision_of

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = [
    "ADVISORY_KEY",
    "TURN_MAX",
    "MadeByNewer",
    "await_turn",
    "copy_before_upgrade",
    "current_revision",
    "head_revision",
    "is_known",
    "refuse_newer",
    "upgrade",
    "upgrade_within",
]

HERE = Path(__file__).parent
ADVISORY_KEY = 5_104_104_101  # one migration at a time on one PostgreSQL
TURN_MAX = "15min"
"""How long a migration waits for another one, or for a backup that is being made, in PostgreSQL's words."""
TURN_MAX_MS = 15 * 60 * 1000
TAKEN_WITHIN_MS = 400
"""How long one table is waited for: less than the server waits before it ends one of two in a deadlock."""
TAKEN_FIRST = ("idempotency_keys", "counters", "jobs", "stores")
"""As most transactions begin: who is in one of them ends it, and nobody begins another."""
HELD_UP = ("40P01", "55P03")
"""A deadlock, a lock that did not come in time."""
PAUSE_S = 1.0
SILENT_S, ASKED_EVERY_S = 5.0, 0.1
TOLD_EVERY_S = 30.0
"""How often it is said for whom it waits."""
_ALONE = (
    "set local statement_timeout = 0",  # a large table is rewritten, or gets an index
    "set local idle_in_transaction_session_timeout = 0",
    "set local tcp_keepalives_idle = 15",  # it holds every table: its machine may die, and send no end
    "set local tcp_keepalives_interval = 5",
    f"set local lock_timeout = '{TURN_MAX}'",
)
_OF_TABLES = "set local lock_timeout to default"  # instances that run beside it must not wait behind it


class MadeByNewer(Exception):
    """A newer Lethe has migrated the database; `revision` is one that this version does not know."""

    def __init__(self, revision: str) -> None:
        super().__init__(f"the metadata is at revision {revision}, made by a newer Lethe")
        self.revision = revision


def _config() -> "Config":
    # Alembic takes a tenth of a second and ten megabytes, and a database at head needs nothing of it.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(HERE))
    return config


def upgrade(database: Database) -> None:
    """Run all missing migrations in one transaction, after whoever migrates just now.

    Instances that run beside it hold its tables for moments, each in an order of its own. It takes all tables
    first, and begins anew where it would have to wait long for one: else two would wait for each other.

    Raises: MadeByNewer: a newer Lethe was quicker.
    """
    until_s, tell_at_s = time.monotonic() + TURN_MAX_MS / 1000, 0.0
    while not _is_upgraded(database, is_last=time.monotonic() >= until_s):
        if time.monotonic() >= tell_at_s:
            _tell_holders(database, until_s - time.monotonic())
            tell_at_s = time.monotonic() + TOLD_EVERY_S
        time.sleep(PAUSE_S)


def _tell_holders(database: Database, left_s: float) -> None:
    with database.engine.connect().execution_options(**READ_ONLY) as connection:
        tell_holders(connection, _tables(connection), left_s=left_s)


def _is_upgraded(database: Database, *, is_last: bool) -> bool:
    """One try; False: instances at work stood in its way."""
    has_turn = False
    try:
        with database.engine.connect() as connection, _patient(connection), connection.begin():
            if not database.is_sqlite:
                await_turn(connection)
                has_turn = True
                _take_tables(connection)
            refuse_newer(revision_of(connection))
            upgrade_within(connection, "head")
    except sa.exc.OperationalError as error:
        if is_last or not has_turn or getattr(error.orig, "sqlstate", None) not in HELD_UP:
            raise
        return False
    return True


def refuse_newer(revision: str | None) -> None:
    """Refuse a revision that this version does not know. Raises: MadeByNewer."""
    if revision is not None and not is_known(revision):
        raise MadeByNewer(revision)


def _take_tables(connection: sa.Connection) -> None:
    """Keep all tables of Lethe that are there to the end of the transaction."""
    names = _tables(connection)
    if not names:
        return
    quoted = [connection.dialect.identifier_preparer.quote(name) for name in names]
    connection.exec_driver_sql(f"set local lock_timeout = '{TAKEN_WITHIN_MS}ms'")
    connection.exec_driver_sql(f"lock table {', '.join(quoted)} in access exclusive mode")
    connection.exec_driver_sql("set local lock_timeout to default")


def _tables(connection: sa.Connection) -> list[str]:
    """The tables of Lethe that are there, in the order in which they are taken."""
    from app.tables import metadata

    names = set(sa.inspect(connection).get_table_names()).intersection(metadata.tables)
    first = [name for name in TAKEN_FIRST if name in names]
    return [*first, *sorted(names - {*first})]


@contextmanager
def _patient(connection: sa.Connection) -> Iterator[None]:
    """On SQLite a transaction that writes begins when the writer before it has ended, even if he migrates.

    A table that is made anew is dropped first: what refers to its rows must not go with them.
    """
    if connection.dialect.name != "sqlite":
        yield
        return
    raw: Any = connection.connection
    [(usual_ms,)] = raw.execute("pragma busy_timeout").fetchall()
    raw.execute(f"pragma busy_timeout = {TURN_MAX_MS}")
    raw.execute("pragma foreign_keys = off")  # within a transaction it would do nothing
    try:
        yield
    finally:
        raw.execute("pragma foreign_keys = on")
        raw.execute(f"pragma busy_timeout = {usual_ms}")


def await_turn(connection: sa.Connection) -> None:
    """Let the transaction of a connection to PostgreSQL migrate alone, and take the time that it needs."""
    wait_without_end(connection)
    for statement in _ALONE:
        connection.exec_driver_sql(statement)
    if not _has_turn_soon(connection):
        tell_turn_is_taken(ADVISORY_KEY, longest=TURN_MAX)
        connection.exec_driver_sql(f"select pg_advisory_xact_lock({ADVISORY_KEY})")
    connection.exec_driver_sql(_OF_TABLES)


def _has_turn_soon(connection: sa.Connection) -> bool:
    """Most are done within seconds: nothing is said of these."""
    until_s = time.monotonic() + SILENT_S
    while not connection.exec_driver_sql(f"select pg_try_advisory_xact_lock({ADVISORY_KEY})").scalar_one():
        if time.monotonic() >= until_s:
            return False
        time.sleep(ASKED_EVERY_S)
    return True


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
    Raises: sqlite3.Error, OSError: there is no room for it, say; nothing of it is left.
    """
    path = database.url.database
    if not database.is_sqlite or not path or not Path(path).exists():
        return None
    copy = Path(path).with_suffix(f".before-{revision}.db")
    with _copied(Path(path), copy) as fresh:
        with closing(sqlite3.connect(fresh)) as copied:
            [(is_of,)] = copied.execute("select version_num from alembic_version").fetchall()
        if is_of != revision:
            return None
        fresh.replace(copy)
    return copy


@contextmanager
def _copied(path: Path, copy: Path) -> Iterator[Path]:
    """A copy of a database under a name of its own; what has no other name at the end is removed.

    So is what a start that was killed has left: it would take the room of a whole copy, each time.
    """
    for left in copy.parent.glob(f"{glob.escape(path.stem)}.before-*.new"):
        _remove_unless_held(left)
    fresh = copy.with_suffix(f".{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    held = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with closing(sqlite3.connect(path)) as source:
            source.execute("VACUUM INTO ?", (str(fresh),))  # fills a file that is empty
        yield fresh
    finally:
        _remove(fresh)
        os.close(held)


def _remove(copy: Path) -> None:
    copy.with_name(f"{copy.name}-journal").unlink(missing_ok=True)
    copy.unlink(missing_ok=True)


def _remove_unless_held(left: Path) -> None:
    with suppress(OSError):  # another start has ended, and has removed it
        descriptor = os.open(left, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(left)
        finally:
            os.close(descriptor)
