"""The course of a purge of tombstones: which of them go next, and how many at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.replication.purges.attempt import ReplicaAttempt, ReplicaCourse
from app.replication.replica.replicas import writer_turn
from app.replication.tombstones.models import TombstoneParams
from app.replication.tombstones.report import reach_of
from app.replication.tombstones.service import fault_of
from app.stores.models import Reach
from app.sweeps.loop import PARTS, Charge
from spark.replication.tombstones.plan import TombstonePlan, plan_tombstones
from spark.replication.tombstones.units import (
    STEP,
    KeySpan,
    TombstoneUnit,
    TombstoneWalk,
    run_tombstones,
    shorter,
)
from spark.targets.connection import Connection
from spark.targets.transaction import UnitResult


@dataclass(slots=True)
class Burial(ReplicaAttempt[TombstoneParams, TombstonePlan]):
    """One attempt at a purge of tombstones."""

    def plan(self, *, is_reviewed: bool = False) -> TombstonePlan:
        """Count what would go now; see ReplicaAttempt."""
        rules = self.params.rules(self.cutoff, is_reviewed=is_reviewed)
        with self.stopping():
            return plan_tombstones(self.conn, rules, now_s=self.now_s(), should_stop=self.is_stopped)

    def stale_because(self, plan: TombstonePlan) -> str | None:
        """Why a reviewed plan does not hold any more."""
        return fault_of(plan, self.params)

    def reach(self, plan: TombstonePlan) -> Reach:
        """What a plan would remove: a part of all entries, live ones among them."""
        return reach_of(plan)


class BurialCourse(ReplicaCourse[TombstoneUnit]):
    """In the order of the keys; a later attempt begins with the first key again, and finds what is left."""

    def __init__(self, burial: Burial, *, before: int) -> None:
        """See ReplicaCourse."""
        super().__init__(burial, before=before)
        self._burial = burial
        self._rules = burial.params.rules(burial.cutoff)
        self._walk = TombstoneWalk(self._rules)

    def next_units(self) -> Iterator[TombstoneUnit] | None:
        """The next span."""
        burial = self._burial
        with burial.stopping():
            span = self._walk.next_span(
                burial.conn, now_s=burial.now_s(), rows_max=self.rows_now(), should_stop=burial.is_stopped
            )
        if span is None:
            return None
        return iter([self._unit(each) for each in self.allowed([span], self._cut)])

    def _cut(self, span: KeySpan, rows: int) -> KeySpan:
        return shorter(self._burial.conn, span, self._rules, rows=rows)

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

    def done(self, unit: TombstoneUnit, result: UnitResult, *, elapsed_s: float) -> Charge | None:
        """Count it, and go on behind it: what was needed by then stays for another purge.

        A unit that was refused, for more may go than it was counted with, is counted anew.
        """
        if result.refused is not None:
            return None
        self._walk.passed(unit.span)
        return self.count(STEP, result, elapsed_s=elapsed_s)

    def parts(self, unit: TombstoneUnit, *, elapsed_s: float) -> Sequence[TombstoneUnit]:
        """Its first part; what follows it comes with a later round."""
        rows = self._size.cut(unit.span.rows, parts=PARTS)
        return [self._unit(self._cut(unit.span, rows))]


def bury_once(conn: Connection, unit: TombstoneUnit) -> UnitResult:
    """One unit, in this process's turn to write.

    Raises: as `run_tombstones`; TargetLockTimeout: other writers of this process took too long.
    """
    with writer_turn(conn):
        return run_tombstones(conn, unit)
