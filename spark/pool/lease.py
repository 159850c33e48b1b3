"""A slot lent to one job: a session on a thread of its own.

Invariants:
- a group id is used by one lease only, so a cancel never hits a later one;
- after `cancel` no job of Spark starts under the lease, and `run` raises SparkJobCancelled;
- what a lease leaves behind (local properties, tags, views, confs, variables, functions, data sources) is
  gone before the next one begins;
- a lease that is closed, or whose JVM is gone, touches neither session nor JVM any more.
"""

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from spark.pool.errors import SparkJobCancelled, SparkLost, SparkRunError
from spark.pool.outcome import classify
from spark.pool.slot import Slot
from spark.pool.snapshot import JobClass
from spark.pool.started import StartedSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

# A cancel is repeated until it has had its effect: Spark refuses the future jobs of a cancelled group, but
# not the map stages that an adaptive plan submits one by one; a cancel between two of them would be lost.
REPEAT_S: Final = 0.2

FAIR_POOLS: Final[dict[JobClass, str]] = {"INTERACTIVE": "interactive", "BULK": "bulk"}


class Lender(Protocol):
    """What a lease tells its pool."""

    def note_run(self, lease: "Lease") -> None:
        """A function has ended."""
        ...

    def note_loss(self, started: StartedSession) -> None:
        """The JVM does not answer."""
        ...

    def take_back(self, lease: "Lease") -> None:
        """The slot is free."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """What a lease was lent for.

    Args:
        close_timeout_s: how long `close` may wait for what still runs.
    """

    job_id: str
    job_class: JobClass
    close_timeout_s: float


class Lease:
    """A slot lent to one job; a context manager that gives it back."""

    def __init__(
        self, terms: Terms, slot: Slot, started: StartedSession, *, lender: Lender, calls: Executor
    ) -> None:
        """Lend a slot; only the pool does.

        Args:
            calls: a thread for calls to the JVM that must not hold up their caller.
        """
        self.job_id: Final = terms.job_id
        self.job_class: Final = terms.job_class
        self.slot: Final = slot
        self.group: Final = f"lethe-{terms.job_id}-{uuid.uuid4().hex[:12]}"
        self._terms = terms
        self._started = started
        self._lender = lender
        self._calls = calls
        self._guard = threading.Lock()
        self._cancelled: str | None = None
        self._lost: str | None = None
        self._closed = False
        self._running: Future[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, function: "Callable[[SparkSession], T]", *, description: str | None = None) -> T:
        """Run a function in the slot's thread and wait for it; one at a time, as often as wanted.

        Every job of Spark that it starts in that thread is in this lease's group, tag and FAIR pool. What it
        makes of pyspark (frames, registered functions, cached UDFs) is of no use after the lease.

        Raises: SparkJobCancelled: cancel() was called, before or meanwhile.
            SparkLost: the JVM is gone; the lease is of no more use.
            SparkJobFailed: anything else; `__cause__` is the error itself.
        """
        with self._guard:
            assert not self._closed, "the lease is given back"
            assert self._running is None or self._running.done(), "one function at a time"
            refusal = self._refusal()
            if refusal is not None:
                raise refusal
            running: Future[T] = self.slot.submit(self._execute, function, description or self.job_id)
            self._running = running
        while wait([running], timeout=REPEAT_S).not_done:
            if self._cancelled is not None:
                self._ask_for_cancel(self._cancelled)
        self._lender.note_run(self)
        error = running.exception()
        refusal = self._refusal()
        if refusal is None and error is None:
            return running.result()
        if refusal is None and error is not None:
            refusal = classify(error, is_alive=lambda: self._lost is None and self._started.alive)
            if isinstance(refusal, SparkLost):
                self._lender.note_loss(self._started)
        assert refusal is not None
        raise refusal from error

    def cancel(self, why: str) -> None:
        """Ask for the end of what runs and refuse what follows. Any thread, at once, any number of times.

        A worker of Python may go on for about two seconds: silence must be proved elsewhere.
        """
        with self._guard:
            if self._closed or self._lost is not None:
                return
            self._cancelled = self._cancelled or why
        self._ask_for_cancel(why)

    def close(self) -> None:
        """Give the slot back, cleaned; cancels what still runs and waits for it, with a bound. Idempotent."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            running, lost = self._running, self._lost
        if running is not None and lost is None:
            self._clean(running)
        elif running is not None and not running.done():
            self.slot.replace_thread()
        self._lender.take_back(self)

    def mark_lost(self, why: str) -> None:
        """Say that the JVM below is gone or will be at once; only the pool does."""
        with self._guard:
            self._lost = self._lost or why

    def _refusal(self) -> SparkRunError | None:
        """Why nothing may run any more, if so; our own cancel goes before a loss that followed it."""
        if self._cancelled is not None:
            return SparkJobCancelled(self._cancelled)
        return SparkLost(self._lost) if self._lost is not None else None

    def _execute(self, function: "Callable[[SparkSession], T]", description: str) -> T:
        """In the slot's thread."""
        session = self.slot.session_on(self._started)
        context = session.sparkContext
        context.setJobGroup(self.group, description, interruptOnCancel=True)
        context.addJobTag(self.group)
        context.setLocalProperty("spark.scheduler.pool", FAIR_POOLS[self.job_class])
        return function(session)

    def _ask_for_cancel(self, why: str) -> None:
        # A pool that ends takes this thread away, and the JVM with it.
        with suppress(RuntimeError):
            self._calls.submit(self._cancel_jobs, why)

    def _cancel_jobs(self, why: str) -> None:
        # A JVM that dies meanwhile has cancelled everything already.
        with suppress(Py4JError, OSError):
            context = self._started.session.sparkContext._jsc.sc()
            context.cancelJobGroupAndFutureJobs(self.group, why)
            context.cancelJobsWithTag(self.group, why)

    def _clean(self, running: "Future[Any]") -> None:
        """Leave nothing of the lease on its slot; a thread that does not come back is given up."""
        timeout_s = self._terms.close_timeout_s
        deadline = time.monotonic() + timeout_s
        self._ask_for_cancel("the lease is given back")
        while wait([running], timeout=REPEAT_S).not_done and time.monotonic() < deadline:
            self._ask_for_cancel("the lease is given back")
        cleaned = (
            self.slot.submit(self.slot.clean, self.group, timeout_s=timeout_s) if running.done() else None
        )
        if cleaned is None or wait([cleaned], timeout=timeout_s).not_done or cleaned.exception() is not None:
            self.slot.replace_thread()
