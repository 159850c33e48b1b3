"""What the rest of the floor may ask of a database without knowing which one it is."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeVar

Row = tuple[Any, ...]
Made = TypeVar("Made")
Params = Mapping[str, Any] | None


class Dialect(Protocol):
    """SQL that differs; without state."""

    @property
    def name(self) -> Literal["postgresql", "sqlite", "mysql"]: ...

    def quote(self, identifier: str) -> str:
        """An identifier that is safe to place in a statement."""

    def qualify(self, schema: str | None, table: str) -> str:
        """A quoted table name; SQLite knows no schema, to MySQL it is a database."""

    def lethe_table(self, table: str) -> str:
        """The name of one of Lethe's own tables in the target."""

    def share_lock(self, alias: str) -> str:
        """The clause that locks the selected rows of `alias` until the end of the transaction, or nothing."""


class Session(Protocol):
    """One open driver connection; methods raise the driver's own errors, which `Connection` classifies."""

    server_version: int

    @property
    def closed(self) -> bool: ...

    @property
    def in_transaction(self) -> bool: ...

    def run(self, sql: str, params: Params) -> tuple[list[Row], int]:
        """Run one statement; its rows and its row count (-1 where the driver knows none)."""

    def run_made(self, sql: str, make: Callable[[Sequence[Any]], Made]) -> list[Made]:
        """Run one statement; what is made of each row (PostgreSQL)."""

    def run_many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> int: ...

    def run_rows(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run one statement with `?` parameters for every row (SQLite)."""

    def stream(self, sql: str, params: Params) -> Generator[Row, None, None]: ...

    def stream_texts(self, sql: str, params: Params) -> Generator[Row, None, None]:
        """Like `stream`, every value as the server writes it: str, bytes or None (MySQL)."""

    def stream_lines(self, sql: str, params: Params) -> Generator[list[bytes | None], None, None]:
        """The values of a statement with one column of bytes, in blocks (MySQL)."""

    def copy_out(self, sql: str, params: Params, /) -> AbstractContextManager[Iterable[bytes]]: ...

    def copy_in(self, sql: str, lines: Iterable[bytes], /) -> int: ...

    def rename(self, application_name: str) -> None:
        """Tell the server whose session this is from now on."""

    def begin(self, *, read_only: bool) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def back_to(self, savepoint: str, /) -> None:
        """Undo what was done since a savepoint, also behind a statement that failed."""

    def interrupt(self) -> None:
        """End the running statement; called from another thread, never raises."""

    def answer_within(self, silent_max_s: float, /) -> None:
        """Give the server up, and the connection, where it says nothing for so long."""

    def close(self) -> None: ...


IsCancelled = Callable[[], bool]
