"""Engines: what runs the units of a job. The inline one does it in threads of this process.

A domain gives an engine the work (a picklable function over a connection and a unit) and a lazy stream of
units; it gets outcomes back as they end. The pooled Spark session fills the same interface.

Invariants:
- at most `workers` units are under way, each on a connection of its own;
- after `cancel()` no unit starts, and those under way end with TargetCancelled;
- `close()` returns when no unit is under way and every connection is closed.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Literal, Protocol, Self, TypeVar

from app.clock import Clock
from spark.targets.advisory import hold
from spark.targets.connection import Connection, SessionLimits, Target, connect
from spark.targets.errors import TargetCancelled, TargetError

Unit = TypeVar("Unit")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class UnitWork(Generic[Unit, Result]):
    """What every worker does; picklable.

    Args:
        run: does one unit on one connection.
        application_name: what the target's activity view shows.
        advisory_key: the lock that each connection holds where the target has no ledger.
    """

    target: Target
    limits: SessionLimits
    application_name: str
    run: Callable[[Connection, Unit], Result]
    advisory_key: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Unit, Result]):
    """How one unit ended: a result or an error of the target, and how long it took."""

    unit: Unit
    result: Result | None
    error: TargetError | None
    elapsed_s: float


class EngineLease(Protocol[Unit, Result]):
    """Workers lent to one job."""

    def map(self, units: Iterator[Unit]) -> Iterator[Outcome[Unit, Result]]:
        """Run units as they are drawn; draws no more than the workers can take."""
        ...

    def cancel(self) -> None:
        """End what runs, refuse what follows. Any thread."""
        ...

    def close(self) -> None:
        """Give the workers back."""
        ...


class InlineLease(Generic[Unit, Result]):
    """Threads of this process, each with its own connection."""

    def __init__(
        self,
        work: UnitWork[Unit, Result],
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

    def _run(self, unit: Unit) -> Outcome[Unit, Result]:
        began = self._clock.boottime_s()
        try:
            result = self._work.run(self._connection(), unit)
        except TargetError as error:
            return Outcome(unit, None, error, self._clock.boottime_s() - began)
        return Outcome(unit, result, None, self._clock.boottime_s() - began)

    def _connection(self) -> Connection:
        """This thread's connection, opened anew when the last one was lost."""
        current: Connection | None = getattr(self._local, "connection", None)
        if current is not None and not current.closed:
            return current
        if current is not None:
            with self._guard:
                self._connections.discard(current)
        opened = connect(
            self._work.target, application_name=self._work.application_name, limits=self._work.limits
        )
        with self._guard:
            self._connections.add(opened)
        try:
            if self._cancelled:
                raise TargetCancelled("the job stops")
            if self._work.advisory_key is not None:
                hold(opened, self._work.advisory_key)
            # After the lock: a thread that slept before it was free again for somebody else's job.
            if not self._may_work():
                raise TargetCancelled("the job is not ours any more")
        except TargetError:
            with self._guard:
                self._connections.discard(opened)
            opened.close()
            raise
        self._local.connection = opened
        return opened


class Engine(Protocol):
    """Something that lends workers."""

    name: Literal["INLINE", "SPARK"]

    def lease(
        self, work: UnitWork[Unit, Result], *, workers: int, may_work: Callable[[], bool] = lambda: True
    ) -> AbstractContextManager[EngineLease[Unit, Result]]:
        """Lend workers for the time of a `with` block.

        Args:
            may_work: whether the job is still ours; asked on every new connection, once it holds its lock.
        """
        ...


class InlineEngine:
    """Runs units in this process; nothing to start, nothing to wait for."""

    name: Literal["INLINE", "SPARK"] = "INLINE"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def lease(
        self, work: UnitWork[Unit, Result], *, workers: int, may_work: Callable[[], bool] = lambda: True
    ) -> AbstractContextManager[EngineLease[Unit, Result]]:
        """Lend threads."""
        return InlineLease(work, workers=workers, clock=self._clock, may_work=may_work)
