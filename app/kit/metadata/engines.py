"""Engines of SQLAlchemy for a metadata database: how each of its connections is set."""

import math
import sqlite3
import time
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, Engine

READ_ONLY: Final = {"lethe_read_only": True}
"""Execution options of a connection that only reads."""
SQLITE_BUSY_TIMEOUT_MS: Final = 5_000
GIVEN_BACK: Final = "lethe_given_back"
ASKED_AFTER_S: Final = 1.0
"""A connection that was idle for longer is tried before it is used."""
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


def postgresql_engine(url: URL, words: Mapping[str, Any], *, silent_max_s: float, **options: Any) -> Engine:
    """Of a server, by psycopg: every wait has an end, and a commit that was answered is durable.

    What only reads has no transaction: a statement is one message to the server and one answer.

    Args:
        words: of a connection, as `postgresql_words` has them.
        silent_max_s: how long the server may say nothing while it is waited for. Its own limits end what it
            works on; nothing else ends a wait for one that hangs.
        options: of the pool.
    """
    from spark.targets.dialects.impatient import Impatient  # psycopg is loaded where there is a server

    engine = sa.create_engine(url, connect_args=dict(words), **options)
    event.listen(engine, "connect", _require_durable_commits)

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, arguments: Any, named: Any) -> Any:
        connection = Impatient.connect(*arguments, **named)
        connection.silent_max_s = silent_max_s
        return connection

    @event.listens_for(engine, "begin")
    def _begun(connection: sa.Connection) -> None:
        # Whoever asks for a level of isolation has psycopg begin, or no transaction.
        if not {"isolation_level", "lethe_read_only"}.intersection(connection.get_execution_options()):
            connection.exec_driver_sql("BEGIN")

    @event.listens_for(engine, "checkin")
    def _given_back(connection: Any, record: Any) -> None:
        record.info[GIVEN_BACK] = time.monotonic()
        if connection is not None:  # None: it was given up
            connection.silent_max_s = silent_max_s

    @event.listens_for(engine, "checkout")
    def _taken(connection: Any, record: Any, _proxy: Any) -> None:
        """One that nobody had for a while may lead nowhere: then no other is trusted either."""
        if time.monotonic() - record.info.get(GIVEN_BACK, math.inf) > ASKED_AFTER_S:
            try:
                engine.dialect.do_ping(connection)
            except engine.dialect.loaded_dbapi.Error as error:
                raise sa.exc.InvalidatePoolError from error
        if not connection.autocommit:
            connection.autocommit = True

    return engine


def wait_without_end(connection: sa.Connection) -> None:
    """Let a connection wait as long as it takes, until it is given back: the server has no limits then."""
    raw: Any = connection.connection.driver_connection
    raw.silent_max_s = math.inf


def postgresql_words(
    connecting: Mapping[str, str], *, lock_timeout_ms: int, statement_timeout_ms: int
) -> dict[str, Any]:
    """How psycopg connects to a metadata server.

    Args:
        connecting: further words of libpq.
    """
    server = (
        f"-c lock_timeout={lock_timeout_ms} -c statement_timeout={statement_timeout_ms} "
        f"-c idle_in_transaction_session_timeout={statement_timeout_ms} -c timezone=UTC"
    )
    return {
        "options": server,
        "application_name": "lethe:metadata",
        "connect_timeout": 5,
        "keepalives_idle": 15,  # one that a failover has cut off is noticed: LISTEN never sends
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,  # the same for a connection on which something was said last
        "prepare_threshold": None,
        **connecting,
    }


def _require_durable_commits(connection: Any, _record: Any) -> None:
    """Whatever the server, its database or the role says; a stronger setting of theirs stays."""
    connection.autocommit = True
    connection.execute(
        "select set_config('synchronous_commit', 'on', false) "
        "where current_setting('synchronous_commit') = 'off'"
    )


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
        self._prepared: dict[Statement, Prepared] = {}
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
            prepared = self._prepared[statement] = Prepared(statement, self._dialect)
        if self._connection is None:
            self._connection = self._connect()
        found = self._connection.execute(prepared.text, [parameters[name] for name in prepared.names])
        return prepared.read(found.fetchall(), lambda: found.description)

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


class Prepared:
    """A statement as text, and how its rows are read: what SQLAlchemy would find out again each time."""

    def __init__(self, statement: Statement, dialect: sa.Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        self._dialect = dialect
        self._columns = list(statement.selected_columns)
        self.text = str(compiled)
        self.names = list(compiled.positiontup or ())
        shape: Any = namedtuple("Row", [column.name for column in self._columns])  # type: ignore[misc]
        self._make: Callable[[Sequence[Any]], Any] = shape._make
        self._readers: list[tuple[int, Callable[[Any], Any]]] | None = None

    def read(self, rows: Iterable[Sequence[Any]], describe: Callable[[], Sequence[Sequence[Any]]]) -> Rows:
        """Rows as SQLAlchemy would give them.

        Args:
            describe: the description of the driver's cursor; psycopg makes it anew each time.
        """
        if self._readers is None:
            self._readers = list(self._find_readers([column[1] for column in describe()]))
        return [self._row(values, self._readers) for values in rows]

    def _find_readers(self, types: Sequence[Any]) -> Iterator[tuple[int, Callable[[Any], Any]]]:
        for place, (column, code) in enumerate(zip(self._columns, types, strict=True)):
            reader = column.type.dialect_impl(self._dialect).result_processor(self._dialect, code)
            if reader is not None:
                yield place, reader

    def _row(self, values: Sequence[Any], readers: Iterable[tuple[int, Callable[[Any], Any]]]) -> Any:
        found = list(values)
        for place, reader in readers:
            found[place] = reader(found[place])
        return self._make(found)
