"""The units of a trimming: which come next, how large they are, what becomes of one that fails.

Nothing is noted but the counts: the lowest records of the changelog are always the next.
"""

import random
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from app.jobs.errors import JobStopped
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import Claimed
from app.replication.replica.replicas import writer_turn
from app.replication.trimming.models import TrimParams
from app.stores.rows import Store
from spark.formats.csn import Csn
from spark.replication.trimming.plan import PlanStopped, TrimPlan, plan_trim
from spark.replication.trimming.units import Span, Trimmed, TrimRules, TrimUnit, TrimWalk, run_trim
from spark.targets.connection import Connection, target_now
from spark.targets.errors import TargetError

CHECKPOINT_REMOVED = "removed"
"""Rows by replica id, where no ledger counts them."""
UNIT = "rows"
ROWS_FIRST = 200
ROWS_MAX = 5_000
ROWS_LEAST = 50
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0
HELD_UP_MAX_CHARS = 200


@dataclass(slots=True)
class Trim:
    """What one attempt carries from step to step."""

    context: JobContext
    conn: Connection
    store: Store
    params: TrimParams
    cutoff: datetime | None
    claimed: Claimed | None = None
    archive: Path | None = None
    removed: dict[int, int] = field(default_factory=dict)
    units: int = 0
    longest_s: float = 0.0

    @property
    def cutoff_s(self) -> int | None:
        """As the lower floor compares it."""
        return None if self.cutoff is None else int(self.cutoff.timestamp())

    def now_s(self) -> int:
        """The target's clock."""
        return int(target_now(self.conn).timestamp())

    def plan(self) -> TrimPlan:
        """Count what would go now."""
        try:
            return plan_trim(
                self.conn,
                cutoff_s=self.cutoff_s,
                max_entries=self.params.max_entries,
                now_s=self.now_s(),
                should_stop=lambda: self.context.stop_cause is not None,
            )
        except PlanStopped as error:
            cause = self.context.stop_cause
            assert cause is not None
            raise JobStopped(cause) from error


def run_units(trim: Trim, plan: TrimPlan, *, before: int) -> None:
    """Remove span after span until nothing more may go.

    Args:
        plan: of this attempt: how many are too many.
        before: rows that earlier attempts have removed.
    Raises: JobStopped; TargetError that is not transient, or came too often.
    """
    reviewed = trim.params.planned_upto
    upto = None if reviewed is None else {rid: Csn(csn) for rid, csn in reviewed.items()}
    walk = TrimWalk(TrimRules(trim.cutoff_s, plan.excess, upto))
    rows = ROWS_FIRST
    done = 0
    while True:
        trim.context.check()
        spans = walk.next_spans(trim.conn, now_s=trim.now_s(), rows_max=_within(trim, rows))
        if not spans:
            break
        for span in spans:
            trimmed, elapsed_s = _run_unit(trim, span)
            walk.note(span, trimmed.rows)
            done += trimmed.rows
            rows = _learned(rows, span.rows, elapsed_s, trim.context.settings.purge_unit_target_ms / 1000)
            _show_progress(trim, before + done, before + plan.rows_to_remove)
    _show_progress(trim, before + done, before + done, force=True)


def _within(trim: Trim, rows: int) -> int:
    """The size of a unit: what was asked for, what was learned, and no burst that the throttle forbids."""
    if trim.params.rows_in_tx is not None:
        rows = min(trim.params.rows_in_tx, ROWS_MAX)
    rate = trim.context.throttle.setting.rows_per_s
    return rows if rate is None else max(1, min(rows, int(rate)))


def _learned(rows: int, done: int, elapsed_s: float, target_s: float) -> int:
    """Half as many after a unit that took too long, more again after short ones."""
    if elapsed_s > target_s:
        return max(ROWS_LEAST, min(rows, done) // 2)
    return min(ROWS_MAX, rows * 2) if done >= rows and elapsed_s < target_s / 2 else rows


def _run_unit(trim: Trim, span: Span) -> tuple[Trimmed, float]:
    """Do one unit, and again as often as a transient error allows."""
    context, claimed = trim.context, trim.claimed
    assert claimed is not None, "nothing is removed without a claim"
    unit = TrimUnit(
        context.job.id,
        span,
        context.job.token,
        claimed.resource,
        has_ledger=claimed.has_ledger,
        archive_dir=None if trim.archive is None else str(trim.archive),
    )
    tries = 0
    while True:
        _wait_for_turn(context, tries)
        began = context.clock.boottime_s()
        try:
            with writer_turn(trim.conn):
                trimmed = run_trim(trim.conn, unit)
        except TargetError as error:
            tries = _again_or_raise(context, error, tries)
            continue
        elapsed_s = context.clock.boottime_s() - began
        if tries:
            context.show_waiting([])
        _account(trim, span, trimmed, elapsed_s)
        return trimmed, elapsed_s


def _again_or_raise(context: JobContext, error: TargetError, tries: int) -> int:
    if context.stop_cause is not None:
        raise JobStopped(context.stop_cause) from error
    if not error.transient or tries >= context.settings.purge_unit_retries_max:
        raise error
    if tries == 1:
        context.show_waiting([WaitingOn(kind=error.code, ref=error.detail[:HELD_UP_MAX_CHARS])])
    return tries + 1


def _wait_for_turn(context: JobContext, tries: int) -> None:
    """Wait for the throttle, and after a failure for a moment more."""
    pause_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2**tries) * (0.5 + random.random()) if tries else 0.0  # noqa: S311
    until_s = context.clock.boottime_s() + pause_s
    while True:
        context.check()
        left_s = max(context.throttle.delay_s(), until_s - context.clock.boottime_s())
        if left_s <= 0:
            return
        context.sleep(left_s)


def _account(trim: Trim, span: Span, trimmed: Trimmed, elapsed_s: float) -> None:
    trim.units += 1
    trim.longest_s = max(trim.longest_s, elapsed_s)
    trim.removed[span.rid] = trim.removed.get(span.rid, 0) + trimmed.rows
    byte_count = trimmed.archive.bytes if trimmed.archive else 0
    trim.context.throttle.charge(rows=trimmed.rows, byte_count=byte_count, worked_s=elapsed_s)
    assert trim.claimed is not None
    if not trim.claimed.has_ledger:
        noted = {str(rid): rows for rid, rows in trim.removed.items()}
        trim.context.save_checkpoint(CHECKPOINT_REMOVED, noted)


def _show_progress(trim: Trim, done: int, total: int, *, force: bool = False) -> None:
    trim.context.progress(unit=UNIT, done=done, total=total, total_is_estimate=not force, force=force)
