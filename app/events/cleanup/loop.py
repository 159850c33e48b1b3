"""The course of a cleanup: which units come next, and how many may be under way.

Units take the cluster's lock; those that remove confirmations, or events of different origins, share it and
run beside each other. What comes next is asked of the catalog itself, whose lowest rows are the next. A lock
that is not had is waited for outside of any transaction, with the name of who holds it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from app.events.cleanup.models import CleanupParams
from app.events.cleanup.switch.report import locked_by
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import ThrottleSetting, WaitingOn
from app.sweeps.counts import CHECKPOINT_REMOVED
from app.sweeps.frame import Attempt
from app.sweeps.loop import PARTS, Charge, Course
from app.sweeps.turns import what_holds
from spark.events.cleaning.errors import ClusterLocked
from spark.events.cleaning.records import CleanupPlan, NativeResult
from spark.events.cleanup import ROWS_IN_TX, CleanupWalk
from spark.events.records import Catalog
from spark.events.unit import SHARED_STEPS, CleanupUnit, UnitJob, UnitResult
from spark.targets.errors import TargetError

WORKERS: Final = 2
CHECKPOINT_LOCKED: Final = "locked"
UNIT: Final = "rows"
LOCK_WAIT_MAX: Final = timedelta(minutes=10)
"""For the cluster's lock: cleaners and slonik hold it for seconds."""
LOCK_LOOK_AGAIN: Final = timedelta(seconds=5)


@dataclass(slots=True)
class Cleanup(Attempt[CleanupParams]):
    """What one attempt carries from step to step.

    Attributes:
        plan: what is to go; start: what the first attempt set out to do.
        native: what the cluster's own function did; None: Lethe's statements did it.
        log: what became of the log tables.
    """

    catalog: Catalog
    confirmed_before: datetime
    plan: CleanupPlan | None = None
    start: dict[str, Any] = field(default_factory=dict)
    native: NativeResult | None = None
    log: dict[str, Any] = field(default_factory=dict)
    warnings: list[dict[str, str]] = field(default_factory=list)
    is_as_planned: bool = False
    """Everything below the plan's bounds is gone; nobody need count again."""
    is_cut_short: bool = False
    """More would go by now than the reviewed plan has."""


class CleanupCourse(Course[CleanupUnit, UnitResult]):
    """The units of a plan; units under way are never of the same rows.

    Invariants:
    - of each origin the lowest events go first: no unit is drawn while one that failed is to be tried again,
      and its parts go one after the other;
    - the course ends when the walk has nothing left while nothing is under way.
    """

    in_order = True

    def __init__(self, cleanup: Cleanup, plan: CleanupPlan, job: UnitJob, *, before: int) -> None:
        """Make one.

        Args:
            before: rows that earlier attempts have removed.
        """
        self._cleanup = cleanup
        self._context = cleanup.context
        self._walk = CleanupWalk(plan, cleanup.catalog, job)
        self._has_ledger = job.has_ledger
        self._before = before
        self._total = before + plan.rows_to_remove
        self._is_failing = False
        self._is_done = False
        self._under_way: dict[str, set[int]] = {}
        """Units, and the origins of each."""

    @property
    def held(self) -> list[int]:
        """Origins whose events could not go any more as planned."""
        return list(self._walk.held)

    def next_units(self) -> Iterator[CleanupUnit] | None:
        """Units that may be done side by side, as long as none of them fails."""
        assert self._is_failing or not self._under_way, self._under_way
        self._is_failing = False
        return None if self._is_done else self._draw()

    def _draw(self) -> Iterator[CleanupUnit]:
        """Units of confirmations, and of events, each of another origin."""
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
        is_free = self._has_ledger and self._context.throttle.setting == ThrottleSetting()
        return WORKERS if is_free else 1

    def done(self, unit: CleanupUnit, result: UnitResult, *, elapsed_s: float) -> Charge:
        """Count it by its step."""
        cleanup = self._cleanup
        self._under_way.pop(unit.unit_id, None)
        self._walk.note(unit, result)
        cleanup.tally.add(unit.step, result.rows, elapsed_s=elapsed_s)
        if not self._has_ledger:
            self._context.save_checkpoint(CHECKPOINT_REMOVED, cleanup.tally.rows)
        return result.rows, result.archive.bytes if result.archive else 0

    def failed(self, unit: CleanupUnit) -> None:
        """Nothing else begins before it is done."""
        self._is_failing = True
        self._under_way.pop(unit.unit_id, None)

    def parts(self, unit: CleanupUnit, *, elapsed_s: float) -> Sequence[CleanupUnit]:
        """By origin, then by range."""
        return divide(unit)

    def holders(self, error: TargetError) -> Sequence[WaitingOn]:
        """Of the cluster's lock: whoever has it."""
        if isinstance(error, ClusterLocked):
            return locked_by(self._cleanup.conn, self._cleanup.catalog)
        return what_holds(error)

    def show(self, *, is_done: bool, force: bool) -> None:
        """Rows that are gone, of those that were to go."""
        done = self._before + sum(self._cleanup.tally.rows.values())
        total = done if is_done else self._total
        self._context.progress(unit=UNIT, done=done, total=total, total_is_estimate=not is_done, force=force)


def divide(unit: CleanupUnit) -> list[CleanupUnit]:
    """The parts of a unit that was too long for one statement; itself, where it has none."""
    if len(unit.spans) > 1:
        return [replace(unit, spans=(span,)) for span in unit.spans]
    if not unit.spans or unit.spans[0].lo >= unit.spans[0].hi:
        return [unit]
    [span] = unit.spans
    size = max(1, -(-(span.hi - span.lo + 1) // PARTS))
    starts = range(span.lo, span.hi + 1, size)
    return [replace(unit, spans=(replace(span, lo=lo, hi=min(lo + size - 1, span.hi)),)) for lo in starts]


def wait_for_lock(cleanup: Cleanup, error: ClusterLocked) -> Exception:
    """The wait of a job that does not get the cluster's lock, or its failure after LOCK_WAIT_MAX of that."""
    context = cleanup.context
    now = context.clock.now()
    known = context.checkpoint(CHECKPOINT_LOCKED)
    if known is None or cleanup.tally.units:  # it had the lock in between
        known = {"since": now.isoformat()}
        context.save_checkpoint(CHECKPOINT_LOCKED, known)
    holders = locked_by(cleanup.conn, cleanup.catalog)
    words = "; ".join(item.ref for item in holders)
    if now - datetime.fromisoformat(known["since"]) > LOCK_WAIT_MAX:
        return JobFailed(error.code, f"not had within {LOCK_WAIT_MAX}: {words}", retryable=True)
    return JobWaiting(holders, not_before=now + LOCK_LOOK_AGAIN, detail=words)
