"""One connection to a target, the same on every database.

Invariants:
- Only TargetErrors leave this module.
- A statement runs in autocommit, or inside `transaction()`: nothing that follows the end of a transaction
  slips into autocommit, and a COMMIT that did not commit is an error.
- After `cancel()` nothing but the ROLLBACK runs until `reset_cancel()`.
- A connection whose state is unknown (a failed ROLLBACK) is closed, never reused.
"""

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from spark.targets.dialects.dialect import Dialect, Made, Params, Row, Session
from spark.targets.dialects.drivers import driver_errors
from spark.targets.dialects.sqlite import SqliteDialect, SqliteSession
from spark.targets.errors import (
    TargetAuthFailed,
    TargetCancelled,
    TargetError,
    TargetIsAnother,
    TargetUnreachable,
    classify,
)
from spark.targets.target import (
    DialectName,
    SessionLimits,
    Target,
    postgresql_host,
    silent_max_s,
    sqlite_path,
    validate_url,
)

__all__ = [
    "Connection",
    "DialectName",
    "SessionLimits",
    "Target",
    "connect",
    "identity",
    "postgresql_host",
    "sqlite_path",
    "target_now",
    "validate_url",
]

# PostgreSQL cuts application_name at 63 bytes, and with it the token at its end.
APPLICATION_NAME_BYTES = 63
CANCEL_TIMEOUT_S = 5.0
STARTED = "started-"
"""Begins the name of a server that may not be asked for its system identifier."""
CANCEL_WAIT_S = 0.1


def connect(
    target: Target,
    *,
    application_name: str,
    limits: SessionLimits | None = None,
    read_only: bool = False,
) -> "Connection":
    """Open a connection whose every wait has an end.

    Raises: TargetUnreachable, TargetAuthFailed, TargetDatabaseMissing, TargetUrlInvalid,
        TargetSchemaUnsupported (server too old, not a database), TargetIsAnother.
    """
    conn = Connection(target, application_name=application_name, limits=limits, read_only=read_only)
    if target.bound_to is not None:
        with ExitStack() as undo:
            undo.callback(conn.close)
            _require_bound(conn, target.bound_to)
            undo.pop_all()
    return conn


def _require_bound(conn: "Connection", wanted: str) -> None:
    if identity(conn) != wanted:
        raise TargetIsAnother(
            "this is not the database that the store was given, or nobody could ask it then;"
            " :check decides whether the store may use this one"
        )


class Connection:
    """Used by one thread at a time; `cancel()` may come from any other."""

    dialect: Dialect

    def __init__(
        self,
        target: Target,
        *,
        application_name: str,
        limits: SessionLimits | None = None,
        read_only: bool = False,
    ) -> None:
        assert len(application_name.encode()) <= APPLICATION_NAME_BYTES, "the server would cut the name"
        self.target = target if target.renewal is None else replace(target, password=target.renewal.now())
        self.limits = limits or SessionLimits()
        self.read_only = read_only
        self.rowcount = -1
        self.noted: dict[str, str | None] = {}
        """What callers remember for the life of the connection: of the catalog, of earlier batches."""
        self._state = threading.Condition()
        self._cancelling = threading.Lock()
        self._running = False
        self._cancelled = False
        self._in_transaction = False
        try:
            self._session = self._tried(application_name)
        except TargetAuthFailed:
            renewal = target.renewal
            password = None if renewal is None else renewal.after_refusal(self.target.password)
            if password is None:
                raise
            self.target = replace(self.target, password=password)
            self._session = self._tried(application_name)

    def _tried(self, application_name: str) -> Session:
        try:
            return self._opened(application_name)
        except driver_errors() as exc:
            raise classify(exc, secret=self.target.password) from None

    def _opened(self, application_name: str) -> Session:
        if self.target.dialect == "postgresql":
            from spark.targets.dialects.postgresql import PostgresqlDialect, PostgresqlSession

            self.dialect = PostgresqlDialect()
            return PostgresqlSession(
                self.target, application_name=application_name, limits=self.limits, read_only=self.read_only
            )
        if self.target.dialect == "mysql":
            from spark.targets.dialects.mysql import MysqlDialect, MysqlSession

            self.dialect = MysqlDialect()
            return MysqlSession(
                self.target, application_name=application_name, limits=self.limits, read_only=self.read_only
            )
        self.dialect = SqliteDialect()
        return SqliteSession(
            self.target, limits=self.limits, read_only=self.read_only, is_cancelled=lambda: self._cancelled
        )

    @property
    def server_version(self) -> int:
        """PostgreSQL: 150020 for 15.20; MariaDB: 101119 for 10.11.19; SQLite: 3040000 for 3.40."""
        return self._session.server_version

    @property
    def closed(self) -> bool:
        return self._session.closed

    @property
    def in_transaction(self) -> bool:
        return self._in_transaction

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def execute(self, sql: str, params: Params = None) -> list[Row]:
        """Run one statement with `:name` parameters; its rows, and its count in `rowcount`."""
        with self._statement():
            rows, self.rowcount = self._session.run(sql, params)
        return rows

    def execute_count(self, sql: str, params: Params = None) -> int:
        """Run one statement; how many rows it changed."""
        self.execute(sql, params)
        return self.rowcount

    def execute_many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> int:
        """Run one statement for every mapping; how many rows were changed in all."""
        with self._statement():
            self.rowcount = self._session.run_many(sql, rows)
        return self.rowcount

    def execute_rows(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """SQLite: run one statement with `?` parameters for every row; how many rows were changed in all."""
        with self._statement():
            self.rowcount = self._session.run_rows(sql, rows)
        return self.rowcount

    def execute_made(self, sql: str, make: Callable[[Sequence[Any]], Made]) -> list[Made]:
        """PostgreSQL: run one statement; what is made of each row as it is read: rows are not kept."""
        with self._statement():
            return self._session.run_made(sql, make)

    def stream(self, sql: str, params: Params = None) -> Generator[Row, None, None]:
        """The rows of one statement, one by one; consume or close it before the next statement."""
        with self._statement():
            yield from self._session.stream(sql, params)

    def stream_texts(self, sql: str, params: Params = None) -> Generator[Row, None, None]:
        """MySQL: like `stream`, every value as the server writes it: str, bytes or None."""
        with self._statement():
            yield from self._session.stream_texts(sql, params)

    def stream_lines(self, sql: str, params: Params = None) -> Generator[list[bytes | None], None, None]:
        """MySQL: the values of a statement with one column of bytes, in blocks."""
        with self._statement():
            yield from self._session.stream_lines(sql, params)

    @contextmanager
    def copy_out(self, sql: str, params: Params = None) -> Iterator[Iterable[bytes]]:
        """PostgreSQL: the rows of a `COPY ... TO STDOUT`, one item each."""
        with self._statement(), self._session.copy_out(sql, params) as rows:
            yield rows

    def copy_in(self, sql: str, lines: Iterable[bytes]) -> int:
        """PostgreSQL: feed a `COPY ... FROM STDIN`; how many rows were written."""
        with self._statement():
            self.rowcount = self._session.copy_in(sql, lines)
        return self.rowcount

    def set_application_name(self, name: str) -> None:
        """Tell the server which unit works now; SQLite has nobody to tell."""
        assert len(name.encode()) <= APPLICATION_NAME_BYTES, "the server would cut the name"
        with self._statement():
            self._session.rename(name)

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Self]:
        """One transaction: committed at the end, rolled back by any exception.

        Writing: READ COMMITTED, on SQLite BEGIN IMMEDIATE. Reading: one snapshot (REPEATABLE READ READ
        ONLY, a deferred BEGIN). A TargetUnreachable out of the COMMIT leaves open whether it
        happened: ask the ledger.
        """
        assert not self._in_transaction, "transactions do not nest"
        with self._statement():
            self._session.begin(read_only=read_only)
        self._in_transaction, committed = True, False
        try:
            yield self
            with self._statement():
                self._session.commit()
            committed = True
        finally:
            if not committed:
                self._roll_back()
            self._in_transaction = False
            self._session.answer_within(silent_max_s(self.limits.statement_timeout_ms))

    def back_to(self, savepoint: str) -> None:
        """Undo a statement that failed, and what else was done since a savepoint; the transaction goes on."""
        try:
            self._session.back_to(savepoint)
        except driver_errors() as exc:
            raise self._classified(exc) from exc

    def allow(self, statement_timeout_ms: int, *, silent_ms: int | None = None) -> None:
        """PostgreSQL: let statements take so long, to the end of the transaction.

        Args:
            silent_ms: within which the server says something all the same; None: at their end.
        """
        assert self._in_transaction, "the setting would not last"
        limit = {"limit": f"{statement_timeout_ms}ms"}
        self.execute("select set_config('statement_timeout', :limit, true)", limit)
        longest_ms = silent_ms or max(statement_timeout_ms, self.limits.statement_timeout_ms)
        self._session.answer_within(silent_max_s(longest_ms))

    def cancel(self) -> bool:
        """End what runs and refuse what follows, from any thread; whether the running statement has ended."""
        with self._cancelling:
            with self._state:
                self._cancelled = True
            give_up = time.monotonic() + CANCEL_TIMEOUT_S
            while time.monotonic() < give_up:
                with self._state:
                    if not self._running or self._session.closed:
                        return True
                # Again each time round: a request that arrives before its statement does is lost.
                self._session.interrupt()
                with self._state:
                    if self._state.wait_for(lambda: not self._running, timeout=CANCEL_WAIT_S):
                        return True
            return False

    def reset_cancel(self) -> None:
        """Allow statements again; waits for a `cancel()` under way, whose request would hit the next one."""
        assert not self._in_transaction, "the cancelled transaction must end first"
        with self._cancelling, self._state:
            self._cancelled = False

    def close(self) -> None:
        with self._cancelling:
            self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _statement(self) -> Iterator[None]:
        with self._state:
            assert not self._running, "one statement at a time"
            if self._cancelled:
                raise TargetCancelled("cancelled before the statement began")
            if self._session.closed:
                raise TargetUnreachable("the connection is closed")
            if self._in_transaction and not self._session.in_transaction:
                # SQLite ends it by itself after some errors, MySQL too; going on would be autocommit.
                raise TargetError("the transaction has already been rolled back")
            self._running = True
        try:
            yield
        except driver_errors() as exc:
            raise self._classified(exc) from exc
        finally:
            with self._state:
                self._running = False
                self._state.notify_all()

    def _classified(self, exc: BaseException) -> TargetError:
        found = classify(exc, cancelled=self._cancelled, secret=self.target.password)
        if self._session.closed and not found.transient:
            return TargetUnreachable(found.detail, sqlstate=found.sqlstate)
        return found

    def _roll_back(self) -> None:
        failures: tuple[type[Exception], ...] = (TargetError, *driver_errors())
        try:
            self._session.rollback()
        except failures:
            # The server rolls back what a closed connection left; the first error is the one to report.
            self._session.close()


def identity(conn: Connection) -> str:
    """Name the database behind a connection, so that two URLs of one database collide.

    `postgresql:<cluster>:<database oid>:<schema>`, where the cluster is its system identifier (the instant
    of its start where that may not be read), `mysql:<server>:<database>`, or `sqlite:<device>:<inode>`.
    What a client calls the server proves nothing: it has many names.
    """
    if conn.dialect.name == "mysql":
        return _mysql_identity(conn)
    if conn.dialect.name == "sqlite":
        found = os.stat(os.path.realpath(sqlite_path(conn.target)))
        return f"sqlite:{found.st_dev}:{found.st_ino}"
    cluster = _system_identifier(conn)
    if cluster is None:  # other from its next start on: a claim is then taken under the new one
        [(cluster,)] = conn.execute(
            f"select '{STARTED}' || (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint"
        )
    [(oid,)] = conn.execute("select oid from pg_catalog.pg_database where datname = current_database()")
    return f"postgresql:{cluster}:{oid}:{conn.target.schema or 'public'}"


def _mysql_identity(conn: Connection) -> str:
    """MySQL has a uuid, MariaDB since 10.6.19 an id of its own; before, what a server is found by."""
    rows = conn.execute(
        "show global variables where variable_name in"
        " ('server_uuid', 'server_uid', 'hostname', 'port', 'datadir', 'lower_case_table_names')"
    )
    known = {name.lower(): value for name, value in rows}
    place = f"{known.get('hostname')}:{known.get('port')}:{known.get('datadir')}"
    server = known.get("server_uuid") or known.get("server_uid") or place
    [(database,)] = conn.execute("select database()")
    if known.get("lower_case_table_names", "0") != "0":
        database = database.lower()
    return f"mysql:{server}:{database}"


def _system_identifier(conn: Connection) -> str | None:
    allowed = conn.execute("select has_function_privilege('pg_catalog.pg_control_system()', 'execute')")
    if not allowed[0][0]:
        return None
    [(found,)] = conn.execute("select system_identifier::text from pg_catalog.pg_control_system()")
    return str(found)


def target_now(conn: Connection) -> datetime:
    """The target's own clock, aware, in UTC."""
    if conn.dialect.name == "postgresql":
        [(now,)] = conn.execute("select clock_timestamp()")
        assert isinstance(now, datetime)
        return now.astimezone(UTC)
    if conn.dialect.name == "mysql":
        [(now,)] = conn.execute("select utc_timestamp(6)")
        assert isinstance(now, datetime)
        return now.replace(tzinfo=UTC)
    [(text,)] = conn.execute("select strftime('%Y-%m-%d %H:%M:%f', 'now')")
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
