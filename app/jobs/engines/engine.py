"""Engines: what runs the units of a job. The inline one does it in threads of this process.

A domain gives an engine the work (a picklable function over a connection and a unit; over a unit alone, where
it is of files) and a lazy stream of units; it gets outcomes back as they end. The pooled Spark session fills
the same interface.

Invariants:
- at most `workers` units are under way, each on a connection of its own where the work has a target;
- after `cancel()` no unit starts, and those under way end with TargetCancelled;
- `close()` returns when no unit is under way and every connection is closed.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from app.clock import Clock
from app.jobs.engines.use_notes import UseNotes, name_on_spark
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from spark.targets.connection import Connection
from spark.targets.errors import TargetCancelled
from spark.targets.work import AnyWork, Outcome, UnitWork, do_unit, open_worker

Unit = TypeVar("Unit")
Result = TypeVar("Result")
BURST_S = 1.0
"""How much of a throttled job's work may be under way at once."""


@dataclass(frozen=True, slots=True)
class Borrower:
    """The job that workers are lent to, as an engine sees it.

    Args:
        may_work: whether the job is still ours and may go on; any thread.
        ahead_max: how many units may be under way without a burst that the throttle forbids; None: any
            number; the job's thread.
        show_waiting: tells clients what the running job is held up by; the job's thread.
        note_use: keeps what a lease has taken of Spark up to now, as `SparkUse.document`; the job's thread.
        name: what Spark's own pages call the job.
    """

    may_work: Callable[[], bool] = lambda: True
    ahead_max: Callable[[], int | None] = lambda: None
    show_waiting: Callable[[Sequence[WaitingOn]], None] = lambda _waiting_on: None
    note_use: Callable[[dict[str, Any]], None] = lambda _use: None
    name: str = ""


def borrower_of(context: JobContext) -> Borrower:
    """A running job as an engine sees it."""
    return Borrower(
        may_work=lambda: context.stop_cause is None,
        ahead_max=lambda: context.throttle.charges_in(BURST_S),
        show_waiting=context.show_waiting,
        note_use=UseNotes(context).note,
        name=name_on_spark(context),
    )


ANYBODY = Borrower()


class EngineLease(Protocol[Unit, Result]):
    """Workers lent to one job."""

    def map(self, units: Iterator[Unit]) -> Iterator[Outcome[Unit, Result]]:
        """Run units as they are drawn; draws no more than the workers can take soon.

        Raises: JobSignal: the engine itself cannot go on.
        """
        ...

    def cancel(self) -> None:
        """End what runs, refuse what follows. Any thread."""
        ...

    def close(self) -> None:
        """Give the workers back."""
        ...


class InlineLease(Generic[Unit, Result]):
    """Threads of this process, each with its own connection where the work has a target."""

    def __init__(
        self,
        work: AnyWork[Unit, Result],
        *,
        workers: int,
        clock: Clock,
        may_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self._work = work
        self._clock = clock
        self._may_work = may_work
        self._workers = workers
        self._guard = threading.Lock()
        self._cancelled = False
        self._connections: set[Connection] = set()
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="lethe-unit")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def map(self, units: Iterator[Unit]) -> Iterator[Outcome[Unit, Result]]:
        """Run units as they are drawn, at most `workers` at a time."""
        running: set[Future[Outcome[Unit, Result]]] = set()
        exhausted = False
        while True:
            while not exhausted and len(running) < self._workers:
                unit = next(units, None)
                if unit is None:
                    exhausted = True
                else:
                    running.add(self._pool.submit(self._run, unit))
                    assert len(running) <= self._workers
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()

    def cancel(self) -> None:
        """End what runs, refuse what follows."""
        with self._guard:
            self._cancelled = True
            connections = list(self._connections)
        for connection in connections:
            connection.cancel()

    def close(self) -> None:
        """Wait for what runs and close every connection."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        with self._guard:
            connections, self._connections = self._connections, set()
        for connection in connections:
            connection.close()
        assert not self._connections, "a unit was under way, and has opened a connection"

    def _run(self, unit: Unit) -> Outcome[Unit, Result]:
        if self._cancelled:
            return Outcome(unit, None, TargetCancelled("the job stops"), 0.0)
        return do_unit(self._work, self._connection, unit, clock=self._clock.boottime_s)

    def _connection(self) -> Connection:
        """This thread's connection, opened anew when the last one was lost."""
        current: Connection | None = getattr(self._local, "connection", None)
        if current is not None and not current.closed:
            return current
        if current is not None:
            self._forget(current)
        assert isinstance(self._work, UnitWork), "work on files asks for no connection"
        self._local.connection = open_worker(
            self._work, may_work=self._may_work, opened=self._remember, failed=self._forget
        )
        connection: Connection = self._local.connection
        return connection

    def _remember(self, conn: Connection) -> None:
        with self._guard:
            self._connections.add(conn)
            if not self._cancelled:
                return
            self._connections.discard(conn)
        conn.close()
        raise TargetCancelled("the job stops")

    def _forget(self, conn: Connection) -> None:
        with self._guard:
            self._connections.discard(conn)


class Engine(Protocol):
    """Something that lends workers."""

    name: Literal["INLINE", "SPARK"]

    def lease(
        self, work: AnyWork[Unit, Result], *, workers: int, borrower: Borrower = ANYBODY
    ) -> AbstractContextManager[EngineLease[Unit, Result]]:
        """Lend workers for the time of a `with` block.

        Raises: JobSignal: the engine cannot lend now.
        """
        ...


class InlineEngine:
    """Runs units in this process; nothing to start, nothing to wait for."""

    name: Literal["INLINE", "SPARK"] = "INLINE"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def lease(
        self, work: AnyWork[Unit, Result], *, workers: int, borrower: Borrower = ANYBODY
    ) -> AbstractContextManager[EngineLease[Unit, Result]]:
        """Lend threads."""
        return InlineLease(work, workers=workers, clock=self._clock, may_work=borrower.may_work)
