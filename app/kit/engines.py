"""Engines of SQLAlchemy for a metadata database: how each of its connections is set."""

import sqlite3
import time
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, Engine

READ_ONLY: Final = {"lethe_read_only": True}
"""Execution options of a connection that only reads."""
SQLITE_BUSY_TIMEOUT_MS: Final = 5_000
SLOW_S: Final = 0.25
REST_S: Final = 5.0
Statement = sa.Select[Any]
Rows = Sequence[Any]
"""Tuples whose fields have the names of the columns."""


def sqlite_engine(url: URL, **options: Any) -> Engine:
    """Of a file: each commit reaches the disk, and a transaction that writes begins IMMEDIATE.

    Args:
        options: of the pool.
    """
    engine = sa.create_engine(
        url, poolclass=sa.pool.QueuePool, connect_args={"check_same_thread": False}, **options
    )

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            f"busy_timeout={SQLITE_BUSY_TIMEOUT_MS}",  # first: the next one may have to wait
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begun(connection: sa.Connection) -> None:
        read_only = connection.get_execution_options().get("lethe_read_only", False)
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def postgresql_engine(
    url: URL,
    *,
    connecting: Mapping[str, str],
    lock_timeout_ms: int,
    statement_timeout_ms: int,
    **options: Any,
) -> Engine:
    """Of a server, by psycopg: every wait has an end, and a commit that was answered is durable.

    Args:
        connecting: further words of libpq.
        options: of the pool.
    """
    server = (
        f"-c lock_timeout={lock_timeout_ms} -c statement_timeout={statement_timeout_ms} "
        f"-c idle_in_transaction_session_timeout={statement_timeout_ms} -c timezone=UTC"
    )
    engine = sa.create_engine(
        url,
        pool_pre_ping=True,
        connect_args={
            "options": server,
            "application_name": "lethe:metadata",
            "connect_timeout": 5,
            "keepalives_idle": 15,  # one that a failover has cut off is noticed: LISTEN never sends
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "prepare_threshold": None,
            **connecting,
        },
        **options,
    )
    event.listen(engine, "connect", _require_durable_commits)
    return engine


def _require_durable_commits(connection: Any, _record: Any) -> None:
    """Whatever the server, its database or the role says; a stronger setting of theirs stays."""
    connection.autocommit = True
    connection.execute(
        "select set_config('synchronous_commit', 'on', false) "
        "where current_setting('synchronous_commit') = 'off'"
    )
    connection.autocommit = False


class Glance:
    """Reads of a few rows of a SQLite file in the thread of an event loop, which must not be held up.

    Rules:
    - each statement is a snapshot of its own; none is open between two, and none can write;
    - nothing waits: who meets a lock, another reader here or a file that cannot be read gets no answer;
    - a disk that took SLOW_S for one read is not asked for REST_S.
    """

    def __init__(self, url: URL) -> None:
        self._dialect = sqlite.dialect()
        self._place, self._options = self._dialect.create_connect_args(url)
        self._prepared: dict[Statement, _Prepared] = {}
        self._connection: sqlite3.Connection | None = None
        self._guard = Lock()
        self._rests_until_s = 0.0

    def rows(self, statement: Statement, parameters: Mapping[str, str]) -> Rows | None:
        """All rows of a statement; None: it has to be asked elsewhere.

        Args:
            statement: one that is kept, such as a constant of a module: it is made into text once.
        """
        began_s = time.monotonic()
        if began_s < self._rests_until_s or not self._guard.acquire(blocking=False):
            return None
        try:
            return self._read(statement, parameters)
        except sqlite3.Error:
            self._forget()
            return None
        finally:
            if time.monotonic() - began_s > SLOW_S:
                self._rests_until_s = time.monotonic() + REST_S
            self._guard.release()

    def _read(self, statement: Statement, parameters: Mapping[str, str]) -> Rows:
        prepared = self._prepared.get(statement)
        if prepared is None:
            prepared = self._prepared[statement] = _Prepared(statement, self._dialect)
        if self._connection is None:
            self._connection = self._connect()
        found = self._connection.execute(prepared.text, [parameters[name] for name in prepared.names])
        return [prepared.row(values) for values in found.fetchall()]

    def _connect(self) -> sqlite3.Connection:
        options = {**self._options, "check_same_thread": False, "timeout": 0.0, "isolation_level": None}
        connect: Any = sqlite3.connect  # the options are the dialect's to say
        connection: sqlite3.Connection = connect(*self._place, **options)
        connection.execute("PRAGMA query_only=ON")
        return connection

    def close(self) -> None:
        """Close its connection."""
        with self._guard:
            self._forget()

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _Prepared:
    """A statement as text, and how its rows are read: what SQLAlchemy would find out again each time."""

    def __init__(self, statement: Statement, dialect: sa.Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        columns = list(statement.selected_columns)
        self.text = str(compiled)
        self.names = list(compiled.positiontup or ())
        shape: Any = namedtuple("Row", [column.name for column in columns])  # type: ignore[misc]
        self._make: Callable[[Sequence[Any]], Any] = shape._make
        self._readers = [
            (place, reader)
            for place, column in enumerate(columns)
            if (reader := column.type.dialect_impl(dialect).result_processor(dialect, None)) is not None
        ]

    def row(self, values: Sequence[Any]) -> Any:
        found = list(values)
        for place, reader in self._readers:
            found[place] = reader(found[place])
        return self._make(found)
