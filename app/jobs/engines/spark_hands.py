"""Hands of an erasure: which engine they work on, and how they borrow a slot of the pool.

Invariants:
- a job waits for the pool where everybody sees it (waiting_on SPARK_POOL), and stays stoppable meanwhile;
- hands never take the pool's last slot, which units of other jobs may need, unless it has no other.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from app.jobs.engines.choice import (
    CHECKPOINT_ENGINE,
    EVENT_ENGINE,
    WhyInline,
    least_of,
    why_inline,
    why_no_spark,
)
from app.jobs.engines.spark_engine import NOT_YET, QUEUE_RETRY_S, SPARK_POOL
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.kit.spark.calibration import thresholds_of
from app.kit.spark.thresholds import Threshold
from app.settings import EngineChoice, Settings
from spark import extras
from spark.erase.hands.child import ChildHands
from spark.erase.hands.hands import Hands
from spark.formats.je.log import FILE_NAME
from spark.pool.errors import LeaseRefused, LeaseWaitEnded, PoolQueueFull

if TYPE_CHECKING:  # they need the extra `spark`
    from app.jobs.engines.spark_service import SparkService
    from spark.pool.lease import Lease

BORROW_WAIT_S = 20.0
"""So long a job waits for a slot, or for the pool to come up, before it is put aside."""
START_RETRY_S = 10.0
HANDS_FULL = "HANDS_FULL"
EngineName = Literal["INLINE", "SPARK"]
Reason = (
    Literal["REQUESTED", "LOG_SIZE", "SPARK_DISABLED", "SPARK_NOT_INSTALLED", "DIRECTORY_ON_THIS_MACHINE"]
    | WhyInline
)


@dataclass(frozen=True, slots=True)
class HandsSource:
    """Where hands come from in this process; `spark` is None where it is switched off."""

    settings: Settings
    spark: "SparkService | None" = None
    make_inline: Callable[[], Hands] = ChildHands

    def take(
        self, context: JobContext, requested: EngineChoice | None, *, directory: Path
    ) -> tuple[Hands, EngineName]:
        """Take hands for a job; the job's row and an event tell which engine, and why.

        Args:
            requested: by the request; None: the service's default.
            directory: of the environment.
        Raises: JobWaiting: the pool cannot serve now. JobStopped: while it was waited for. JobFailed:
            JE_NOT_INSTALLED, by a process that lacks the extra.
        """
        if not extras.JE.is_installed:
            raise JobFailed("JE_NOT_INSTALLED", f"no compiler for its loops here: {extras.JE.command}")
        wanted = requested or self.settings.engine
        size = log_bytes(directory)
        threshold = thresholds_of(self.settings)["ERASURE"]
        engine, reason = self.choose(wanted, size=size, threshold=threshold)
        pool = None if self.spark is None else self.spark.pool.snapshot()
        shown = {
            "engine": engine,
            "reason": reason,
            "requested": wanted,
            "log_bytes": size,
            "min_bytes": least_of(threshold, pool, siblings=1),
            "threshold_source": threshold.source,
        }
        if context.checkpoint(CHECKPOINT_ENGINE) != shown:
            context.write(lambda db: context.change(db, {"engine": engine}, (EVENT_ENGINE, shown)))
            context.save_checkpoint(CHECKPOINT_ENGINE, shown)
            if reason == "POOL_FAILED" and self.spark is not None:
                self.spark.engine.fall_back()
        if engine == "INLINE":
            context.moves_to(pool=False)
            return self.make_inline(), engine
        assert self.spark is not None
        context.moves_to(pool=True)
        return borrow_spark_hands(self.spark, context), engine

    def choose(
        self, wanted: EngineChoice, *, size: int, threshold: Threshold | None = None
    ) -> tuple[EngineName, Reason]:
        """Choose the engine for a log of so many bytes, and say why.

        Args:
            threshold: None: what holds now.
        """
        if wanted == "INLINE":
            return "INLINE", "REQUESTED"
        if self.spark is None:
            return "INLINE", why_no_spark(self.settings) or "SPARK_DISABLED"
        if not self.settings.executors_are_here:
            # Its control file and JE's locks hold on one machine only.
            return "INLINE", "DIRECTORY_ON_THIS_MACHINE"
        if wanted == "SPARK":
            return "SPARK", "REQUESTED"
        pool = self.spark.pool.snapshot()
        holding = threshold or thresholds_of(self.settings)["ERASURE"]
        against = why_inline(size, holding, pool, least_of(holding, pool, siblings=1))
        if against is None:
            return "SPARK", "LOG_SIZE"
        return "INLINE", "LOG_SIZE" if against == "ROWS" else against


def log_bytes(directory: Path) -> int:
    """Add up the log files of a directory; 0 where it cannot be looked at, which others will find too."""
    total = 0
    with suppress(OSError), os.scandir(directory) as found:
        for entry in found:
            if FILE_NAME.fullmatch(entry.name):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def borrow_spark_hands(spark: "SparkService", context: JobContext) -> Hands:
    """Borrow a slot of the pool for hands, until they are closed; the pool is started where it does not run.

    Raises: JobWaiting: no slot within BORROW_WAIT_S, the queue is full, or the pool has been given up.
        JobStopped: meanwhile.
    """
    # The plan's compiler is a second of a start: only who erases on Spark loads it.
    from spark.erase.run import SparkHands

    spark.engine.start()
    if not spark.hands_room.acquire(blocking=False):
        raise spark.engine.waiting(HANDS_FULL, after_s=QUEUE_RETRY_S)
    with ExitStack() as undo:
        undo.callback(spark.hands_room.release)
        hands = SparkHands(_lease(spark, context), given_back=spark.hands_room.release)
        undo.pop_all()
    return hands


def _lease(spark: "SparkService", context: JobContext) -> "Lease":
    found = spark.pool.snapshot()
    must_wait = found.state in NOT_YET or all(slot.state != "IDLE" for slot in found.slots)
    if must_wait:
        context.show_waiting([WaitingOn(kind=SPARK_POOL, ref=found.state)])
    try:
        lease = spark.pool.lease(
            job_id=context.job.id,
            job_class="BULK",
            should_stop=lambda: context.stop_cause is not None,
            wait_s=BORROW_WAIT_S,
        )
    except LeaseRefused as refused:
        raise _waiting(spark, context, refused) from refused
    if must_wait:
        context.show_waiting([])
    return lease


def _waiting(spark: "SparkService", context: JobContext, refused: LeaseRefused) -> JobWaiting:
    if isinstance(refused, PoolQueueFull):
        return spark.engine.waiting("QUEUE_FULL", after_s=refused.retry_after_s)
    if isinstance(refused, LeaseWaitEnded):
        context.check()
        return spark.engine.waiting(spark.pool.snapshot().state, after_s=START_RETRY_S)
    return spark.engine.refused(refused.detail)
