"""The units of a cleanup: few at a time, each tried again as often as a transient error allows.

Units take the cluster's lock; those that remove confirmations, or events of different origins, share it and
run beside each other. What comes next is asked of the catalog itself, whose lowest rows are the next.

Invariants:
- the loop ends when the walk has nothing left, never because a unit was not drawn: a stop may come between
  any two lines;
- a unit that failed is tried again before another one begins, in parts where it was too long;
- between two units the job's stop and its throttle are looked at;
- a cluster's lock that is not had is waited for outside of any transaction, with the name of who holds it.
"""

import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from app.events.cleanup.models import CleanupParams
from app.events.cleanup.switch.report import locked_by
from app.jobs.engines.engine import EngineLease
from app.jobs.errors import JobFailed, JobStopped, JobWaiting
from app.jobs.models import ThrottleSetting, WaitingOn
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import Claimed
from app.stores.rows import Store
from spark.events.cleaning.errors import ClusterLocked
from spark.events.cleaning.records import CleanupPlan, Step
from spark.events.cleanup import ROWS_IN_TX, CleanupWalk
from spark.events.records import Catalog
from spark.events.unit import SHARED_STEPS, CleanupUnit, Span, UnitJob, UnitResult, make_durable
from spark.targets.connection import Connection
from spark.targets.errors import TargetError, TargetStatementTimeout
from spark.targets.work import Outcome

WORKERS: Final = 2
CHECKPOINT_REMOVED: Final = "removed"
"""Rows by step, where no ledger counts them."""
CHECKPOINT_LOCKED: Final = "locked"
UNIT: Final = "rows"
RETRY_FIRST_S: Final = 0.05
RETRY_MAX_S: Final = 2.0
HELD_UP_MAX_CHARS: Final = 200
LOCK_WAIT_MAX: Final = timedelta(minutes=10)
"""For the cluster's lock: cleaners and slonik hold it for seconds."""
LOCK_LOOK_AGAIN: Final = timedelta(seconds=5)
CleanupLease = EngineLease[CleanupUnit, UnitResult]


@dataclass(slots=True)
class Cleanup:
    """What one attempt carries from step to step."""

    context: JobContext
    conn: Connection
    store: Store
    params: CleanupParams
    catalog: Catalog
    confirmed_before: datetime
    claimed: Claimed | None = None
    removed: Counter[Step] = field(default_factory=Counter)
    units: int = 0
    longest_s: float = 0.0
    warnings: list[dict[str, str]] = field(default_factory=list)
    is_as_planned: bool = False
    """Everything below the plan's bounds is gone; nobody need count again."""
    is_cut_short: bool = False
    """More would go by now than the reviewed plan has."""


class CleanupLoop:
    """Runs the units of a plan on borrowed workers."""

    def __init__(
        self, cleanup: Cleanup, lease: CleanupLease, plan: CleanupPlan, *, archive: str | None, before: int
    ) -> None:
        claimed, context = cleanup.claimed, cleanup.context
        assert claimed is not None, "nothing is removed without a claim"
        job = UnitJob(
            context.job.id, context.job.token, claimed.resource, claimed.has_ledger, archive_dir=archive
        )
        self._cleanup = cleanup
        self._context = context
        self._lease = lease
        self._job = job
        self._walk = CleanupWalk(plan, cleanup.catalog, job)
        self._before = before
        self._total = before + plan.rows_to_remove
        self._is_held_up = False
        self._is_failing = False
        self._is_done = False
        self._under_way: dict[str, set[int]] = {}
        """Units, and the origins of each."""

    def run(self) -> list[int]:
        """Run to the end; origins whose events could not go any more as planned.

        Raises: JobStopped at a safe point; TargetError when a unit failed for good or too often.
        """
        self._show_progress(force=True)
        while not self._is_done:
            self._context.check()
            self._wait_for_turn(0)
            pending = self._run(self._draw(), 0)
            while pending:  # what failed is done again, one after the other
                part, tries = pending.popleft()
                self._wait_for_turn(tries)
                pending.extendleft(reversed(self._run(iter([part]), tries)))
        if self._job.has_ledger:
            make_durable(self._cleanup.conn, self._job)
        self._show_progress(is_done=True, force=True)
        return list(self._walk.held)

    def _draw(self) -> Iterator[CleanupUnit]:
        """Units that may be done side by side: of confirmations, and of events, each of another origin."""
        while self._has_room() and not self._is_failing and self._context.stop_cause is None:
            busy = set().union(*self._under_way.values())
            unit = self._walk.next_unit(self._cleanup.conn, rows_max=self._rows_max(), busy=busy)
            if unit is None:
                self._is_done = not self._under_way
                return
            self._under_way[unit.unit_id] = {span.origin for span in unit.spans}
            yield unit
            if unit.step not in SHARED_STEPS or self._width() == 1:
                return

    def _rows_max(self) -> int:
        """The size of a unit: what was asked for, and no burst that the throttle forbids."""
        rows = self._cleanup.params.max_rows_in_tx or ROWS_IN_TX
        rate = self._context.throttle.setting.rows_per_s
        return rows if rate is None else max(1, min(rows, int(rate)))

    def _has_room(self) -> bool:
        return len(self._under_way) < self._width()

    def _width(self) -> int:
        """How many units may be under way: a throttle is asked between two, an advisory lock lets in one."""
        claimed = self._cleanup.claimed
        assert claimed is not None, "nothing is removed without a claim"
        is_free = claimed.has_ledger and self._context.throttle.setting == ThrottleSetting()
        return WORKERS if is_free else 1

    def _run(self, units: Iterator[CleanupUnit], tries: int) -> deque[tuple[CleanupUnit, int]]:
        """Run units once; what is to be tried again, and how often it was tried."""
        failed = []
        for outcome in self._lease.map(units):
            self._under_way.pop(outcome.unit.unit_id, None)
            if outcome.error is None:
                self._account(outcome)
                self._show_progress()
            else:
                self._is_failing = True
                failed.append((outcome.unit, outcome.error))
        self._is_failing = False
        self._under_way.clear()
        again: deque[tuple[CleanupUnit, int]] = deque()
        for unit, error in failed:
            self._retry_or_raise(error, tries)
            parts = divide(unit) if isinstance(error, TargetStatementTimeout) else [unit]
            again.extend((part, tries + 1) for part in parts)
        return again

    def _wait_for_turn(self, tries: int) -> None:
        """Wait for the throttle, and after a failure for a moment more."""
        clock = self._context.clock
        pause_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2**tries) * (0.5 + random.random()) if tries else 0.0  # noqa: S311
        until_s = clock.boottime_s() + pause_s
        while True:
            self._context.check()
            left_s = max(self._context.throttle.delay_s(), until_s - clock.boottime_s())
            if left_s <= 0:
                return
            self._context.sleep(left_s)

    def _retry_or_raise(self, error: TargetError, tries: int) -> None:
        cause = self._context.stop_cause
        if cause is not None:
            raise JobStopped(cause) from error
        if not error.transient or tries >= self._context.settings.purge_unit_retries_max:
            raise error
        if tries == 1:
            self._is_held_up = True
            shown = [WaitingOn(kind=error.code, ref=error.detail[:HELD_UP_MAX_CHARS])]
            if isinstance(error, ClusterLocked):
                shown = locked_by(self._cleanup.conn, self._cleanup.catalog)
            self._context.show_waiting(shown)

    def _account(self, outcome: Outcome[CleanupUnit, UnitResult]) -> None:
        result, cleanup = outcome.result, self._cleanup
        assert result is not None
        if self._is_held_up:
            self._is_held_up = False
            self._context.show_waiting([])
        self._walk.note(outcome.unit, result)
        cleanup.units += 1
        cleanup.removed[outcome.unit.step] += result.rows
        cleanup.longest_s = max(cleanup.longest_s, outcome.elapsed_s)
        byte_count = result.archive.bytes if result.archive else 0
        self._context.throttle.charge(rows=result.rows, byte_count=byte_count, worked_s=outcome.elapsed_s)
        assert cleanup.claimed is not None
        if not cleanup.claimed.has_ledger:
            self._context.save_checkpoint(
                CHECKPOINT_REMOVED, {str(step): rows for step, rows in cleanup.removed.items()}
            )

    def _show_progress(self, *, is_done: bool = False, force: bool = False) -> None:
        done = self._before + sum(self._cleanup.removed.values())
        total = done if is_done else self._total
        self._context.progress(unit=UNIT, done=done, total=total, total_is_estimate=not is_done, force=force)


def divide(unit: CleanupUnit) -> list[CleanupUnit]:
    """The parts of a unit that was too long for one statement; itself, where it has none."""
    if len(unit.spans) > 1:
        return [replace(unit, spans=(span,)) for span in unit.spans]
    if not unit.spans or unit.spans[0].lo >= unit.spans[0].hi:
        return [unit]
    [span] = unit.spans
    middle = (span.lo + span.hi) // 2
    halves: tuple[Span, ...] = (replace(span, hi=middle), replace(span, lo=middle + 1))
    return [replace(unit, spans=(half,)) for half in halves]


def wait_for_lock(cleanup: Cleanup, error: ClusterLocked) -> Exception:
    """The wait of a job that does not get the cluster's lock, or its failure after LOCK_WAIT_MAX of that."""
    context = cleanup.context
    now = context.clock.now()
    known = context.checkpoint(CHECKPOINT_LOCKED)
    if known is None or cleanup.units:  # it had the lock in between
        known = {"since": now.isoformat()}
        context.save_checkpoint(CHECKPOINT_LOCKED, known)
    holders = locked_by(cleanup.conn, cleanup.catalog)
    words = "; ".join(item.ref for item in holders)
    if now - datetime.fromisoformat(known["since"]) > LOCK_WAIT_MAX:
        return JobFailed(error.code, f"not had within {LOCK_WAIT_MAX}: {words}", retryable=True)
    return JobWaiting(holders, not_before=now + LOCK_LOOK_AGAIN, detail=words)
