"""Hearing of what other processes write to a PostgreSQL database, by LISTEN.

Rules:
- a connection proves every PROOF_S that somebody still answers at its other end: a wire that was cut in
  silence is as still as one on which there is no news;
- whatever does not answer within ANSWER_S is shut, and made anew;
- a time without a connection counts as news.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

import sqlalchemy as sa
import structlog

from spark.targets.dialects.drivers import psycopg

CHANNEL: Final = "lethe_news"
LISTEN_S: Final = 5.0
"""How long a stop is noticed at the latest, and how soon a lost connection is made anew."""
PACE_S: Final = 0.2
PROOF_S: Final = 30.0
ANSWER_S: Final = 10.0
PROOF: Final = "select 1"
logger = structlog.get_logger("lethe.news")


class Hearing(Protocol):
    """Whether news are heard."""

    def silence_s(self) -> float:
        """Seconds since the database last proved that it is heard."""
        ...

    @property
    def reconnects(self) -> int:
        """How often a lost connection was made anew."""
        ...


class Ear:
    """A thread that listens; without a connection it says that there may be news every few seconds.

    Args:
        heard: called for each time that somebody has written.
        monotonic: seconds.
        proof_s: how often the connection proves that it lives.
        answer_s: how long it may take for that.
    """

    def __init__(
        self,
        engine: sa.Engine,
        heard: Callable[[], None],
        *,
        monotonic: Callable[[], float],
        proof_s: float = PROOF_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        # Of its own: a connection that lay in the pool while the wire was cut would be taken for a new one.
        self._pool = engine.pool.recreate()
        self._heard = heard
        self._monotonic = monotonic
        self._proof_s = proof_s
        self._answer_s = answer_s
        self._stopped = threading.Event()
        self._alive_at_s = monotonic()
        self._made = 0
        self._thread = threading.Thread(target=self._run, name="lethe-ear", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Stop soon; it holds nothing that anybody waits for."""
        self._stopped.set()

    def silence_s(self) -> float:
        """Seconds since the database last proved that it is heard; it grows when this thread has died too."""
        return max(0.0, self._monotonic() - self._alive_at_s)

    @property
    def reconnects(self) -> int:
        """How often a lost connection was made anew."""
        return max(0, self._made - 1)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except (psycopg.Error, sa.exc.SQLAlchemyError, OSError) as error:
                logger.info("listening was cut off", error=type(error).__name__)
                self._heard()
            self._stopped.wait(LISTEN_S)

    def _listen(self) -> None:
        """Hear until the connection ends or does not answer, or a stop."""
        pooled = self._pool.connect()
        connection = pooled.driver_connection
        assert isinstance(connection, psycopg.Connection), "the metadata's driver is psycopg"
        pooled.detach()  # it is kept: the pool must not count it
        with _ended(connection):
            with shut_after(connection, self._answer_s):
                connection.rollback()
                connection.autocommit = True
                connection.execute(f"listen {CHANNEL}")
            self._made += 1
            self._lives()
            self._heard()  # whatever was written before
            while not self._stopped.is_set():
                if list(connection.notifies(timeout=min(LISTEN_S, self._proof_s), stop_after=1)):
                    self._lives()
                    self._heard()
                    self._stopped.wait(PACE_S)  # who writes often is heard together
                    if list(connection.notifies(timeout=0)):
                        self._heard()
                if self.silence_s() >= self._proof_s:
                    with shut_after(connection, self._answer_s):
                        connection.execute(PROOF)
                    self._lives()

    def _lives(self) -> None:
        self._alive_at_s = self._monotonic()


@contextmanager
def _ended(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Close it at the end; what cannot be closed in peace is gone anyway."""
    try:
        yield
    finally:
        with suppress(psycopg.Error, OSError):
            connection.close()


@contextmanager
def shut_after(connection: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
    """End whatever waits for the server after so many seconds, by shutting the socket under it."""

    def shut() -> None:
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    with socket.socket(fileno=os.dup(connection.fileno())) as other:
        timer = threading.Timer(seconds, shut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
