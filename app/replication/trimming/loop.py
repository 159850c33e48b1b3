"""The course of a trimming: which records go next, and how many at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.replication.purges.attempt import ReplicaAttempt, ReplicaCourse
from app.replication.replica.replicas import writer_turn
from app.replication.trimming.models import TrimParams
from app.replication.trimming.report import reach_of
from app.replication.trimming.service import fault_of
from app.stores.models import Reach
from app.sweeps.loop import PARTS, Charge
from spark.replication.trimming.plan import TrimPlan, plan_trim
from spark.replication.trimming.units import Span, TrimRules, TrimUnit, TrimWalk, run_trim, shorter
from spark.targets.connection import Connection
from spark.targets.transaction import UnitResult


@dataclass(slots=True)
class Trim(ReplicaAttempt[TrimParams, TrimPlan]):
    """One attempt at a trimming."""

    @property
    def cutoff_s(self) -> int | None:
        """As the lower floor compares it."""
        return None if self.cutoff is None else int(self.cutoff.timestamp())

    def plan(self, *, is_reviewed: bool = False) -> TrimPlan:
        """Count what would go now; see ReplicaAttempt."""
        with self.stopping():
            return plan_trim(
                self.conn,
                cutoff_s=self.cutoff_s,
                max_entries=self.params.max_entries,
                now_s=self.now_s(),
                should_stop=self.is_stopped,
                reviewed=self.params.reviewed if is_reviewed else None,
            )

    def stale_because(self, plan: TrimPlan) -> str | None:
        """Why a reviewed plan does not hold any more."""
        return fault_of(plan, self.params)

    def reach(self, plan: TrimPlan) -> Reach:
        """What a plan would remove."""
        return reach_of(plan)


class TrimCourse(ReplicaCourse[TrimUnit]):
    """From the oldest records on; nothing is noted but counts: the lowest records are always the next.

    Invariants:
    - of each replica id a prefix goes: of a unit that was too long only its first part is tried again, and
      what follows it comes with a later round.
    """

    def __init__(self, trim: Trim, *, before: int) -> None:
        """See ReplicaCourse."""
        super().__init__(trim, before=before)
        assert trim.planned is not None, "planned when it was checked"
        self._trim = trim
        self._walk = TrimWalk(TrimRules(trim.cutoff_s, trim.planned.excess, trim.params.reviewed))

    def next_units(self) -> Iterator[TrimUnit] | None:
        """A span of each replica id."""
        trim = self._trim
        spans = self._walk.next_spans(trim.conn, now_s=trim.now_s(), rows_max=self.rows_now())
        found = list(self.allowed(spans, lambda span, rows: shorter(trim.conn, span, rows=rows)))
        return iter([self._unit(span) for span in found]) if found else None

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
        self._walk.note(unit.span, result.rows)
        return self.count(str(unit.span.rid), result, elapsed_s=elapsed_s)

    def parts(self, unit: TrimUnit, *, elapsed_s: float) -> Sequence[TrimUnit]:
        """Its first part."""
        rows = self._size.cut(unit.span.rows, parts=PARTS)
        return [self._unit(shorter(self._trim.conn, unit.span, rows=rows))]


def trim_once(conn: Connection, unit: TrimUnit) -> UnitResult:
    """One unit, in this process's turn to write.

    Raises: as `run_trim`; TargetLockTimeout: other writers of this process took too long.
    """
    with writer_turn(conn):
        return run_trim(conn, unit)
