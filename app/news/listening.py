"""Hearing of what other processes write to a PostgreSQL database, by LISTEN."""

import threading
from collections.abc import Callable
from typing import Final

import sqlalchemy as sa
import structlog
from psycopg import Connection, Error

CHANNEL: Final = "lethe_news"
LISTEN_S: Final = 5.0
"""How long a stop is noticed at the latest, and how soon a lost connection is made anew."""
PACE_S: Final = 0.2
logger = structlog.get_logger("lethe.news")


class Ear:
    """A thread that listens; without a connection it says that there may be news every few seconds.

    Args:
        heard: called for each time that somebody has written.
    """

    def __init__(self, engine: sa.Engine, heard: Callable[[], None]) -> None:
        self._engine = engine
        self._heard = heard
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lethe-ear", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Stop soon; it holds nothing that anybody waits for."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except (Error, sa.exc.SQLAlchemyError) as error:
                logger.info("listening was cut off", error=type(error).__name__)
                self._heard()
            self._stopped.wait(LISTEN_S)

    def _listen(self) -> None:
        """Hear until the connection ends, or a stop."""
        pooled = self._engine.raw_connection()
        connection = pooled.driver_connection
        assert isinstance(connection, Connection), "the metadata's driver is psycopg"
        pooled.detach()  # it is kept: the pool must not count it
        with connection:
            connection.rollback()
            connection.autocommit = True
            connection.execute(f"listen {CHANNEL}")
            self._heard()  # whatever was written before
            while not self._stopped.is_set():
                if list(connection.notifies(timeout=LISTEN_S, stop_after=1)):
                    self._heard()
                    self._stopped.wait(PACE_S)  # who writes often is heard together
                    if list(connection.notifies(timeout=0)):
                        self._heard()
