"""What one attempt at a cycle holds and does: its hands, its claim of the environment, its waits.

Rules:
- nothing is written before the environment was claimed by this attempt, under the token of its job;
- whoever waits longer than a few seconds gives everything back: no thread, no lease, no hands;
- hands are given back at the end of the attempt, whatever ended it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol, TypeVar

from sqlmodel import Session

from app.erase.cycle.throttle import Rate
from app.erase.record import Record
from app.erase.refusals import LOG_MOVED, WHERE_MAX_CHARS, failure, in_use
from app.erase.rows import CycleStep, ErasureCycle, Origin
from app.erase.rules import Wanted, wanted
from app.errors import ServiceError
from app.extinction.status import extinctions_of
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.protection.service import claim_environment
from app.settings import EngineChoice
from app.stores.rows import Store
from app.stores.service import get_store
from app.tracing import TRACING
from spark.erase.calls.calls import (
    Costs,
    Refusal,
)
from spark.erase.hands.hands import Hands, HandsLost
from spark.targets.files.log_place import medium_of_log

CHECKPOINT_CLAIMED: Final = "environment"
MEDIUM_KEEPS_COPIES: Final = "MEDIUM_KEEPS_COPIES"
SLEEP_SLICE_S: Final = 0.2
LIVE_LOOK_S: Final = 30.0
WAKE_LEAD_S: Final = 2.0
"""A long wait ends so much early, and the rest is slept: a runner looks only now and then."""
ORDERS_EVERY_S: Final = 1.0
MOVED_AGAIN_S: Final = 1.0
HANDS_LOST_MAX: Final = 3


class Answer(Protocol):
    """What every answer of hands has."""

    @property
    def costs(self) -> Costs: ...
    @property
    def refusal(self) -> Refusal | None: ...


A = TypeVar("A", bound=Answer)


class TakeHands(Protocol):
    """Takes hands for a job (HandsSource.take)."""

    def __call__(
        self, context: JobContext, requested: EngineChoice | None, *, directory: Path
    ) -> tuple[Hands, str]: ...


class EndReached(Exception):
    """The cycle's end has come."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where hands come from.

    Attributes:
        take_hands: for a job, the engine that was asked for and a directory; hands, and their engine's name.
        process: of this service, new at each start: a cycle that another one left is resumed.
    """

    take_hands: TakeHands
    process: str


class Attempt:
    """One attempt of one job at one cycle.

    Attributes:
        wants_plan: the plan is out of date.
        works_at: the file in work, by its name; empty: the whole log.
    """

    def __init__(
        self, context: JobContext, store: Store, directory: Path, record: Record, workshop: Workshop
    ) -> None:
        self.context = context
        self.store = store
        self.directory = directory
        self.record = record
        self.workshop = workshop
        self.wants_plan = False
        self.works_at = ""
        self._hands: Hands | None = None
        self._is_claimed = False
        self._in_round_since_s: float | None = None
        self._looked_at_s: float | None = None
        self._lost = 0

    @property
    def cycle(self) -> ErasureCycle:
        """The cycle's row as it was last read or written."""
        return self.record.cycle

    @property
    def now(self) -> datetime:
        """Wall time."""
        return self.context.clock.now()

    # -- hands

    def call(self, do: Callable[[Hands], A]) -> A:
        """Let hands do something that only reads; done again where they are lost.

        Raises: JobWaiting: they were lost again and again.
        """
        while True:
            try:
                return self.call_once(do)
            except HandsLost:
                self.context.check()
                self.note_lost()

    def call_once(self, do: Callable[[Hands], A], *, writes: bool = False) -> A:
        """Let hands do something.

        Args:
            writes: an order to stop lets it end by itself for a while.
        Raises: HandsLost: it may have been done in part.
        """
        began_s = self.context.clock.boottime_s()
        hands = self._open_hands()
        forget = self.context.on_cancel(self._kill)
        self._in_round_since_s = began_s if writes else None
        try:
            answer = do(hands)
        except HandsLost:
            self.close()
            raise
        finally:
            forget()
            self._in_round_since_s = None
        worked_s = self.context.clock.boottime_s() - began_s
        moved = answer.costs.read_bytes + answer.costs.write_bytes
        self.context.throttle.charge(rows=0, byte_count=moved, worked_s=worked_s)
        self._trace(answer, worked_s)
        return answer

    def _trace(self, answer: Answer, took_s: float) -> None:
        step = type(answer).__name__.removesuffix("Answer").upper()
        code = None if answer.refusal is None else answer.refusal.code.value
        TRACING.unit(step, unit_id=self.works_at or self.cycle.id, took_s=took_s, now=self.now, error=code)

    def note_lost(self) -> None:
        """Count hands that were lost.

        Raises: JobWaiting: too often for one attempt.
        """
        self._lost += 1
        if self._lost >= HANDS_LOST_MAX:
            raise JobWaiting(
                [WaitingOn(kind="HANDS_LOST", ref=self.store.id)],
                not_before=None,
                transient=True,
                code="HANDS_LOST",
                detail="the process that works at the files was lost again and again",
            )

    def _open_hands(self) -> Hands:
        if self._hands is None:
            asked = self.context.job.params.get("engine")
            self._hands, engine = self.workshop.take_hands(self.context, asked, directory=self.directory)
            if engine != self.cycle.engine:
                self.record.change(lambda _db, cycle: setattr(cycle, "engine", engine))
        return self._hands

    def _kill(self) -> None:
        """End what hands do now; a round gets the grace that every statement gets. Any thread."""
        since = self._in_round_since_s
        grace_s = self.context.settings.cancel_grace_s
        hands = self._hands
        if hands is not None and (since is None or self.context.clock.boottime_s() - since > grace_s):
            hands.kill()

    def close(self) -> None:
        """Give the hands back."""
        hands, self._hands = self._hands, None
        if hands is not None:
            hands.close()

    # -- the environment

    def claim(self) -> int:
        """Claim the environment, once in an attempt; returns the epoch under which it may be written.

        Raises: JobFailed, JobWaiting.
        """
        epoch = self.context.job.token
        if self._is_claimed:
            return epoch
        self._check_medium()
        self.context.save_checkpoint(CHECKPOINT_CLAIMED, {"epoch": epoch})
        try:
            claim_environment(self.context.database, self.context.settings, self.store, epoch=epoch)
        except ServiceError as error:
            if error.retryable:
                waiting = [WaitingOn(kind=error.code, ref=error.detail[:WHERE_MAX_CHARS])]
                raise JobWaiting(
                    waiting, not_before=None, transient=True, code=error.code, detail=error.detail
                ) from error
            raise JobFailed(error.code, error.detail) from error
        self._is_claimed = True
        return epoch

    def _check_medium(self) -> None:
        """Refuse a medium that keeps what is overwritten, unless the store accepts that."""
        try:
            medium = medium_of_log(self.directory)
        except OSError as error:
            raise JobFailed("ENVIRONMENT_UNREADABLE", error.strerror or str(error)) from error
        if medium.is_copy_on_write and not self.store.accept_medium:
            raise JobFailed(MEDIUM_KEEPS_COPIES, "; ".join(medium.notes))

    def refused(self, refusal: Refusal) -> JobWaiting | JobFailed:
        """What a refusal means to the whole attempt."""
        waiting = in_use(refusal)
        if waiting is None:
            return failure(refusal)
        look_s = self.context.settings.erasure_environment_look_s
        # A log that has moved can be read anew at once; only not in a loop without a breath.
        return self.wait_for([waiting], min(look_s, MOVED_AGAIN_S) if waiting.kind == LOG_MOVED else look_s)

    # -- waiting

    def wait_for(
        self,
        waiting_on: list[WaitingOn],
        seconds: float,
        *,
        wake_key: str | None = None,
        overtaken: Callable[..., bool] = lambda _db: False,
    ) -> JobWaiting:
        """A wait with everything given back; the cycle's end comes in between."""
        not_before = self.now + timedelta(seconds=seconds)
        ends_at = self.cycle.ends_at
        if ends_at is not None:
            not_before = min(not_before, max(ends_at, self.now))
        return JobWaiting(waiting_on, not_before=not_before, wake_key=wake_key, overtaken=overtaken)

    def begin(self) -> datetime:
        """Wait until the throttles let the next work begin; returns when it did.

        Raises: JobStopped, JobWaiting, EndReached.
        """
        while True:
            self.context.check()
            self.context.show_bounds()
            self.look()
            now = self.now
            at = max(self.cycle.next_at or now, now + timedelta(seconds=self.context.throttle.delay_s()))
            if self.cycle.ends_at is not None:
                at = min(at, self.cycle.ends_at)
            left_s = (at - now).total_seconds()
            if left_s <= 0:
                return now
            if left_s > self.context.settings.erasure_wait_in_job_s:
                raise self._long_wait(at, left_s)
            self.context.clock.sleep(min(left_s, SLEEP_SLICE_S))

    def _long_wait(self, at: datetime, left_s: float) -> JobWaiting:
        """Give everything back. What `PATCH /throttle` makes us wait for is looked at again soon: it may have
        changed by then; what is left of it goes into the cycle's row.
        """
        now, bound = self.now, self.context.throttle.setting.bytes_per_s
        seconds = left_s - min(WAKE_LEAD_S, self.context.settings.erasure_wait_in_job_s)
        if at > (self.cycle.next_at or now):
            seconds = min(seconds, LIVE_LOOK_S)
            debt = int((left_s - seconds) * bound) if bound is not None else 0
            self.record.change(lambda _db, cycle: setattr(cycle, "debt_bytes", debt))
        shown = [WaitingOn(kind="THROTTLE", ref=self.cycle.id, until=at)]
        return self.wait_for(shown, max(0.0, seconds))

    def take_debt(self) -> None:
        """Owe what the attempt before has left."""
        if self.cycle.debt_bytes:
            self.context.throttle.charge(rows=0, byte_count=self.cycle.debt_bytes, worked_s=0.0)
            self.record.change(lambda _db, cycle: setattr(cycle, "debt_bytes", 0))

    def paid(self, cycle: ErasureCycle, units: int, began: datetime) -> None:
        """Charge the throttle for work that began then; within the transaction that notes the work."""
        cycle.next_at = Rate(cycle.ms_per_unit).next_at(cycle.next_at, began, units)
        cycle.done_units += units

    def look(self) -> None:
        """Look for the cycle's end, and now and then for changed parameters.

        Raises: EndReached, JobWaiting: the eraser was switched off.
        """
        ends_at = self.cycle.ends_at
        if ends_at is not None and self.now >= ends_at and self.cycle.step != CycleStep.DONE:
            raise EndReached
        at_s = self.context.clock.boottime_s()
        if self._looked_at_s is not None and at_s - self._looked_at_s < ORDERS_EVERY_S:
            return
        self._looked_at_s = at_s
        asked, mark = self.record.read(self._orders)
        self._obey(asked)
        if self.cycle.plan is not None and self.cycle.plan.get("extinctions") != mark:
            self.wants_plan = True

    def _orders(self, db: Session) -> tuple[Wanted, str]:
        store = get_store(db, self.store.id)
        return wanted(db, store), extinctions_of(db, store).mark

    def _obey(self, asked: Wanted) -> None:
        cycle = self.cycle
        if cycle.origin == Origin.PARAMETERS and not asked.enabled:
            raise EraserDisabled(self)
        if cycle.follows_kinds and sorted(asked.kinds) != sorted(cycle.kinds) and asked.kinds:
            kinds = [kind.value for kind in asked.kinds]
            self.record.change(lambda _db, row: setattr(row, "kinds", kinds))
            self.wants_plan = True


class EraserDisabled(Exception):
    """The store's je.env.runEraser went off under a cycle that its parameters began."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt.store.id)
        self.attempt = attempt
