"""The loop of every sweep: units that come in rounds, each tried until it is done or will never be.

What comes next, and what was done by earlier attempts, is known to the course of a kind; the loop knows when.

Invariants:
- the loop ends when the course has nothing left, never because a unit was not drawn: a stop may come between
  any two lines;
- a round ends with no unit under way and none left to be tried again: nothing is skipped;
- a unit that failed transiently is tried again, in parts where it was too long for one statement;
- of a course that goes `in_order` what failed is done again one after the other before another unit begins;
- between two units the job's stop and its throttle are looked at.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from app.jobs.engines.engine import Engine, EngineLease, borrower_of
from app.jobs.errors import JobSignal, LeaseLost
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.sweeps.turns import Turns, what_holds
from app.tracing import TRACING
from spark.targets.connection import Connection
from spark.targets.errors import TargetError, TargetStatementTimeout, TargetUnreachable
from spark.targets.work import Outcome, UnitWork

PARTS: Final = 4
"""Of a unit that was too long for one statement."""


class AnyUnit(Protocol):
    """What a unit tells of itself: a name that no other unit of the attempt has while it is under way."""

    @property
    def unit_id(self) -> str: ...


Unit = TypeVar("Unit", bound=AnyUnit)
Result = TypeVar("Result")
Charge = tuple[int, int]
"""Rows, and bytes of the archive."""


class Course(ABC, Generic[Unit, Result]):
    """What a kind knows of its units. One attempt uses it, in the job's thread.

    Attributes:
        in_order: a later unit must not overtake one that failed.
    """

    in_order: bool = False

    @abstractmethod
    def next_units(self) -> Iterator[Unit] | None:
        """The units of the next round, drawn as there is room for them; None: the work is done."""

    @abstractmethod
    def done(self, unit: Unit, result: Result, *, elapsed_s: float) -> Charge | None:
        """Account for a unit; what the throttle is charged, None: an earlier attempt had done it."""

    def failed(self, unit: Unit) -> None:
        """A unit failed, and is tried again after the others of its round."""

    @abstractmethod
    def parts(self, unit: Unit, *, elapsed_s: float) -> Sequence[Unit]:
        """About PARTS parts of a unit that was too long for one statement; itself: it has none."""

    def ended(self) -> None:
        """All units of the round are done."""

    def rest_s(self) -> float:
        """Seconds until the next unit may begin, besides the throttle."""
        return 0.0

    def holders(self, error: TargetError) -> Sequence[WaitingOn]:
        """What clients see of a unit that is tried again and again."""
        return what_holds(error)

    @abstractmethod
    def show(self, *, is_done: bool, force: bool) -> None:
        """Show how far it is."""


class OwnConnection(Generic[Unit, Result]):
    """The job's own connection in the place of workers: one unit at a time.

    A connection that is lost ends the attempt: there is no other one to try again on.
    """

    def __init__(
        self, conn: Connection, run: Callable[[Connection, Unit], Result], *, clock: Callable[[], float]
    ) -> None:
        self._conn = conn
        self._run = run
        self._clock = clock

    def map(self, units: Iterator[Unit]) -> Iterator[Outcome[Unit, Result]]:
        """Run units as they are drawn."""
        for unit in units:
            began_s = self._clock()
            try:
                result = self._run(self._conn, unit)
            except TargetUnreachable:
                raise
            except TargetError as error:
                yield Outcome(unit, None, error, self._clock() - began_s)
            else:
                yield Outcome(unit, result, None, self._clock() - began_s)

    def cancel(self) -> None:
        """The control connection is cancelled by whoever opened it."""

    def close(self) -> None:
        """Nothing was lent."""


class Sweep(Generic[Unit, Result]):
    """Runs the units of one attempt."""

    def __init__(
        self,
        context: JobContext,
        lease: EngineLease[Unit, Result],
        course: Course[Unit, Result],
        *,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        """Make one.

        Args:
            keep: called again and again: what the job holds meanwhile is to be renewed.
        """
        self._context = context
        self._lease = lease
        self._course = course
        self._keep = keep
        self._turns = Turns(context, keep=keep)
        self._under_way: dict[str, tuple[Unit, int]] = {}

    def run(self) -> None:
        """Run to the end; how far it came is shown, however it ends, as long as the job is ours.

        Raises: JobStopped at a safe point; TargetError when a unit failed for good or too often.
        """
        self._course.show(is_done=False, force=True)
        try:
            self._run_rounds()
        except LeaseLost:
            raise
        except (JobSignal, TargetError):
            self._course.show(is_done=False, force=True)
            raise
        self._course.show(is_done=True, force=True)

    def _run_rounds(self) -> None:
        while True:
            self._context.check()
            self._keep()
            units = self._course.next_units()
            if units is None:
                break
            self._run_round(units)
            self._course.ended()

    def _run_round(self, units: Iterator[Unit]) -> None:
        again = deque(self._run_once((unit, 0) for unit in units))
        while again:
            self._context.check()
            count = 1 if self._course.in_order else len(again)
            failed = self._run_once([again.popleft() for _ in range(count)])
            again.extendleft(reversed(failed))
        self._context.check()  # a unit that was not drawn, or not begun, was not done
        assert not self._under_way, self._under_way

    def _run_once(self, units: Iterable[tuple[Unit, int]]) -> Sequence[tuple[Unit, int]]:
        """Run units once; what is to be tried again, in its order, and how often it was tried."""
        again: list[tuple[Unit, int]] = []
        for outcome in self._lease.map(self._begun(units)):
            unit, tries = self._under_way.pop(outcome.unit.unit_id)
            self._trace(outcome)
            if outcome.error is None:
                self._account(unit, outcome)
                continue
            self._turns.retry_or_raise(outcome.error, tries, self._course.holders)
            self._course.failed(unit)
            is_too_long = isinstance(outcome.error, TargetStatementTimeout)
            parts = self._course.parts(unit, elapsed_s=outcome.elapsed_s) if is_too_long else [unit]
            again.extend((part, tries + 1) for part in parts)
        return again

    def _begun(self, units: Iterable[tuple[Unit, int]]) -> Iterator[Unit]:
        """Units whose turn has come; fewer, where the job must stop."""
        for unit, tries in units:
            if not self._turns.wait(tries, rest_s=self._course.rest_s):
                return
            assert unit.unit_id not in self._under_way, unit
            self._under_way[unit.unit_id] = (unit, tries)
            yield unit

    def _trace(self, outcome: Outcome[Unit, Result]) -> None:
        if TRACING.is_on:
            unit, error = outcome.unit, outcome.error
            name = str(getattr(unit, "step", type(unit).__name__))
            now, code = self._context.clock.now(), None if error is None else error.code
            TRACING.unit(name, unit_id=unit.unit_id, took_s=outcome.elapsed_s, now=now, error=code)

    def _account(self, unit: Unit, outcome: Outcome[Unit, Result]) -> None:
        assert outcome.result is not None, "a unit ends with a result or an error"
        self._turns.goes_on()
        charge = self._course.done(unit, outcome.result, elapsed_s=outcome.elapsed_s)
        self._keep()
        if charge is not None:
            rows, byte_count = charge
            self._context.throttle.charge(rows=rows, byte_count=byte_count, worked_s=outcome.elapsed_s)
        self._course.show(is_done=False, force=False)


def sweep_on(
    engine: Engine,
    work: UnitWork[Unit, Result],
    course: Course[Unit, Result],
    context: JobContext,
    *,
    workers: int,
    keep: Callable[[], None] = lambda: None,
) -> None:
    """Run a course on borrowed workers.

    Raises: as `Sweep.run`; JobSignal: there are no workers.
    """
    with engine.lease(work, workers=workers, borrower=borrower_of(context)) as lease:
        forget = context.on_cancel(lease.cancel)
        try:
            Sweep(context, lease, course, keep=keep).run()
        finally:
            forget()


def sweep_here(
    conn: Connection,
    run: Callable[[Connection, Unit], Result],
    course: Course[Unit, Result],
    context: JobContext,
) -> None:
    """Run a course on the job's own connection.

    Raises: as `Sweep.run`; TargetUnreachable: the connection is lost.
    """
    lease: OwnConnection[Unit, Result] = OwnConnection(conn, run, clock=context.clock.boottime_s)
    Sweep(context, lease, course).run()
