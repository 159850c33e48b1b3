"""One job's place at the exchange."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from spark.exchange.board import Board, LeaseState
from spark.exchange.errors import TaskBroken
from spark.pool.snapshot import JobClass
from spark.targets.errors import TargetAuthFailed
from spark.targets.task import Unsendable, pack
from spark.targets.work import AnyWork, Outcome, renewed

Unit = TypeVar("Unit")
Result = TypeVar("Result")
RENEWALS_MAX = 3
"""Other passwords that are tried one after the other: a command may tell a new one each time."""
LOOK_S = 0.25
"""How often a lease that waits for an outcome looks at its job."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """What the exchange must know of the job behind a lease; the functions are called in the job's thread.

    Args:
        workers: tasks that may run at the work's place at once.
        may_work: whether the job may go on; where not, what has not begun is dropped.
        ahead_max: how many units may be waiting or under way, `workers` in any case; None: as many as are
            useful. A throttled job must not burst.
        name: what Spark's own pages call it.
        look: called about four times a second while nothing ends; may raise to end the lease.
    """

    workers: int
    job_class: JobClass = "BULK"
    may_work: Callable[[], bool] = lambda: True
    ahead_max: Callable[[], int | None] = lambda: None
    look: Callable[[], None] = lambda: None
    name: str = ""


class ExchangeLease(Generic[Unit, Result]):
    """Hands the units of one job in and gives their outcomes back; a context manager.

    Raises: TaskBroken: the work cannot be sent.
    """

    def __init__(self, board: Board, work: AnyWork[Unit, Result], terms: LeaseTerms) -> None:
        assert terms.workers >= 1, "somebody works"
        self._board = board
        self._work = work
        self._renewals = 0
        self._terms = terms
        self._state = LeaseState(
            work.counted_at, terms.workers, terms.job_class, work=_packed(work), name=terms.name
        )
        board.open(self._state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def map(self, units: Iterator[Unit]) -> Iterator[Outcome[Unit, Result]]:
        """Run units as they are drawn; outcomes as they end, in any order.

        Raises: TaskBroken, UnitsLost, LeaseRefused, and what `look` raises.
        """
        exhausted = False
        while True:
            if not exhausted and not self._terms.may_work():
                exhausted = True
                self._board.drop_waiting(self._state)
            while not exhausted and self._state.drawn < self._room():
                unit = next(units, None)
                if unit is None:
                    exhausted = True
                else:
                    self._board.hand_in(self._state, unit, _packed(unit))
            outcome = self._board.next_outcome(self._state, LOOK_S)
            if outcome is not None:
                if not self._is_begun_anew(outcome):
                    yield outcome
                continue
            if exhausted and not self._state.load:
                return
            self._terms.look()

    def use(self) -> dict[str, Any]:
        """What the units have taken of Spark so far, as `SparkUse.document` has it."""
        return self._board.use_of(self._state)

    def cancel(self) -> None:
        """End what runs, refuse what follows: jobs of Spark that carry a unit of ours are cancelled whole."""
        for flight in self._board.end(self._state, is_closed=False):
            flight.cancel("a job that is in it stops")

    def close(self) -> None:
        """Leave; what still runs is cancelled."""
        for flight in self._board.end(self._state, is_closed=True):
            flight.cancel("a job that is in it has ended")

    def _is_begun_anew(self, outcome: Outcome[Unit, Result]) -> bool:
        """Whether its login was refused with a password that has changed since: then it waits once more."""
        if not isinstance(outcome.error, TargetAuthFailed):
            self._renewals = 0
            return False
        if self._renewals >= RENEWALS_MAX or (work := renewed(self._work)) is None:
            return False
        self._work, self._renewals = work, self._renewals + 1
        for each in [outcome, *self._board.renew(self._state, _packed(work))]:
            self._board.hand_in(self._state, each.unit, _packed(each.unit))
        return True

    def _room(self) -> int:
        """How many units may be waiting or under way: two rounds of full tasks."""
        limits, allowed = self._board.limits, self._terms.ahead_max()
        wanted = min(2 * self._terms.workers * self._state.per_task(limits.task_s), limits.ahead_max)
        return max(self._terms.workers, wanted if allowed is None else min(wanted, allowed))


def _packed(value: object) -> bytes:
    try:
        return pack(value)
    except Unsendable as error:
        raise TaskBroken(str(error)) from error
