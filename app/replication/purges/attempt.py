"""What an attempt at a purge of a replica carries, and what is alike in the course of every kind.

Rules:
- a replica that is not whole keeps all it has, and so does one whose status changes meanwhile;
- the cut-off is decided once in the life of a job;
- limits and a reviewed plan are held against what would go before the first delete, once: an attempt that
  goes on has removed some already;
- what an acknowledgement frees after that count goes only as far as the limits allow.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel

from app.jobs.errors import JobFailed, JobStopped
from app.jobs.running.context import JobContext
from app.replication.agreements.service import register_missing
from app.replication.agreements.sessions.service import target_of_store
from app.replication.replica.replicas import compare_with_memory
from app.stores.models import Reach
from app.stores.rows import Store
from app.sweeps.counts import CHECKPOINT_REMOVED, Counts, ledger_counts, noted_counts
from app.sweeps.cutoff import fixed_instant
from app.sweeps.frame import Attempt, SweepParams, asked
from app.sweeps.limits import MOST, Limited, check_limits, limits_in_effect, most_rows
from app.sweeps.loop import AnyUnit, Charge, Course
from app.sweeps.sizing import UnitSize
from spark.replication.errors import PlanStopped, ReplicaNotWhole, ReplicationRefused
from spark.replication.records import TRIMMED, ReplicaStatus
from spark.replication.replica.replica import find_replica
from spark.targets.advisory import hold
from spark.targets.connection import Connection, target_now
from spark.targets.transaction import UnitResult

CHECKPOINT_LIMITS: Final = "limits"
UNIT: Final = "rows"
MORE_CAME: Final = (
    "more may go than was counted: {gone} have gone, and the limits allow {most}. What is removed stays"
    " removed: look at a new plan, then submit the purge again"
)
ROWS_FIRST: Final = 200
ROWS_MAX: Final = 5_000


class PurgeParams(SweepParams, Limited, Protocol):
    """The snapshot of a purge of a replica, as far as its kind does not matter."""

    @property
    def rows_in_tx(self) -> int | None:
        """Rows of a unit; None: Lethe's own size."""


class Plan(Protocol):
    """What would go."""

    @property
    def rows(self) -> int:
        """How many of its kind are here."""

    @property
    def rows_to_remove(self) -> int:
        """And how many of them would go."""


class AnySpan(Protocol):
    """Rows side by side."""

    @property
    def rows(self) -> int: ...


P = TypeVar("P", bound=PurgeParams)
Span = TypeVar("Span", bound=AnySpan)
PlanOf = TypeVar("PlanOf", bound=Plan)
Unit = TypeVar("Unit", bound=AnyUnit)
Model = TypeVar("Model", bound=BaseModel)
Made = TypeVar("Made")


@dataclass(slots=True)
class ReplicaAttempt(Attempt[P], ABC, Generic[P, PlanOf]):
    """What one attempt carries from step to step.

    Attributes:
        planned: what it is to remove.
        most: rows that all attempts together may remove; None: the limits bound none.
    """

    cutoff: datetime | None
    planned: PlanOf | None = None
    most: int | None = None

    @abstractmethod
    def plan(self, *, is_reviewed: bool = False) -> PlanOf:
        """Count what would go now.

        Args:
            is_reviewed: only of what the executed plan has.
        Raises: JobStopped.
        """

    @abstractmethod
    def stale_because(self, plan: PlanOf) -> str | None:
        """Why a reviewed plan does not hold any more; None: it does, or none is executed."""

    @abstractmethod
    def reach(self, plan: PlanOf) -> Reach:
        """What a plan would remove, as limits are held against it."""

    def now_s(self) -> int:
        """The target's clock."""
        return int(target_now(self.conn).timestamp())

    def is_stopped(self) -> bool:
        """Whether the job must stop."""
        return self.context.stop_cause is not None

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """Reading that ends where `is_stopped`.

        Raises: JobStopped.
        """
        try:
            yield
        except PlanStopped as error:
            cause = self.context.stop_cause
            assert cause is not None, "nothing else stops the reading"
            raise JobStopped(cause) from error

    # -- the steps of a sweep

    def was_claimed(self) -> None:
        """Without a ledger a lock of the target keeps others away, and the job's notes count."""
        if not self.claim.has_ledger:
            hold(self.conn, self.claim.resource)
            self.tally.rows = dict(noted_counts(self.context).rows)

    def check(self) -> None:
        """Plan, and fail before the first delete where a reviewed plan does not hold, or a limit is exceeded.

        Raises: JobFailed, JobStopped.
        """
        register_missing(self.context.database, self.conn, self.store.id)
        self.planned = plan = self.plan(is_reviewed=True)
        noted = self.context.checkpoint(CHECKPOINT_LIMITS)
        if noted is not None:
            self.most = noted.get(MOST)
            return
        fault = self.stale_because(plan)
        if fault is not None:
            raise JobFailed("PLAN_NO_LONGER_HOLDS", fault)
        reach = self.reach(plan)
        check_limits(self.store, self.params, reach)
        self.most = most_rows(limits_in_effect(self.store, self.params), whole=reach.whole)
        counted = {"rows": plan.rows, "rows_to_remove": plan.rows_to_remove, MOST: self.most}
        self.context.save_checkpoint(CHECKPOINT_LIMITS, counted)

    def so_far(self) -> Counts:
        """What all attempts have removed."""
        if self.claim.has_ledger:
            return ledger_counts(self.context, self.conn)
        return Counts(self.tally.rows, self.tally.units, is_exact=False)


@contextmanager
def prepared(
    context: JobContext,
    model: type[Model],
    make: Callable[[JobContext, Connection, Store, Model, datetime | None], Made],
    *,
    cutoff: Callable[[Model, datetime], datetime | None],
    not_whole: Callable[[str], str],
) -> Iterator[Made | None]:
    """The replica of a job, ready to be planned; None: it has no tables yet, so there is nothing to purge.

    Args:
        model: of the job's parameters.
        make: the attempt.
        cutoff: what is old, by the parameters and the target's clock; None: nothing.
        not_whole: why a replica of such a status keeps what it has.
    Raises: JobSignal.
    """
    try:
        with asked(context, model, target_fields=target_of_store) as (conn, store, params):
            if find_replica(conn) is None:
                yield None
                return
            status = compare_with_memory(context.database, conn, store.id)
            if status not in TRIMMED:
                raise ReplicaNotWhole(status)
            yield make(
                context, conn, store, params, fixed_instant(context, lambda: cutoff(params, target_now(conn)))
            )
    except ReplicaNotWhole as error:
        code = f"REPLICA_{ReplicaStatus(error.status)}"
        raise JobFailed(code, not_whole(error.status), retryable=True) from error
    except ReplicationRefused as error:
        raise JobFailed(error.code, error.detail) from error


class ReplicaCourse(Course[Unit, UnitResult], Generic[Unit]):
    """Units in order, over the job's own connection; it knows their size and counts them."""

    in_order = True

    def __init__(self, attempt: ReplicaAttempt[Any, Any], *, before: int) -> None:
        """Make one.

        Args:
            attempt: it has planned.
            before: rows that earlier attempts have removed.
        """
        settings, asked_for = attempt.context.settings, attempt.params.rows_in_tx
        most = ROWS_MAX if asked_for is None else min(asked_for, ROWS_MAX)
        self._attempt = attempt
        self._size = UnitSize(
            most_rows=most,
            target_s=settings.purge_unit_target_ms / 1000,
            window_units=1,
            rows=most if asked_for is not None else ROWS_FIRST,
        )
        assert attempt.planned is not None, "planned when it was checked"
        self._before, self._total = before, before + attempt.planned.rows_to_remove
        self._done = 0

    def rows_now(self) -> int:
        """Rows of the next unit."""
        return self._size.within(self._attempt.context.throttle.setting.rows_per_s)

    def allowed(self, spans: Iterable[Span], cut: Callable[[Span, int], Span]) -> Iterator[Span]:
        """Of the next spans what the limits allow still, the last one cut to it.

        Raises: JobFailed: LIMIT_EXCEEDED: nothing may go any more, and something would.
        """
        most, gone = self._attempt.most, self._before + self._done
        for span in spans:
            left = span.rows if most is None else most - gone
            if left <= 0:
                if gone == self._before + self._done:
                    raise JobFailed("LIMIT_EXCEEDED", MORE_CAME.format(gone=gone, most=most))
                return
            found = span if span.rows <= left else cut(span, left)
            gone += found.rows
            yield found

    def count(self, name: str, result: UnitResult, *, elapsed_s: float) -> Charge:
        """Count a unit under a name; what the throttle is charged."""
        attempt = self._attempt
        self._size.learn([elapsed_s])
        self._done += result.rows
        attempt.tally.add(name, result.rows, elapsed_s=elapsed_s)
        if not attempt.claim.has_ledger:
            attempt.context.save_checkpoint(CHECKPOINT_REMOVED, attempt.tally.rows)
        return result.rows, result.archive.bytes if result.archive else 0

    def show(self, *, is_done: bool, force: bool) -> None:
        """Rows that are gone, of those that were to go."""
        done = self._before + self._done
        total = done if is_done else self._total
        self._attempt.context.progress(
            unit=UNIT, done=done, total=total, total_is_estimate=not is_done, force=force
        )
