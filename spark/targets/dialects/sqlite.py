"""SQLite through the standard library: one writer at a time, which BEGIN IMMEDIATE proves."""

import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any, Literal

from spark.targets.dialects.dialect import IsCancelled, Made, Params, Row
from spark.targets.errors import TargetSchemaUnsupported
from spark.targets.sqlite_opening import is_read_only, open_sqlite
from spark.targets.target import SessionLimits, Target, sqlite_path

# How many steps of its virtual machine SQLite makes between two looks at the deadline and the cancel flag.
PROGRESS_STEPS = 10_000


class SqliteDialect:
    """The SQL of SQLite."""

    name: Literal["sqlite"] = "sqlite"

    def quote(self, identifier: str) -> str:
        assert identifier, "an identifier has a length"
        assert "\0" not in identifier, "no identifier contains NUL"
        return '"' + identifier.replace('"', '""') + '"'

    def qualify(self, schema: str | None, table: str) -> str:
        assert schema is None, "a SQLite target has no schema"
        return self.quote(table)

    def lethe_table(self, table: str) -> str:
        return self.quote(f"lethe_{table}")

    def share_lock(self, alias: str) -> str:
        # BEGIN IMMEDIATE already keeps every other writer out.
        return ""


class SqliteSession:
    """One sqlite3 connection; never creates the file, never changes its journal mode."""

    def __init__(
        self, target: Target, *, limits: SessionLimits, read_only: bool, is_cancelled: IsCancelled
    ) -> None:
        path = sqlite_path(target)
        self.server_version = (
            sqlite3.sqlite_version_info[0] * 1_000_000 + sqlite3.sqlite_version_info[1] * 1_000
        )
        self.closed = False
        self._is_cancelled = is_cancelled
        self._statement_timeout_s = limits.statement_timeout_ms / 1000
        self._deadline: float | None = None
        self._raw = open_sqlite(path, roots=limits.roots, timeout_s=limits.lock_timeout_ms / 1000)
        with ExitStack() as undo:
            undo.callback(self.close)
            self._raw.set_progress_handler(self._stop_wanted, PROGRESS_STEPS)
            # SQLite opens the file at the first statement: ask now, so that connect() tells the truth.
            self._raw.execute("select count(*) from sqlite_schema").fetchall()
            self._raw.execute("pragma synchronous = full")
            if read_only or is_read_only(path):
                self._raw.execute("pragma query_only = on")
            undo.pop_all()

    @property
    def in_transaction(self) -> bool:
        return self._raw.in_transaction

    def run(self, sql: str, params: Params) -> tuple[list[Row], int]:
        cursor = self._started(sql, params)
        try:
            # The count is complete only after the last row was fetched.
            return cursor.fetchall(), cursor.rowcount
        finally:
            self._ended(cursor)

    def run_made(self, _sql: str, _make: Callable[[Sequence[Any]], Made]) -> list[Made]:
        raise TargetSchemaUnsupported("SQLite's rows are read as they are")

    def run_many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> int:
        return self._each(sql, rows)

    def run_rows(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        return self._each(sql, rows)

    def _each(self, sql: str, rows: Iterable[Any]) -> int:
        self._deadline = time.monotonic() + self._statement_timeout_s
        cursor = self._raw.cursor()
        try:
            return cursor.executemany(sql, rows).rowcount
        finally:
            self._ended(cursor)

    def stream(self, sql: str, params: Params) -> Generator[Row, None, None]:
        cursor = self._started(sql, params)
        try:
            # A row is made when it is asked for: who stops early has not paid for others, nor kept them.
            yield from cursor
        finally:
            self._ended(cursor)

    def stream_texts(self, _sql: str, _params: Params) -> Generator[Row, None, None]:
        raise TargetSchemaUnsupported("SQLite's values are no texts")

    def stream_lines(self, _sql: str, _params: Params) -> Generator[list[bytes | None], None, None]:
        raise TargetSchemaUnsupported("SQLite's values are no texts")

    def rename(self, application_name: str) -> None:
        """There is nobody to tell."""

    def copy_out(self, _sql: str, _params: Params) -> AbstractContextManager[Iterable[bytes]]:
        raise TargetSchemaUnsupported("SQLite has no COPY")

    def copy_in(self, _sql: str, _lines: Iterable[bytes]) -> int:
        raise TargetSchemaUnsupported("SQLite has no COPY")

    def begin(self, *, read_only: bool) -> None:
        self._raw.execute("begin deferred" if read_only else "begin immediate")

    def commit(self) -> None:
        self._raw.execute("commit")

    def back_to(self, savepoint: str) -> None:
        self._raw.execute(f"rollback to savepoint {savepoint}")

    def rollback(self) -> None:
        self._deadline = None
        if not self.closed and self._raw.in_transaction:
            self._raw.execute("rollback")

    def interrupt(self) -> None:
        with suppress(sqlite3.Error):
            self._raw.interrupt()

    def answer_within(self, _silent_max_s: float) -> None:
        """Nobody else's statements run here: each ends by its own deadline."""

    def close(self) -> None:
        self.closed = True
        self._raw.close()

    def _started(self, sql: str, params: Params) -> sqlite3.Cursor:
        self._deadline = time.monotonic() + self._statement_timeout_s
        return self._raw.execute(sql, params or {})

    def _ended(self, cursor: sqlite3.Cursor) -> None:
        self._deadline = None
        # An unfinished statement would keep its locks and fail the next COMMIT.
        with suppress(sqlite3.Error):
            cursor.close()

    def _stop_wanted(self) -> bool:
        if self._deadline is None:
            return False
        return self._is_cancelled() or time.monotonic() > self._deadline
