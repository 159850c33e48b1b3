"""The course of a trimming: which records go next, and how many at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.jobs.errors import JobStopped
from app.replication.replica.replicas import writer_turn
from app.replication.trimming.models import TrimParams
from app.sweeps.counts import CHECKPOINT_REMOVED
from app.sweeps.frame import Attempt
from app.sweeps.loop import PARTS, Charge, Course
from app.sweeps.sizing import UnitSize
from spark.replication.trimming.plan import PlanStopped, TrimPlan, plan_trim
from spark.replication.trimming.units import Span, TrimRules, TrimUnit, TrimWalk, run_trim, shorter
from spark.targets.connection import Connection, target_now
from spark.targets.transaction import UnitResult

UNIT = "rows"
ROWS_FIRST = 200
ROWS_MAX = 5_000


@dataclass(slots=True)
class Trim(Attempt[TrimParams]):
    """What one attempt carries from step to step; `planned` is what it is to remove."""

    cutoff: datetime | None
    planned: TrimPlan | None = None

    @property
    def cutoff_s(self) -> int | None:
        """As the lower floor compares it."""
        return None if self.cutoff is None else int(self.cutoff.timestamp())

    def now_s(self) -> int:
        """The target's clock."""
        return int(target_now(self.conn).timestamp())

    def plan(self, *, is_reviewed: bool = False) -> TrimPlan:
        """Count what would go now.

        Args:
            is_reviewed: only of what the executed plan has.
        """
        try:
            return plan_trim(
                self.conn,
                cutoff_s=self.cutoff_s,
                max_entries=self.params.max_entries,
                now_s=self.now_s(),
                should_stop=lambda: self.context.stop_cause is not None,
                reviewed=self.params.reviewed if is_reviewed else None,
            )
        except PlanStopped as error:
            cause = self.context.stop_cause
            assert cause is not None
            raise JobStopped(cause) from error


class TrimCourse(Course[TrimUnit, UnitResult]):
    """From the oldest records on; nothing is noted but counts: the lowest records are always the next.

    Invariants:
    - of each replica id a prefix goes: of a unit that was too long only its first part is tried again, and
      what follows it comes with a later round.
    """

    in_order = True

    def __init__(self, trim: Trim, plan: TrimPlan, *, before: int) -> None:
        """Make one.

        Args:
            plan: of this attempt: how many are too many.
            before: rows that earlier attempts have removed.
        """
        settings, asked = trim.context.settings, trim.params.rows_in_tx
        most = ROWS_MAX if asked is None else min(asked, ROWS_MAX)
        self._trim = trim
        self._walk = TrimWalk(TrimRules(trim.cutoff_s, plan.excess, trim.params.reviewed))
        self._size = UnitSize(
            most_rows=most,
            target_s=settings.purge_unit_target_ms / 1000,
            window_units=1,
            rows=most if asked is not None else ROWS_FIRST,
        )
        self._before, self._total = before, before + plan.rows_to_remove
        self._done = 0

    def next_units(self) -> Iterator[TrimUnit] | None:
        """A span of each replica id."""
        trim = self._trim
        rows = self._size.within(trim.context.throttle.setting.rows_per_s)
        spans = self._walk.next_spans(trim.conn, now_s=trim.now_s(), rows_max=rows)
        return iter([self._unit(span) for span in spans]) if spans else None

    def _unit(self, span: Span) -> TrimUnit:
        job, claimed, archive = self._trim.context.job, self._trim.claim, self._trim.archive
        return TrimUnit(
            job.id,
            span,
            job.token,
            claimed.resource,
            has_ledger=claimed.has_ledger,
            archive_dir=None if archive is None else str(archive),
        )

    def done(self, unit: TrimUnit, result: UnitResult, *, elapsed_s: float) -> Charge:
        """Count it by its replica id."""
        trim = self._trim
        self._walk.note(unit.span, result.rows)
        self._size.learn([elapsed_s])
        self._done += result.rows
        trim.tally.add(str(unit.span.rid), result.rows, elapsed_s=elapsed_s)
        if not trim.claim.has_ledger:
            trim.context.save_checkpoint(CHECKPOINT_REMOVED, trim.tally.rows)
        return result.rows, result.archive.bytes if result.archive else 0

    def parts(self, unit: TrimUnit, *, elapsed_s: float) -> Sequence[TrimUnit]:
        """Its first part."""
        rows = self._size.cut(unit.span.rows, parts=PARTS)
        return [self._unit(shorter(self._trim.conn, unit.span, rows=rows))]

    def show(self, *, is_done: bool, force: bool) -> None:
        """Rows that are gone, of those that were to go."""
        done = self._before + self._done
        total = done if is_done else self._total
        self._trim.context.progress(
            unit=UNIT, done=done, total=total, total_is_estimate=not is_done, force=force
        )


def trim_once(conn: Connection, unit: TrimUnit) -> UnitResult:
    """One unit, in this process's turn to write.

    Raises: as `run_trim`; TargetLockTimeout: other writers of this process took too long.
    """
    with writer_turn(conn):
        return run_trim(conn, unit)
