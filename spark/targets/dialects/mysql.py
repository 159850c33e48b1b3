"""MariaDB 10.6 and MySQL 8.0, and later ones, through PyMySQL.

Session settings: facts/locks.md (READ COMMITTED, waits of a second, an explicit ROLLBACK after error 1205).
Times: the session's zone is UTC, so that TIMESTAMP columns are instants in UTC; DATETIME columns are naive.
Invariants:
- After any error in a transaction nothing but its ROLLBACK runs, as on PostgreSQL.
- A session has its names (`mysql_names`) before it can do anything else.
"""

import math
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

import pymysql
from pymysql.constants import SERVER_STATUS
from pymysql.cursors import Cursor, SSCursor

from spark.targets.dialects.dialect import Made, Params, Row
from spark.targets.dialects.mysql_connect import connected, parse_version
from spark.targets.dialects.mysql_names import SessionNames
from spark.targets.dialects.mysql_rows import read_lines
from spark.targets.errors import (
    LOST_MYSQL_CODES,
    TargetError,
    TargetSchemaUnsupported,
    TargetStatementTimeout,
)
from spark.targets.target import SessionLimits, Target, silent_max_s

ROLLBACK_ATTEMPTS = 3
STREAM_ROWS = 500
# A throttle may leave a session idle for long between two units; it ends with its job.
IDLE_SESSION_S = 7 * 24 * 3600
KILL_TIMEOUT_S = 2
# 0 in an AUTO_INCREMENT column and dates that are none must come back from an archive as they were.
SQL_MODE = (
    "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,"
    "ALLOW_INVALID_DATES"
)
# As a semi-join or materialised the planner reads whole tables for a unit of a few thousand rows
# (facts/locks.md); looked up by key each subquery costs what the unit's own rows cost.
OPTIMIZER = {
    "mariadb": "semijoin=off,materialization=off,exists_to_in=off",
    "mysql": "semijoin=off,materialization=off",
}
_TOKEN = re.compile(
    r"""(?P<keep> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*` | --\ [^\n]* | /\*.*?\*/ )
      | (?<![\w:]) : (?P<name>[A-Za-z_]\w*)
      | (?P<percent>%)""",
    re.VERBOSE | re.DOTALL,
)


class MysqlDialect:
    """The SQL of MariaDB and MySQL, as far as they agree."""

    name: Literal["mysql"] = "mysql"

    def quote(self, identifier: str) -> str:
        assert identifier, "an identifier has a length"
        assert "\0" not in identifier, "no identifier contains NUL"
        return "`" + identifier.replace("`", "``") + "`"

    def qualify(self, schema: str | None, table: str) -> str:
        return f"{self.quote(schema)}.{self.quote(table)}" if schema else self.quote(table)

    def lethe_table(self, table: str) -> str:
        return self.quote(f"lethe_{table}")

    def share_lock(self, alias: str) -> str:
        return " lock in share mode"


class MysqlSession:
    """One PyMySQL connection in autocommit; transactions are begun and ended by statements of our own."""

    def __init__(
        self, target: Target, *, application_name: str, limits: SessionLimits, read_only: bool
    ) -> None:
        self._target = target
        self._limits = limits
        self._begun = self._writing = self._failed = False
        self._raw: Any = connected(target, application_name, connect_timeout_s=limits.connect_timeout_s)
        with ExitStack() as undo:
            undo.callback(self.close)
            self.product, self.server_version = parse_version(str(self._ask("select version()", {})[0]))
            # The handshake had the time of a connect; from now on it is the time of a statement.
            self.answer_within(silent_max_s(limits.statement_timeout_ms))
            self._configure(limits, read_only=read_only)
            self.connection_id = int(self._ask("select connection_id()", {})[0])
            self._names = SessionNames(self._ask)
            self._names.take(application_name)
            undo.pop_all()

    @property
    def closed(self) -> bool:
        return not self._raw.open

    @property
    def in_transaction(self) -> bool:
        in_transaction = self._raw.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        return self._begun and not self._failed and bool(in_transaction)

    def run(self, sql: str, params: Params) -> tuple[list[Row], int]:
        with self._driver(), self._raw.cursor() as cursor:
            _execute(cursor, sql, params)
            return (list(cursor.fetchall()) if cursor.description else []), cursor.rowcount

    def run_made(self, _sql: str, _make: Callable[[Sequence[Any]], Made]) -> list[Made]:
        raise TargetSchemaUnsupported("MySQL's rows are read as they are")

    def run_many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> int:
        with self._driver(), self._raw.cursor() as cursor:
            return cursor.executemany(translate(sql), [_bound(row) for row in rows]) or 0

    def run_rows(self, _sql: str, _rows: Iterable[Sequence[Any]]) -> int:
        raise TargetSchemaUnsupported("MySQL has no parameters by position")

    def stream(self, sql: str, params: Params) -> Generator[Row, None, None]:
        with self._driver(), self._unbuffered() as cursor:
            _execute(cursor, sql, params)
            while rows := cursor.fetchmany(STREAM_ROWS):
                yield from rows

    def stream_texts(self, sql: str, params: Params) -> Generator[Row, None, None]:
        with self._driver(), self._unbuffered() as cursor:
            decoders, self._raw.decoders = self._raw.decoders, {}
            try:
                _execute(cursor, sql, params)
            finally:
                self._raw.decoders = decoders
            while rows := cursor.fetchmany(STREAM_ROWS):
                yield from rows

    def stream_lines(self, sql: str, params: Params) -> Generator[list[bytes | None], None, None]:
        with self._driver(), self._unbuffered() as cursor:
            decoders, self._raw.decoders = self._raw.decoders, {}
            try:
                _execute(cursor, sql, params)
            finally:
                self._raw.decoders = decoders
            yield from read_lines(self._raw, getattr(cursor, "_result"))  # noqa: B009 -- typeshed hides it

    def copy_out(self, _sql: str, _params: Params) -> AbstractContextManager[Iterable[bytes]]:
        raise TargetSchemaUnsupported("MySQL has no COPY")

    def copy_in(self, _sql: str, _lines: Iterable[bytes]) -> int:
        raise TargetSchemaUnsupported("MySQL has no COPY")

    def rename(self, application_name: str) -> None:
        with self._driver():
            self._names.take(application_name)

    def begin(self, *, read_only: bool) -> None:
        self._failed = False
        with self._driver():
            if read_only:
                # Of the next transaction only; the session itself stays at READ COMMITTED.
                self._command("set transaction isolation level repeatable read")
                self._command("start transaction read only")
                self._begun = True
                return
            self._names.begin_work()
            self._writing = True
            if self.product == "mysql":  # which cannot tell an idle transaction from an idle session
                self._command(f"set session wait_timeout = {self._idle_s}")
            self._command("start transaction")
            self._begun = True

    def commit(self) -> None:
        if not self.in_transaction:
            raise TargetError("the transaction had failed: there is nothing to commit")
        with self._driver():
            self._command("commit")
        self._begun = False
        self._end_work()

    def back_to(self, savepoint: str) -> None:
        with self._driver():  # an error where the server has rolled all of it back
            self._command(f"rollback to savepoint {savepoint}")
        self._failed = False

    def rollback(self) -> None:
        for _ in range(ROLLBACK_ATTEMPTS):
            if self.closed or not self._begun:
                break
            # A KILL QUERY that arrives late may hit the ROLLBACK itself.
            with suppress(pymysql.Error):
                self._command("rollback")
                self._begun = self._failed = False
        if self._begun and not self.closed:
            raise TargetError("ROLLBACK was interrupted")
        self._end_work()

    def interrupt(self) -> None:
        with suppress(pymysql.Error, OSError, TargetError):
            self._kill("kill query")

    def answer_within(self, silent_max_s: float) -> None:
        self._raw._read_timeout = silent_max_s

    def close(self) -> None:
        self._begun = self._writing = False
        with suppress(pymysql.Error):
            self._raw.close()

    @property
    def _idle_s(self) -> int:
        return max(1, math.ceil(self._limits.idle_in_transaction_timeout_ms / 1000))

    def _configure(self, limits: SessionLimits, *, read_only: bool) -> None:
        # Neither server waits less than a second for a row.
        lock_wait_s = max(1, math.ceil(limits.lock_timeout_ms / 1000))
        settings: dict[str, str | int | float] = {
            "time_zone": "+00:00",
            "sql_mode": SQL_MODE,
            "innodb_lock_wait_timeout": lock_wait_s,
            "lock_wait_timeout": lock_wait_s,
            "wait_timeout": IDLE_SESSION_S,
            "net_write_timeout": self._idle_s,
            "completion_type": "NO_CHAIN",
            "sql_safe_updates": 0,
            "sql_big_selects": 1,
            "sql_auto_is_null": 0,
            "sql_select_limit": 2**64 - 1,
            "optimizer_switch": OPTIMIZER[self.product],
        }
        if self.product == "mariadb":
            settings["max_statement_time"] = limits.statement_timeout_ms / 1000
            settings["idle_transaction_timeout"] = self._idle_s
            # A long IN list would become a table, and its locks those of a join.
            settings["in_predicate_conversion_threshold"] = 0
        else:
            settings["max_execution_time"] = limits.statement_timeout_ms  # of SELECT alone
            settings["range_optimizer_max_mem_size"] = 0
        assignments = ", ".join(f"{name} = %({name})s" for name in settings)
        with self._raw.cursor() as cursor:
            cursor.execute(f"set session {assignments}", settings)
        self._command("set session transaction isolation level read committed")
        if read_only:
            self._command("set session transaction read only")

    def _ask(self, sql: str, parameters: dict[str, Any]) -> Row:
        with self._raw.cursor() as cursor:
            _execute(cursor, sql, parameters)
            [row] = cursor.fetchall()
            return tuple(row)

    def _command(self, sql: str) -> None:
        with self._raw.cursor() as cursor:
            cursor.execute(sql)

    def _end_work(self) -> None:
        """Lay the mark of the writing transaction down; where that fails, the session's end does it."""
        if not self._writing:
            return
        self._writing = False
        try:
            if not self.closed:
                if self.product == "mysql":
                    self._command(f"set session wait_timeout = {IDLE_SESSION_S}")
                self._names.end_work()
        except pymysql.Error:
            self.close()

    @contextmanager
    def _driver(self) -> Iterator[None]:
        """What an error of the driver means for the session."""
        try:
            yield
        except pymysql.Error as exc:
            self._failed = self._begun
            timed_out = self.closed and "timed out" in str(exc)
            if timed_out:
                # The server knows nothing of our patience: MySQL limits the time of SELECT alone.
                with suppress(pymysql.Error, OSError, TargetError):
                    self._kill("kill")
                raise TargetStatementTimeout("the statement took longer than its limit") from None
            if exc.args and exc.args[0] in LOST_MYSQL_CODES:
                self.close()
            raise
        except UnicodeDecodeError as exc:
            self._failed = self._begun
            raise TargetError(f"the server sent a text that is no UTF-8: {exc.reason}") from exc

    @contextmanager
    def _unbuffered(self) -> Iterator[Cursor]:
        cursor = self._raw.cursor(SSCursor)
        try:
            yield cursor
        finally:
            if self._raw.open:
                with suppress(pymysql.Error):
                    cursor.close()  # reads what is left
            elif (left := getattr(cursor, "_result", None)) is not None:
                left.unbuffered_active = False  # or its end would read from a socket that is gone

    def _kill(self, command: str) -> None:
        """Tell the server to end our statement, or us; never anybody who was given our id."""
        other = connected(self._target, "lethe:cancel", connect_timeout_s=KILL_TIMEOUT_S)
        with closing(other), other.cursor() as cursor:
            cursor.execute("select is_used_lock(%s)", (self._names.own,))
            if cursor.fetchall() == ((self.connection_id,),):
                cursor.execute(f"{command} {self.connection_id:d}")


def _execute(cursor: Cursor, sql: str, params: Params) -> None:
    if params:
        cursor.execute(translate(sql), _bound(params))
    else:
        cursor.execute(sql)


def _bound(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in params.items()}


def _value(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


@lru_cache(maxsize=512)
def translate(sql: str) -> str:
    """From `:name` to `%(name)s`, outside of literals, names and comments."""

    def replace(found: re.Match[str]) -> str:
        if found["name"]:
            return f"%({found['name']})s"
        # PyMySQL reads every % as a placeholder, inside literals too.
        return found.group().replace("%", "%%")

    return _TOKEN.sub(replace, sql)
