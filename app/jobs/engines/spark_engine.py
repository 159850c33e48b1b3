"""The Spark engine: units of jobs go through the exchange; trouble of the pool becomes a job's signal.

Rules:
- a job waits for the pool where everybody sees it (waiting_on SPARK_POOL), and stays stoppable meanwhile;
- what ends a lease for the pool's sake makes the job WAITING, never FAILED; a mistake in a program makes it
  FAILED, and units that are lost again and again count as transient failures.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypeVar

from app.clock import Clock
from app.jobs.engines.engine import ANYBODY, Borrower, EngineLease
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from spark.exchange.errors import TaskBroken, UnitsLost
from spark.exchange.lease import ExchangeLease, LeaseTerms
from spark.pool.errors import LeaseRefused, PoolQueueFull
from spark.pool.snapshot import PoolSnapshot
from spark.targets.work import AnyWork, Outcome

if TYPE_CHECKING:  # it needs the extra `spark`
    from spark.exchange.dispatch import Exchange

Unit = TypeVar("Unit")
Result = TypeVar("Result")
SPARK_POOL = "SPARK_POOL"
QUEUE_RETRY_S = 5
NOTE_EVERY_S = 5.0
"""How often a job that runs keeps what it has taken of Spark."""
WAIT_LEAST_S = 2.0
WAIT_MOST_S = 60.0
FAILED_REST_S = 300.0
"""A pool that was given up is tried again by the next job that needs it, not sooner."""
NO_EXECUTORS = "NO_EXECUTORS"
"""The pool is up, and its cluster gives it nobody to work: all are busy, or dead."""
REF_MAX_CHARS = 200
NOT_YET = ("STOPPED", "STARTING", "REBUILDING")


class PoolView(Protocol):
    """What the engine needs of the pool itself."""

    def start(self) -> None:
        """Start in the background; nothing where it runs."""
        ...

    def snapshot(self) -> PoolSnapshot:
        """How it looks now."""
        ...


class SparkEngine:
    """Lends tasks of the pooled session.

    Args:
        queue_max: jobs that may wait for Spark before others are told to come later.
    """

    name: Literal["INLINE", "SPARK"] = "SPARK"

    def __init__(self, pool: PoolView, exchange: "Exchange", clock: Clock, *, queue_max: int) -> None:
        self.pool = pool
        self.exchange = exchange
        self._clock = clock
        self._queue_max = queue_max
        self._fallen_back = itertools.count(1)
        self.fallbacks = 0

    def fall_back(self) -> None:
        """Count a job that AUTO would have given to Spark, which cannot start."""
        self.fallbacks = next(self._fallen_back)

    @property
    def is_full(self) -> bool:
        """Whether the queue has reached its end."""
        return self.exchange.snapshot().leases_waiting >= self._queue_max

    def lease(
        self, work: AnyWork[Unit, Result], *, workers: int, borrower: Borrower = ANYBODY
    ) -> AbstractContextManager[EngineLease[Unit, Result]]:
        """Lend tasks; the pool is started where it does not run.

        Raises: JobWaiting: the queue is full, or the pool has been given up.
        """
        if self.is_full:
            raise self.waiting("QUEUE_FULL", after_s=QUEUE_RETRY_S)
        with self._signals():
            self.exchange.check_open()
        self.start()
        watch = _PoolWatch(self, borrower)
        terms = LeaseTerms(
            workers=workers,
            may_work=borrower.may_work,
            ahead_max=borrower.ahead_max,
            look=watch.look,
            name=borrower.name,
        )
        with self._signals():
            return SparkLease(self, watch, self.exchange.lease(work, terms), borrower.note_use)

    def start(self) -> None:
        """Start the pool where it does not run.

        Raises: JobWaiting: it has been given up a moment ago.
        """
        found = self.pool.snapshot()
        if found.state == "FAILED" and found.since_s < FAILED_REST_S:
            raise self.refused("Spark does not come up")
        if found.state in ("STOPPED", "FAILED"):
            self.pool.start()

    def waiting(self, ref: str, *, after_s: float) -> JobWaiting:
        """The signal of a job that waits for the pool."""
        until = self.in_(after_s)
        return JobWaiting([WaitingOn(kind=SPARK_POOL, ref=ref, until=until)], not_before=until, detail=ref)

    def in_(self, seconds: float) -> datetime:
        """So much later than now."""
        return self._clock.now() + timedelta(seconds=seconds)

    def refused(self, detail: str) -> JobWaiting:
        """The signal where the pool gives no slots: the longer it does not, the later it is asked again."""
        found = self.pool.snapshot()
        after_s = min(WAIT_MOST_S, max(WAIT_LEAST_S, found.since_s))
        return self.waiting(f"{found.state}: {detail}"[:REF_MAX_CHARS], after_s=after_s)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        try:
            yield
        except PoolQueueFull as full:
            raise self.waiting("QUEUE_FULL", after_s=full.retry_after_s) from full
        except LeaseRefused as refused:
            raise self.refused(refused.detail) from refused
        except UnitsLost as lost:
            waiting_on = [WaitingOn(kind=SPARK_POOL, ref=lost.detail[:REF_MAX_CHARS])]
            raise JobWaiting(
                waiting_on, not_before=None, transient=True, code="SPARK_UNITS_LOST", detail=lost.detail
            ) from lost
        except TaskBroken as broken:
            raise JobFailed("INTERNAL", f"an unexpected error in a Spark task: {broken.detail}") from broken


class SparkLease(Generic[Unit, Result]):
    """An exchange lease that speaks to a job."""

    def __init__(
        self,
        engine: SparkEngine,
        watch: "_PoolWatch",
        lease: ExchangeLease[Unit, Result],
        note_use: Callable[[dict[str, Any]], None],
    ) -> None:
        self._engine = engine
        self._watch = watch
        self._lease = lease
        self._note_use = note_use
        self._noted_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        # A job that stops or fails has what was noted while it ran.
        if error is None and (use := self._lease.use())["tasks"]:
            self._note_use(use)

    def map(self, units: Iterator[Unit]) -> Iterator[Outcome[Unit, Result]]:
        """Run units as they are drawn.

        Raises: JobWaiting: the pool gives no slots, or loses a unit. JobFailed: a mistake in a program.
        """
        with self._engine._signals():
            for outcome in self._lease.map(units):
                self._watch.clear()
                yield outcome
                self._note_now_and_then()

    def _note_now_and_then(self) -> None:
        now = time.monotonic()
        if now - self._noted_at >= NOTE_EVERY_S:
            self._noted_at = now
            self._note_use(self._lease.use())

    def cancel(self) -> None:
        """End what runs, refuse what follows."""
        self._lease.cancel()

    def close(self) -> None:
        """Leave the exchange."""
        self._lease.close()


class _PoolWatch:
    """Tells a job's clients when the pool holds it up."""

    def __init__(self, engine: SparkEngine, borrower: Borrower) -> None:
        self._engine = engine
        self._borrower = borrower
        self._shown: str | None = None

    def look(self) -> None:
        """Look at the pool while nothing ends.

        Raises: JobWaiting: it has given up.
        """
        found = self._engine.pool.snapshot()
        if found.state == "FAILED":
            raise self._engine.refused("Spark does not come up")
        if found.state == "READY" and found.executors == 0:
            self._show(_no_executors(found), left_s=None if found.alone is None else found.alone.left_s)
        else:
            self._show(found.state if found.state in NOT_YET else None)

    def clear(self) -> None:
        """Something has ended: nothing holds it up."""
        self._show(None)

    def _show(self, state: str | None, *, left_s: float | None = None) -> None:
        if state != self._shown:
            self._shown = state
            until = None if left_s is None else self._engine.in_(left_s)
            waiting_on = [WaitingOn(kind=SPARK_POOL, ref=state, until=until)] if state else []
            self._borrower.show_waiting(waiting_on)


def _no_executors(found: PoolSnapshot) -> str:
    why = None if found.alone is None else found.alone.why
    return NO_EXECUTORS if why is None else f"{NO_EXECUTORS}: {why}"[:REF_MAX_CHARS]
