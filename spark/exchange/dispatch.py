"""The exchange: dispatchers that wait for slots of the pool and send what waits as jobs of Spark.

Invariants:
- at most `dispatchers` jobs of Spark run at once; of several, BULK leaves one to INTERACTIVE;
- one dispatcher of a class at a time waits for a slot and gathers: what waits goes together;
- `close` returns when every dispatcher has ended, or after its timeout;
- a fault of the pool or of ours ends no dispatcher: leases would wait for ever.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from spark.exchange.board import Board, ExchangeLimits, ExchangeSnapshot, Flight
from spark.exchange.lease import ExchangeLease, LeaseTerms
from spark.pool.errors import LeaseRefused, LeaseWaitEnded, PoolStopped, SparkError, SparkRunError
from spark.pool.snapshot import JobClass
from spark.targets.task import Deliver, Task
from spark.targets.work import AnyWork

Unit = TypeVar("Unit")
Result = TypeVar("Result")
JOB_ID = "units"
"""Under which slots are leased: a job of Spark carries the units of many jobs."""
LOOK_S = 0.5
REFUSED_PAUSE_S = 0.5
CLASSES: tuple[JobClass, ...] = ("INTERACTIVE", "BULK")
_logger: Final = logging.getLogger(__name__)


def _run_tasks(session: Any, tasks: Sequence[Task], deliver: Deliver) -> None:
    from spark.targets.run import run_tasks  # it imports pyspark, and whoever has a session has it

    run_tasks(session, tasks, deliver)


def _parallelism(session: Any) -> int:
    from spark.targets.run import parallelism

    return parallelism(session)


def _describe(session: Any, text: str) -> None:
    from spark.targets.run import describe

    describe(session, text)


class Slot(Protocol):
    """What the exchange needs of a pool's lease."""

    def run(self, function: Callable[[Any], None], *, description: str | None = None) -> None:
        """Run a function over a session."""
        ...

    def cancel(self, why: str) -> None:
        """End it."""
        ...


class Slots(Protocol):
    """What the exchange needs of a pool."""

    def lease(
        self,
        *,
        job_id: str,
        job_class: JobClass,
        should_stop: Callable[[], bool] = ...,
        wait_s: float | None = None,
    ) -> AbstractContextManager[Slot]:
        """Wait for a slot."""
        ...


class Exchange:
    """Where jobs hand in units and get outcomes; every method may come from any thread.

    Args:
        dispatchers: jobs of Spark at once; the slots of the pool.
        run, cores: how tasks are run over a session, and how many at a time.
        describe: tells a session whose units come next.
    """

    def __init__(
        self,
        slots: Slots,
        *,
        dispatchers: int,
        limits: ExchangeLimits | None = None,
        run: Callable[[Any, Sequence[Task], Deliver], None] = _run_tasks,
        cores: Callable[[Any], int] = _parallelism,
        describe: Callable[[Any, str], None] = _describe,
    ) -> None:
        assert dispatchers >= 1, "somebody dispatches"
        self._slots = slots
        self._dispatchers = dispatchers
        self._board = Board(limits or ExchangeLimits())
        self._run = run
        self._cores = cores
        self._describe = describe
        self._turns: dict[JobClass, object] = {}
        self._flying: dict[JobClass, int] = dict.fromkeys(CLASSES, 0)
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def lease(self, work: AnyWork[Unit, Result], terms: LeaseTerms) -> ExchangeLease[Unit, Result]:
        """A place for one job.

        Raises: TaskBroken: the work cannot be sent. PoolStopped: the exchange has ended.
        """
        self.check_open()
        self._start()
        return ExchangeLease(self._board, work, terms)

    def check_open(self) -> None:
        """Raise PoolStopped when the exchange has ended."""
        if self._is_closed:
            raise PoolStopped("the service ends")

    def snapshot(self) -> ExchangeSnapshot:
        """How it stands."""
        return self._board.snapshot()

    def close(self, timeout_s: float = 5.0) -> None:
        """Cancel every lease and end the dispatchers."""
        with self._board.changed:
            self._is_closed = True
            self._board.changed.notify_all()
            threads = list(self._threads)
        self._board.cancel_all()
        give_up = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, give_up - time.monotonic()))

    def _start(self) -> None:
        with self._board.changed:
            if self._threads:
                return
            self._threads = [
                threading.Thread(target=self._dispatch, name=f"lethe-dispatch-{number}", daemon=True)
                for number in range(self._dispatchers)
            ]
        for thread in self._threads:
            thread.start()

    # -- one dispatcher

    def _dispatch(self) -> None:
        while True:
            turn = object()
            job_class = self._next_class(turn)
            if job_class is None:
                return
            try:
                self._serve(job_class, partial(self._gathered, job_class, turn))
            except Exception:  # the runner of this side: who waits would never hear of it
                _logger.exception("a dispatcher failed")
                time.sleep(REFUSED_PAUSE_S)
            finally:
                self._gathered(job_class, turn)

    def _next_class(self, turn: object) -> JobClass | None:
        """Wait for a class that has something to send; None: the exchange ends.

        Args:
            turn: whose turn to gather it is then.
        """
        changed = self._board.changed
        with changed:
            while not self._is_closed:
                for job_class in CLASSES:
                    if self._may_serve(job_class):
                        self._turns[job_class] = turn
                        return job_class
                changed.wait(LOOK_S)
        return None

    def _may_serve(self, job_class: JobClass) -> bool:
        if job_class in self._turns or not self._board.is_wanted(job_class):
            return False
        others = self._dispatchers - 1 if job_class == "BULK" and self._dispatchers > 1 else self._dispatchers
        return self._flying[job_class] < others

    def _gathered(self, job_class: JobClass, turn: object) -> None:
        """It is another dispatcher's turn, unless it is already."""
        with self._board.changed:
            if self._turns.get(job_class) is turn:
                del self._turns[job_class]
                self._board.changed.notify_all()

    def _serve(self, job_class: JobClass, gathered: Callable[[], None]) -> None:
        """Wait for a slot, then send what waits."""

        def nobody_waits() -> bool:
            return self._is_closed or not self._board.is_wanted(job_class)

        try:
            with self._slots.lease(job_id=JOB_ID, job_class=job_class, should_stop=nobody_waits) as slot:
                time.sleep(self._board.gather_s)  # what was handed in together goes together
                self._fly(job_class, slot, gathered)
        except LeaseWaitEnded:
            return
        except LeaseRefused as refused:
            self._board.refuse(job_class, refused)
            time.sleep(REFUSED_PAUSE_S)

    def _fly(self, job_class: JobClass, slot: Slot, gathered: Callable[[], None]) -> None:
        flights: list[Flight] = []
        with self._board.changed:
            self._flying[job_class] += 1
        error: SparkError | None = None
        try:
            slot.run(partial(self._send, job_class, slot, gathered, flights), description="units")
        except SparkRunError as ended:
            error = ended
        finally:
            with self._board.changed:
                self._flying[job_class] -= 1
            for flight in flights:
                self._board.land(flight, error)

    def _send(
        self,
        job_class: JobClass,
        slot: Slot,
        gathered: Callable[[], None],
        flights: list[Flight],
        spark: Any,
    ) -> None:
        """Gather and run; in the slot's thread."""
        flight = self._board.take_off(job_class, slot.cancel, cores=self._cores(spark))
        gathered()
        if flight is not None:
            flights.append(flight)
            self._describe(spark, flight.description)
            self._run(spark, flight.tasks, partial(self._board.deliver, flight))
