"""The course of a purge of tombstones: which of them go next, and how many at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.jobs.errors import JobStopped
from app.replication.replica.replicas import writer_turn
from app.replication.tombstones.models import TombstoneParams
from app.sweeps.counts import CHECKPOINT_REMOVED
from app.sweeps.frame import Attempt
from app.sweeps.loop import PARTS, Charge, Course
from app.sweeps.sizing import UnitSize
from spark.replication.tombstones.plan import TombstonePlan, TombstonePlanStopped, plan_tombstones
from spark.replication.tombstones.units import (
    STEP,
    KeySpan,
    TombstoneUnit,
    TombstoneWalk,
    run_tombstones,
    shorter,
)
from spark.targets.connection import Connection, target_now
from spark.targets.transaction import UnitResult

UNIT = "rows"
ROWS_FIRST = 200
ROWS_MAX = 5_000


@dataclass(slots=True)
class Burial(Attempt[TombstoneParams]):
    """What one attempt carries from step to step; `planned` is what it is to remove."""

    cutoff: datetime | None
    planned: TombstonePlan | None = None

    def now_s(self) -> int:
        """The target's clock."""
        return int(target_now(self.conn).timestamp())

    def plan(self, *, is_reviewed: bool = False) -> TombstonePlan:
        """Count what would go now.

        Args:
            is_reviewed: only of what the executed plan has.
        """
        rules = self.params.rules(self.cutoff, is_reviewed=is_reviewed)
        try:
            return plan_tombstones(self.conn, rules, now_s=self.now_s(), should_stop=self.is_stopped)
        except TombstonePlanStopped as error:
            raise self.stopped() from error

    def is_stopped(self) -> bool:
        """Whether the job must stop."""
        return self.context.stop_cause is not None

    def stopped(self) -> JobStopped:
        """What ends the attempt where `is_stopped`."""
        cause = self.context.stop_cause
        assert cause is not None, "nothing else stops the reading"
        return JobStopped(cause)


class BurialCourse(Course[TombstoneUnit, UnitResult]):
    """In the order of the keys; a later attempt begins with the first key again, and finds what is left."""

    in_order = True

    def __init__(self, burial: Burial, plan: TombstonePlan, *, before: int) -> None:
        """Make one.

        Args:
            plan: of this attempt: how many are to go.
            before: rows that earlier attempts have removed.
        """
        settings, asked = burial.context.settings, burial.params.rows_in_tx
        most = ROWS_MAX if asked is None else min(asked, ROWS_MAX)
        self._burial = burial
        self._rules = burial.params.rules(burial.cutoff)
        self._walk = TombstoneWalk(self._rules)
        self._size = UnitSize(
            most_rows=most,
            target_s=settings.purge_unit_target_ms / 1000,
            window_units=1,
            rows=most if asked is not None else ROWS_FIRST,
        )
        self._before, self._total = before, before + plan.rows_to_remove
        self._done = 0

    def next_units(self) -> Iterator[TombstoneUnit] | None:
        """The next span."""
        burial = self._burial
        rows = self._size.within(burial.context.throttle.setting.rows_per_s)
        try:
            span = self._walk.next_span(
                burial.conn, now_s=burial.now_s(), rows_max=rows, should_stop=burial.is_stopped
            )
        except TombstonePlanStopped as error:
            raise burial.stopped() from error
        return None if span is None else iter([self._unit(span)])

    def _unit(self, span: KeySpan) -> TombstoneUnit:
        burial = self._burial
        job, claimed, archive = burial.context.job, burial.claim, burial.archive
        return TombstoneUnit(
            job.id,
            span,
            self._rules,
            job.token,
            claimed.resource,
            now_s=int(burial.context.clock.now().timestamp()),
            has_ledger=claimed.has_ledger,
            archive_dir=None if archive is None else str(archive),
        )

    def done(self, unit: TombstoneUnit, result: UnitResult, *, elapsed_s: float) -> Charge:
        """Count it, and go on behind it: what was needed by then stays for another purge."""
        burial = self._burial
        self._walk.passed(unit.span)
        self._size.learn([elapsed_s])
        self._done += result.rows
        burial.tally.add(STEP, result.rows, elapsed_s=elapsed_s)
        if not burial.claim.has_ledger:
            burial.context.save_checkpoint(CHECKPOINT_REMOVED, burial.tally.rows)
        return result.rows, result.archive.bytes if result.archive else 0

    def parts(self, unit: TombstoneUnit, *, elapsed_s: float) -> Sequence[TombstoneUnit]:
        """Its first part; what follows it comes with a later round."""
        rows = self._size.cut(unit.span.rows, parts=PARTS)
        return [self._unit(shorter(self._burial.conn, unit.span, self._rules, rows=rows))]

    def show(self, *, is_done: bool, force: bool) -> None:
        """Rows that are gone, of those that were to go."""
        done = self._before + self._done
        total = done if is_done else self._total
        self._burial.context.progress(
            unit=UNIT, done=done, total=total, total_is_estimate=not is_done, force=force
        )


def bury_once(conn: Connection, unit: TombstoneUnit) -> UnitResult:
    """One unit, in this process's turn to write.

    Raises: as `run_tombstones`; TargetLockTimeout: other writers of this process took too long.
    """
    with writer_turn(conn):
        return run_tombstones(conn, unit)
