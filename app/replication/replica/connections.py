"""Open connections to replicas, kept for a moment between two uses.

Invariants:
- a connection is used by one caller at a time, and given back only between two transactions;
- one to a SQLite file that was moved away or replaced meanwhile is not used again;
- one that nobody wants is closed: SQLite's soon, so that a file at rest is one file without a log beside it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from app.kit.metadata.fifo_lock import FifoLock
from spark.targets.connection import Connection, Target, sqlite_path
from spark.targets.errors import TargetError, TargetLockTimeout

IDLE_MAX_S: Final = {"sqlite": 0.2, "postgresql": 30.0}
IDLE_KEPT_MAX: Final = 8
WRITER_TURN_MAX_S: Final = 20.0
_FILE: Final = "file of a writer's turn"
"""Key of `Connection.noted`."""

Place = tuple[int, int] | None
"""Device and inode of a SQLite file."""


@dataclass(slots=True)
class _Resting:
    conn: Connection
    place: Place
    since_s: float


class ConnectionPool:
    """Connections by target and purpose."""

    def __init__(self, *, idle_max_s: dict[str, float] | None = None) -> None:
        self._idle_max_s = idle_max_s or IDLE_MAX_S
        self._guard = threading.Condition()
        self._resting: dict[tuple[Target, str], list[_Resting]] = {}
        self._reaper: threading.Thread | None = None

    @contextmanager
    def lend(self, target: Target, purpose: str, open_new: Callable[[], Connection]) -> Iterator[Connection]:
        """A connection for the block; a new one is opened by `open_new`.

        Whatever the block raises of a target, its connection is not used again.
        """
        place = place_of(target)
        conn = self._take(target, purpose, place) or open_new()
        try:
            yield conn
        except TargetError:
            conn.close()
            raise
        finally:
            self._give_back(target, purpose, conn, place)

    def close_idle(self) -> None:
        """Close what rests now."""
        with self._guard:
            resting = [one for found in self._resting.values() for one in found]
            self._resting.clear()
            self._guard.notify_all()
        for one in resting:
            one.conn.close()

    def _take(self, target: Target, purpose: str, place: Place) -> Connection | None:
        while True:
            with self._guard:
                found = self._resting.get((target, purpose))
                if not found:
                    return None
                one = found.pop()
                assert not one.conn.in_transaction, "given back in the middle of a transaction"
            if one.place == place and _is_alive(one):
                return one.conn
            one.conn.close()

    def _give_back(self, target: Target, purpose: str, conn: Connection, place: Place) -> None:
        is_clean = not (conn.closed or conn.in_transaction or conn.cancelled)
        with self._guard:
            found = self._resting.setdefault((target, purpose), [])
            if is_clean and len(found) < IDLE_KEPT_MAX:
                found.append(_Resting(conn, place, time.monotonic()))
                self._wake_reaper()
                return
        conn.close()

    def _wake_reaper(self) -> None:
        if self._reaper is None:
            self._reaper = threading.Thread(target=self._reap, name="lethe-replicas-idle", daemon=True)
            self._reaper.start()
        self._guard.notify_all()

    def _reap(self) -> None:
        while True:
            with self._guard:
                over, next_s = self._over(time.monotonic())
                if not over:
                    if not self._resting:
                        self._reaper = None
                        return
                    self._guard.wait(next_s)
            for one in over:
                one.conn.close()

    def _over(self, now_s: float) -> tuple[list[_Resting], float]:
        """Take out what has rested for too long; seconds until the next one has."""
        over: list[_Resting] = []
        next_s = max(self._idle_max_s.values())
        for key, found in list(self._resting.items()):
            limit_s = self._idle_max_s[key[0].dialect]
            over += [one for one in found if now_s - one.since_s >= limit_s]
            kept = [one for one in found if now_s - one.since_s < limit_s]
            if kept:
                self._resting[key] = kept
                next_s = min(next_s, *(limit_s - (now_s - one.since_s) for one in kept))
            else:
                del self._resting[key]
        return over, next_s


def place_of(target: Target) -> Place:
    """Which file a SQLite target is now; None: there is none, or it is no file."""
    if target.dialect != "sqlite":
        return None
    try:
        found = os.stat(sqlite_path(target))
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_alive(one: _Resting) -> bool:
    if one.conn.closed:
        return False
    if one.conn.dialect.name == "sqlite":
        return True
    # A server may have ended it meanwhile; whether a COMMIT that fails has happened, nobody would know.
    try:
        one.conn.execute("select 1")
    except TargetError:
        return False
    return True


class WriterTurns:
    """Whose turn it is to write to a SQLite file, in the order of arrival; others need none."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, FifoLock] = {}

    @contextmanager
    def turn(
        self, target: Target, noted: dict[str, str | None], *, wait_max_s: float = WRITER_TURN_MAX_S
    ) -> Iterator[None]:
        """Hold the turn for one transaction.

        Args:
            noted: of the connection, which stays at the file that it has opened: its path is found out once.
        Raises: TargetLockTimeout: it did not come in time.
        """
        if target.dialect != "sqlite":
            yield
            return
        file = noted.get(_FILE)
        if file is None:
            file = noted[_FILE] = os.path.realpath(sqlite_path(target))
        with self._guard:
            lock = self._locks.setdefault(file, FifoLock())
        if not lock.acquire(wait_max_s):
            raise TargetLockTimeout("other writers of this process hold the file")
        try:
            yield
        finally:
            lock.release()
