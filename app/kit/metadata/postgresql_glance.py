"""Reads of a few rows from a PostgreSQL server by the event loop itself, without a thread.

Rules:
- each statement is a snapshot of its own, on a connection that can write nothing;
- a connection does one statement at a time; after anything but an answer it is given up;
- nobody waits longer than PATIENCE_S for all of it: then, and for REST_S, there is no answer here. Whoever
  asks does so in a thread then, where a server that is away has its words and its time limits;
- connections belong to the event loop that made them.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import URL

from app.kit.metadata.engines import Prepared, Rows, Statement

CONNECTIONS_MAX: Final = 4
PATIENCE_S: Final = 1.0
REST_S: Final = 5.0
READ_ONLY: Final = " -c default_transaction_read_only=on"


class PostgresqlGlance:
    """The connections of a process for such reads.

    Args:
        words: of a connection, as `postgresql_words` has them.
    """

    def __init__(self, url: URL, words: Mapping[str, Any], dialect: sa.Dialect) -> None:
        _, named = dialect.create_connect_args(url)
        self._words = {**named, **words, "options": f"{words['options']}{READ_ONLY}"}
        self._dialect = dialect
        self._prepared: dict[Statement, Prepared] = {}
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = WeakKeyDictionary()
        self._rests_until_s = 0.0

    async def rows(self, statement: Statement, parameters: Mapping[str, str]) -> Rows | None:
        """All rows of a statement; None: it has to be asked elsewhere.

        Args:
            statement: one that is kept, such as a constant of a module: it is made into text once.
        """
        if time.monotonic() < self._rests_until_s:
            return None
        prepared = self._prepared.get(statement)
        if prepared is None:
            prepared = self._prepared[statement] = Prepared(statement, self._dialect)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._here().rows(prepared, parameters)
        except (psycopg.Error, OSError, TimeoutError):
            self._rests_until_s = time.monotonic() + REST_S
            return None

    def _here(self) -> "_Connections":
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            found = self._loops[loop] = _Connections(self._words)
        return found

    def close(self) -> None:
        """Close every connection; no loop may be asking any more."""
        for each in list(self._loops.values()):
            each.close()
        self._loops.clear()


class _Connections:
    """Those of one event loop."""

    def __init__(self, words: Mapping[str, Any]) -> None:
        self._words = words
        self._room = asyncio.Semaphore(CONNECTIONS_MAX)
        self._idle: list[psycopg.AsyncConnection[Any]] = []

    async def rows(self, prepared: Prepared, parameters: Mapping[str, str]) -> Rows:
        """The rows of one statement."""
        async with self._room:
            connection = self._idle.pop() if self._idle else await self._connect()
            is_answered = False
            try:
                cursor = await connection.execute(prepared.text, parameters)
                found = await cursor.fetchall()
                is_answered = True
            finally:
                if is_answered:
                    self._idle.append(connection)
                else:
                    _end(connection)
        return prepared.read(found, lambda: cursor.description or ())

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(**self._words, autocommit=True)

    def __del__(self) -> None:
        self.close()  # their loop has gone

    def close(self) -> None:
        """Close all that nobody asks by now."""
        while self._idle:
            _end(self._idle.pop())


def _end(connection: psycopg.AsyncConnection[Any]) -> None:
    """Close it here and now: the coroutine that closes has nothing to wait for, but would need its loop."""
    connection.pgconn.finish()
