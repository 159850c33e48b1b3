"""Engines of SQLAlchemy for a metadata database: how each of its connections is set."""

import time
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Engine

READ_ONLY: Final = {"lethe_read_only": True}
"""Execution options of a connection that only reads."""
SQLITE_BUSY_TIMEOUT_MS: Final = 5_000
SLOW_S: Final = 0.05
REST_S: Final = 5.0
Statement = sa.Select[Any]
Rows = Sequence[sa.Row[Any]]


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
        options = {"check_same_thread": False, "timeout": 0.0, "isolation_level": None}
        self._engine = sa.create_engine(
            url, poolclass=sa.pool.NullPool, isolation_level="AUTOCOMMIT", connect_args=options
        )
        event.listen(self._engine, "connect", _only_reads)
        self._connection: sa.Connection | None = None
        self._guard = Lock()
        self._rests_until_s = 0.0

    def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> Rows | None:
        """All rows of a statement; None: it has to be asked elsewhere."""
        began_s = time.monotonic()
        if began_s < self._rests_until_s or not self._guard.acquire(blocking=False):
            return None
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
            return self._connection.execute(statement, parameters).all()
        except sa.exc.DBAPIError:
            self._forget()
            return None
        finally:
            if time.monotonic() - began_s > SLOW_S:
                self._rests_until_s = time.monotonic() + REST_S
            self._guard.release()

    def close(self) -> None:
        """Close its connection."""
        with self._guard:
            self._forget()

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _only_reads(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA query_only=ON")
