"""The metadata database: engine, types and the one place that commits.

Invariants:
- a write transaction on SQLite begins IMMEDIATE, behind one FIFO queue of this process (facts: locks);
- nothing commits but `Database.transaction()`, and it does so before the response leaves;
- a connection is never held over an await, a thread hop or a wait.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlmodel import Session

from app.clock import Clock, SystemClock
from app.errors import MetadataBusy, MetadataUnavailable
from app.kit.metadata.columns import JSON_TYPE, DurationSeconds, UtcDateTime
from app.kit.metadata.engines import (
    READ_ONLY,
    SLOW_S,
    Glance,
    Rows,
    Statement,
    postgresql_engine,
    postgresql_words,
    sqlite_engine,
)
from app.kit.metadata.fifo_lock import FifoLock
from app.kit.metadata.writes import WROTE, watch_writes
from spark.targets.target import silent_max_s

if TYPE_CHECKING:
    from app.kit.metadata.postgresql_glance import PostgresqlGlance

WRITER_QUEUE_TIMEOUT_S = 30.0
MET_PROMPTLY_S, MET_MAX_S = 1.0, 60.0
# A server that takes no writes now: the former primary, or a standby, in the middle of a failover.
READ_ONLY_SQLSTATE = "25006"
RINGS = "lethe_rings"
"""In the info of a session: its commit rings the bell of its Database."""
NEWS = "lethe_news"
"""In the info of a session: its commit concerns somebody who waits, whatever its transaction was begun as."""
RIGHTS = "lethe_rights"
"""In the info of a session: its commit takes rights from a token."""
OPEN = "lethe_open"
"""In the info of a session: it is one of `Database.transaction()`."""
AFTER_COMMIT = "lethe_after_commit"
_NOTES = "lethe_notes"
_MARKS = "lethe_marks"


class Turn(StrEnum):
    """When something at the end of a transaction comes: one order for all who take several of their locks."""

    FIRST = "lethe_before_commit"
    FEED = "lethe_feed_before_commit"
    CHAIN = "lethe_chain_before_commit"


def notes(db: Session, name: str) -> list[Any]:
    """What the transaction of a session has noted under a name, to be appended to.

    A savepoint that is rolled back takes along what was noted since it began.
    """
    found: list[Any] = db.info.setdefault(_NOTES, {}).setdefault(name, [])
    return found


def before_commit(db: Session, act: Callable[[Session], None], *, turn: Turn = Turn.FIRST) -> None:
    """Do something as the last of the transaction of a session, unless its savepoint is rolled back."""
    notes(db, turn).append(act)


def after_commit(db: Session, act: Callable[[], None]) -> None:
    """Do something once the transaction of a session is committed; never if it, or its savepoint, is not."""
    notes(db, AFTER_COMMIT).append(act)


@event.listens_for(Session, "after_transaction_create")
def _mark_savepoint(db: Any, transaction: Any) -> None:
    if transaction.nested:
        lengths = {name: len(noted) for name, noted in db.info.get(_NOTES, {}).items()}
        db.info.setdefault(_MARKS, WeakKeyDictionary())[transaction] = lengths


@event.listens_for(Session, "after_soft_rollback")
def _drop_notes(db: Any, transaction: Any) -> None:
    lengths = db.info.get(_MARKS, {}).get(transaction)
    if lengths is not None:
        for name, noted in db.info.get(_NOTES, {}).items():
            del noted[lengths.get(name, 0) :]


class Database:
    """The metadata database of one process.

    Args:
        url: SQLAlchemy URL, `sqlite:///` or `postgresql+psycopg://`.
        clock: used where the database has no clock of its own (SQLite).
    Attributes:
        bell: set after a commit that has left something for the thread that waits for it (`RINGS`).
    """

    _met: tuple[datetime, float] | None = None
    """The time of the metadata's server when it was asked last, and ours since boot then."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        pool_size: int = 10,
        pool_timeout_s: float = 20.0,
        lock_timeout_ms: int = 5_000,
        statement_timeout_ms: int = 30_000,
    ) -> None:
        self.url = make_url(url)
        self.clock = clock or SystemClock()
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._writers = FifoLock()
        self._news = self._of_others = self._rights = 0
        self._news_guard = threading.Lock()
        self._log_seen = self._log_state()
        self.told: Callable[[], None] = lambda: None
        self._local = threading.local()
        self.bell = threading.Event()
        self._commits_since_s: float | None = None
        options: dict[str, Any] = {"pool_size": pool_size, "max_overflow": 0, "pool_timeout": pool_timeout_s}
        words = postgresql_words(
            _service(), lock_timeout_ms=lock_timeout_ms, statement_timeout_ms=statement_timeout_ms
        )
        self.engine = (
            sqlite_engine(self.url, **options)
            if self.is_sqlite
            else postgresql_engine(
                self.url, words, silent_max_s=silent_max_s(statement_timeout_ms), **options
            )
        )
        watch_writes(self.engine)
        self._reading = self.engine.execution_options(**READ_ONLY)
        self._glance = Glance(self.url) if self.is_sqlite and self.url.database else None
        self._soon = None if self.is_sqlite else _postgresql_glance(self.url, words, self.engine.dialect)

    def news(self) -> int:
        """A number that grows when anybody may have written; asking costs no statement.

        Of this process it counts transactions. What other processes write is seen in the log of SQLite, and
        heard by LISTEN on PostgreSQL (`heard`).
        """
        with self._news_guard:
            return self._count_others()

    def rights(self) -> tuple[int, int]:
        """Two numbers of which one grows when a token may have lost rights; asking never waits.

        The first is of revocations by this process, the second of anything that others have written: what the
        log of SQLite shows, but for the moment of a commit of our own, and what is heard of PostgreSQL.
        """
        if self._news_guard.acquire(blocking=False):
            try:
                self._count_others()
            finally:
                self._news_guard.release()
        return self._rights, self._of_others

    def _count_others(self) -> int:
        if self.is_sqlite and (state := self._log_state()) != self._log_seen:
            self._log_seen = state
            self._news += 1
            self._of_others += 1
        return self._news

    def heard(self) -> None:
        """Somebody has written; tells who waits for that (`told`)."""
        with self._news_guard:
            self._news += 1
            self._of_others += 1
        self.told()

    def _log_state(self) -> tuple[int, int] | None:
        """What another process changes by each commit in SQLite's log."""
        if not self.is_sqlite or not self.url.database:
            return None
        try:
            found = os.stat(f"{self.url.database}-wal")
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns

    @contextmanager
    def _counted(self, *, is_news: bool) -> Iterator[None]:
        """Count a commit. SQLite's log changes by it: nobody looks at the log meanwhile."""
        if not self.is_sqlite:
            yield
            with self._news_guard:
                self._news += is_news
            return
        with self._news_guard:
            is_others = self._log_state() != self._log_seen
            self._of_others += is_others
            yield
            self._news += is_news or is_others
            self._log_seen = self._log_state()

    @contextmanager
    def transaction(self, *, is_news: bool = True) -> Iterator[Session]:
        """Write: commits at the end of the block, rolls back on any error.

        Args:
            is_news: whether it may concern anybody who waits for something; what has only read never does.
        Raises:
            MetadataBusy: the queue of writers did not move in time.
            MetadataUnavailable: the database cannot be reached.
        """
        assert not getattr(self._local, "open", False), "a transaction inside a transaction"
        if self.is_sqlite and not self._writers.acquire(WRITER_QUEUE_TIMEOUT_S):
            raise MetadataBusy
        self._local.open = True
        try:
            with _translated(), Session(self.engine, expire_on_commit=False) as db:
                db.info[OPEN] = True
                yield db
                _prepare(db)
                with self._counted(is_news=WROTE in db.info and (is_news or NEWS in db.info)):
                    self._commits_since_s = self.clock.boottime_s()
                    db.commit()
                    self._rights += RIGHTS in db.info
                if db.info.get(RINGS):
                    self.bell.set()
                committed = notes(db, AFTER_COMMIT)
        finally:
            self._local.open = False
            if self.is_sqlite:
                self._commits_since_s = None
                self._writers.release()
        for act in committed:
            act()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Read; nothing is ever written. One snapshot on SQLite.

        On PostgreSQL each statement has a snapshot and a transaction of its own: no lock is kept (`holding`).
        """
        with _translated(), Session(self._reading, expire_on_commit=False, autoflush=False) as db:
            yield db

    @contextmanager
    def holding(self) -> Iterator[Session]:
        """Keep what its statements lock until the end of the block, and write nothing; on PostgreSQL."""
        assert not self.is_sqlite, "its one writer would wait for this block"
        with _translated(), Session(self.engine, expire_on_commit=False, autoflush=False) as db:
            yield db

    def rows(self, statement: Statement, **parameters: Any) -> Rows:
        """The rows of one statement that reads, in a snapshot of its own."""
        with self.reading() as db:
            return db.connection().execute(statement, parameters).all()

    def rows_at_once(self, statement: Statement, **parameters: Any) -> Rows | None:
        """The same without any wait, for the event loop; None: ask by `rows`, in a thread.

        While a commit takes long the disk hangs, and might hold up a read as well: none is tried.
        """
        since_s = self._commits_since_s
        if self._glance is None or (since_s is not None and self.clock.boottime_s() - since_s > SLOW_S):
            return None
        return self._glance.rows(statement, parameters)

    async def rows_soon(self, statement: Statement, **parameters: str) -> Rows | None:
        """The rows of one kept statement by the event loop itself; None: ask by `rows`, in a thread."""
        if self._soon is not None:
            return await self._soon.rows(statement, parameters)
        return self.rows_at_once(statement, **parameters)

    def now(self, db: Session) -> datetime:
        """The metadata database's own clock: leases are judged by it alone."""
        if self.is_sqlite:
            return self.clock.now()
        db.connection()  # before: the wait for one is no part of the question
        began_s = self.clock.boottime_s()
        value: datetime = db.execute(sa.text("select clock_timestamp()")).scalar_one()
        return self._meet(value.astimezone(UTC), began_s)

    def _meet(self, now: datetime, began_s: float) -> datetime:
        """Keep a time of the server: one that came at once, or any where there is none but an old one."""
        met_s = self._met[1] if self._met is not None else None
        is_prompt = self.clock.boottime_s() - began_s < MET_PROMPTLY_S
        if met_s is None or began_s - met_s > MET_MAX_S or (is_prompt and began_s >= met_s):
            self._met = (now, began_s)
        return now

    def about_now(self) -> datetime:
        """The same, counted on from the last time that anybody here asked: it costs no statement then.

        Leases make that seconds ago. It may be ahead by the time that the question took: a second as a rule.

        Raises: MetadataUnavailable, MetadataBusy: nobody has asked yet.
        """
        if self.is_sqlite:
            return self.clock.now()
        met = self._met
        if met is None:
            with self.reading() as db:
                return self.now(db)
        now, at_s = met
        return now + timedelta(seconds=self.clock.boottime_s() - at_s)

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()
        for glance in (self._glance, self._soon):
            if glance is not None:
                glance.close()


class MetadataClock:
    """A clock of the process whose wall is that of the metadata: what one instance writes, others judge.

    Args:
        clock: of the machine, for what passes here.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def now(self) -> datetime:
        """Wall time of the metadata, aware, UTC."""
        return self._database.about_now()

    def boottime_s(self) -> float:
        """Seconds since boot, suspension included."""
        return self._clock.boottime_s()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        self._clock.sleep(seconds)


def _prepare(db: Session) -> None:
    """All that comes before the commit; what it writes by objects is written too."""
    db.flush()
    for turn in Turn:
        for prepare in notes(db, turn):
            prepare(db)
        db.flush()


def _postgresql_glance(url: URL, words: dict[str, Any], dialect: sa.Dialect) -> "PostgresqlGlance":
    from app.kit.metadata.postgresql_glance import PostgresqlGlance

    return PostgresqlGlance(url, words, dialect)


def _service() -> dict[str, str]:
    """What PGSERVICE says now: connections to targets take it out of the environment."""
    named = os.environ.get("PGSERVICE")
    return {"service": named} if named else {}


@contextmanager
def _translated() -> Iterator[None]:
    """Turn a database that is away or busy into a typed error; everything else is a bug and passes."""
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise MetadataBusy from error
    except sa.exc.OperationalError as error:
        raise MetadataUnavailable(str(error.orig)) from error
    except sa.exc.DBAPIError as error:
        if error.connection_invalidated or getattr(error.orig, "sqlstate", None) == READ_ONLY_SQLSTATE:
            raise MetadataUnavailable(str(error.orig)) from error
        raise


__all__ = [
    "JSON_TYPE",
    "Database",
    "DurationSeconds",
    "MetadataClock",
    "UtcDateTime",
    "after_commit",
    "before_commit",
]
