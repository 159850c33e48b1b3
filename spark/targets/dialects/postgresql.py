"""PostgreSQL 12 and later through psycopg 3.

Session settings: facts/locks.md (READ COMMITTED, lock_timeout), facts/symmetricds-purge.md 8 (custom plans),
facts/spark.md (client_connection_check_interval ends a statement whose client died).
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Literal

import psycopg
from psycopg.abc import Buffer
from psycopg.pq import TransactionStatus
from psycopg.types.datetime import DateLoader, TimestampLoader, TimestamptzLoader

from spark.targets.dialects.dialect import Made, Params, Row
from spark.targets.dialects.postgresql_connect import connected
from spark.targets.errors import TargetError, TargetSchemaUnsupported
from spark.targets.target import SessionLimits, Target

OLDEST_SERVER = 120_000
ROLLBACK_ATTEMPTS = 3
CANCEL_TIMEOUT_S = 2.0
_TOKEN = re.compile(
    r"""(?P<keep> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*"
              | --[^\n]* | /\*.*?\*/ | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | :: )
      | (?<![\w:]) : (?P<name>[A-Za-z_]\w*)
      | (?P<percent>%)""",
    re.VERBOSE | re.DOTALL,
)


class PostgresqlDialect:
    """The SQL of PostgreSQL."""

    name: Literal["postgresql"] = "postgresql"

    def quote(self, identifier: str) -> str:
        assert identifier, "an identifier has a length"
        assert "\0" not in identifier, "no identifier contains NUL"
        return '"' + identifier.replace('"', '""') + '"'

    def qualify(self, schema: str | None, table: str) -> str:
        return f"{self.quote(schema or 'public')}.{self.quote(table)}"

    def lethe_table(self, table: str) -> str:
        return f"lethe.{self.quote(table)}"

    def share_lock(self, alias: str) -> str:
        return f" for share of {alias}"


class PostgresqlSession:
    """One psycopg connection in autocommit; transactions are begun and ended by statements of our own."""

    def __init__(
        self, target: Target, *, application_name: str, limits: SessionLimits, read_only: bool
    ) -> None:
        self._raw = connected(target, application_name, limits=limits)
        with ExitStack() as undo:
            undo.callback(self._raw.close)
            self.server_version = self._raw.info.server_version
            if self.server_version < OLDEST_SERVER:
                raise TargetSchemaUnsupported(
                    f"PostgreSQL {self.server_version // 10_000} is older than {OLDEST_SERVER // 10_000}"
                )
            _register_loaders(self._raw)
            self._configure(target, limits, read_only=read_only)
            undo.pop_all()

    @property
    def closed(self) -> bool:
        return self._raw.closed or self._raw.broken

    @property
    def in_transaction(self) -> bool:
        return self._raw.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def run(self, sql: str, params: Params) -> tuple[list[Row], int]:
        with self._raw.cursor() as cursor:
            if params:
                cursor.execute(translate(sql), params)
            else:
                cursor.execute(sql)
            return (cursor.fetchall() if cursor.description else []), cursor.rowcount

    def run_made(self, sql: str, make: Callable[[Sequence[Any]], Made]) -> list[Made]:
        """In the binary format; no row outlives what is made of it."""
        with self._raw.cursor(binary=True, row_factory=lambda _cursor: make) as cursor:
            return cursor.execute(sql).fetchall()

    def run_many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> int:
        with self._raw.cursor() as cursor:
            cursor.executemany(translate(sql), rows)
            return cursor.rowcount

    def run_rows(self, _sql: str, _rows: Iterable[Sequence[Any]]) -> int:
        raise TargetSchemaUnsupported("PostgreSQL's rows go in by COPY")

    def stream(self, sql: str, params: Params) -> Generator[Row, None, None]:
        with self._raw.cursor() as cursor:
            yield from cursor.stream(translate(sql), params or {})

    def stream_texts(self, _sql: str, _params: Params) -> Generator[Row, None, None]:
        raise TargetSchemaUnsupported("PostgreSQL's texts come out by COPY")

    def stream_lines(self, _sql: str, _params: Params) -> Generator[list[bytes | None], None, None]:
        raise TargetSchemaUnsupported("PostgreSQL's texts come out by COPY")

    def rename(self, application_name: str) -> None:
        self.run("select set_config('application_name', :name, false)", {"name": application_name})

    @contextmanager
    def copy_out(self, sql: str, params: Params) -> Iterator[Iterable[bytes]]:
        """One item per row: the server sends each row as a message of its own."""
        # COPY takes no server-side parameters: psycopg quotes these on the client.
        text = translate(sql) if params else sql
        with self._raw.cursor() as cursor, cursor.copy(text, params or None) as copy:
            yield (bytes(message) for message in copy)

    def copy_in(self, sql: str, lines: Iterable[bytes]) -> int:
        with self._raw.cursor() as cursor:
            with cursor.copy(sql) as copy:
                for line in lines:
                    copy.write(line)
            return cursor.rowcount

    def begin(self, *, read_only: bool) -> None:
        self._raw.execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
            if read_only
            else "BEGIN ISOLATION LEVEL READ COMMITTED"
        )

    def commit(self) -> None:
        status = self._raw.execute("COMMIT").statusmessage
        if status != "COMMIT":
            # The server answers ROLLBACK, without an error, when a statement before had failed.
            raise TargetError(f"the transaction had failed: COMMIT ended in {status}")

    def back_to(self, savepoint: str) -> None:
        self._raw.execute(f"rollback to savepoint {savepoint}")

    def rollback(self) -> None:
        for _ in range(ROLLBACK_ATTEMPTS):
            if self.closed or not self.in_transaction:
                return
            # A cancel request that arrives late may hit the ROLLBACK itself.
            with suppress(psycopg.errors.QueryCanceled):
                self._raw.execute("ROLLBACK")
        if self.in_transaction:
            raise TargetError("ROLLBACK was interrupted")

    def interrupt(self) -> None:
        with suppress(psycopg.Error):
            self._raw.cancel_safe(timeout=CANCEL_TIMEOUT_S)

    def answer_within(self, silent_max_s: float) -> None:
        self._raw.silent_max_s = silent_max_s

    def close(self) -> None:
        self._raw.close()

    def _configure(self, target: Target, limits: SessionLimits, *, read_only: bool) -> None:
        settings: dict[str, str] = {
            "lock_timeout": f"{limits.lock_timeout_ms}ms",
            "statement_timeout": f"{limits.statement_timeout_ms}ms",
            "idle_in_transaction_session_timeout": f"{limits.idle_in_transaction_timeout_ms}ms",
            "plan_cache_mode": "force_custom_plan",
            # Where a table was never analysed the estimates are high, and the server compiles statements
            # that end in a millisecond without.
            "jit": "off",
            "default_transaction_isolation": "read committed",
            "TimeZone": "UTC",
            "DateStyle": "ISO, YMD",
            "IntervalStyle": "postgres",
            "bytea_output": "hex",
            "extra_float_digits": "1",
            # Else a NULL in an array comes back as the text NULL.
            "array_nulls": "on",
            "xmloption": "content",
            # A policy would silently hide rows; off makes the server refuse instead.
            "row_security": "off",
            "search_path": PostgresqlDialect().quote(target.schema or "public"),
        }
        if read_only:
            settings["default_transaction_read_only"] = "on"
        if self.server_version >= 140_000:
            # Between two units a throttle may leave a session idle for long; it ends with its job.
            settings["idle_session_timeout"] = "0"
        calls = ", ".join(["set_config(%s, %s, false)"] * len(settings))
        self._raw.execute(f"select {calls}", [part for item in settings.items() for part in item])
        if self.server_version >= 140_000:
            # Refused on servers whose platform cannot watch a socket; the statement timeout has to do there.
            with suppress(psycopg.errors.InvalidParameterValue):
                self._raw.execute(
                    "select set_config('client_connection_check_interval', %s, false)",
                    (f"{limits.client_connection_check_interval_ms}ms",),
                )
        # A commit that was acknowledged must be one; stronger settings of the role stay.
        self._raw.execute(
            "select set_config('synchronous_commit', 'on', false) "
            "where current_setting('synchronous_commit') = 'off'"
        )


@lru_cache(maxsize=1024)
def translate(sql: str) -> str:
    """Turn `:name` parameters into psycopg's, leaving literals, comments and `::` alone, and double `%`.

    A colon directly behind a word (`a[1:n]`) is no parameter.
    """

    def replace(found: re.Match[str]) -> str:
        if found["name"]:
            return f"%({found['name']})s"
        # psycopg reads every % as a placeholder, inside literals too.
        return found.group().replace("%", "%%")

    return _TOKEN.sub(replace, sql)


def _is_before_all(data: Buffer) -> bool:
    text = bytes(data)
    return text.startswith(b"-") or text.endswith(b"BC")


class _ClampedTimestamp(TimestampLoader):
    """`infinity` and years that Python has not: the end of Python's range on that side."""

    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            return datetime.min if _is_before_all(data) else datetime.max


class _ClampedTimestamptz(TimestamptzLoader):
    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            return (datetime.min if _is_before_all(data) else datetime.max).replace(tzinfo=UTC)


class _ClampedDate(DateLoader):
    def load(self, data: Buffer) -> date:
        try:
            return super().load(data)
        except psycopg.DataError:
            return date.min if _is_before_all(data) else date.max


def _register_loaders(raw: psycopg.Connection[Row]) -> None:
    raw.adapters.register_loader("timestamp", _ClampedTimestamp)
    raw.adapters.register_loader("timestamptz", _ClampedTimestamptz)
    raw.adapters.register_loader("date", _ClampedDate)
