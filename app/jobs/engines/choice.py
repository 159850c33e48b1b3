"""Which engine runs the units of a job: decided when the job runs, from what its target holds then.

The children of a batch share the tasks of Spark: from FLEET_SHARES children on, a fourth of the rows will do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.errors import Conflict
from app.jobs.engines.engine import Engine
from app.jobs.engines.spark_engine import SparkEngine
from app.jobs.errors import JeNotInstalled, SparkDisabled, SparkNotInstalled
from app.jobs.queries import count_siblings
from app.jobs.running.context import JobContext
from app.settings import EngineChoice, Settings
from spark import extras

CHECKPOINT_ENGINE = "engine"
EVENT_ENGINE = "engine"
FLEET_SHARES = 4
Reason = Literal[
    "REQUESTED",
    "ROWS",
    "NO_ESTIMATE",
    "SPARK_DISABLED",
    "SPARK_NOT_INSTALLED",
    "POOL_FAILED",
    "POOL_DRAINING",
    "NO_LEDGER",
    "ARCHIVE_NOT_SHARED",
    "TARGET_ON_THIS_MACHINE",
]


def check_engine(engine: EngineChoice | None, settings: Settings) -> None:
    """Raise SparkDisabled or SparkNotInstalled when a request names an engine that this service has not."""
    if engine == "SPARK" and why_no_spark(settings) is not None:
        raise missing_spark(settings)


def why_no_spark(settings: Settings) -> Literal["SPARK_DISABLED", "SPARK_NOT_INSTALLED"] | None:
    """Why this process has no Spark; None: it has."""
    if not settings.spark.enabled:
        return "SPARK_DISABLED"
    return None if extras.SPARK.is_installed else "SPARK_NOT_INSTALLED"


def missing_spark(settings: Settings) -> Conflict:
    """What somebody is told who wants the Spark that this process has not."""
    return SparkNotInstalled() if why_no_spark(settings) == "SPARK_NOT_INSTALLED" else SparkDisabled()


def check_je(runs_on: Sequence[str], settings: Settings) -> None:
    """Raise JeNotInstalled where this service would run the job, and cannot read the log of an environment.

    Args:
        runs_on: the labels that the store's runners must have.
    """
    if set(runs_on) <= set(settings.labels) and not extras.JE.is_installed:
        raise JeNotInstalled


@dataclass(frozen=True, slots=True)
class Work:
    """What is known of a job's work when its engine is chosen.

    Args:
        rows: estimated; None: nobody knows.
        has_ledger: whether a unit that is done twice changes nothing the second time, and counts once.
        archives: whether its units write files that this process must find.
        is_here: whether its target means something else, or nothing, on another machine.
    """

    requested: EngineChoice
    rows: int | None
    has_ledger: bool
    archives: bool = False
    is_here: bool = False


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of this process; `spark` is None where it is switched off.

    Args:
        why_no_spark: for the job's event, where `spark` is None.
        are_here: whether workers of Spark run on this machine.
        is_shared: whether files that workers of Spark write may be found by this process.
    """

    inline: Engine
    spark: SparkEngine | None = None
    min_rows: int = 100_000
    why_no_spark: Literal["SPARK_DISABLED", "SPARK_NOT_INSTALLED"] = "SPARK_DISABLED"
    are_here: bool = True
    is_shared: bool = True

    def choose(self, context: JobContext, work: Work) -> Engine:
        """The engine of this attempt; the job's row and an event tell which, and why."""
        siblings = context.write(lambda db: count_siblings(db, context.job.id))
        min_rows = self.min_rows // min(FLEET_SHARES, siblings)
        engine, reason = self._choose(work, min_rows)
        shown = {
            "engine": engine.name,
            "reason": reason,
            "requested": work.requested,
            "estimated_rows": work.rows,
            "min_rows": min_rows,
        }
        if context.checkpoint(CHECKPOINT_ENGINE) != shown:
            context.write(lambda db: context.change(db, {"engine": engine.name}, (EVENT_ENGINE, shown)))
            context.save_checkpoint(CHECKPOINT_ENGINE, shown)
            if reason == "POOL_FAILED" and self.spark is not None:
                self.spark.fall_back()
        context.moves_to(pool=engine is self.spark)
        return engine

    def _choose(self, work: Work, min_rows: int) -> tuple[Engine, Reason]:
        if work.requested == "INLINE":
            return self.inline, "REQUESTED"
        if self.spark is None:
            return self.inline, self.why_no_spark
        if not work.has_ledger:
            return self.inline, "NO_LEDGER"
        if work.is_here and not self.are_here:
            return self.inline, "TARGET_ON_THIS_MACHINE"
        if work.archives and not self.is_shared:
            return self.inline, "ARCHIVE_NOT_SHARED"
        if work.requested == "SPARK":
            return self.spark, "REQUESTED"
        if work.rows is None:
            return self.inline, "NO_ESTIMATE"
        if work.rows < min_rows:
            return self.inline, "ROWS"
        state = self.spark.pool.snapshot().state
        if state == "FAILED":
            return self.inline, "POOL_FAILED"
        if state == "DRAINING":
            return self.inline, "POOL_DRAINING"
        return self.spark, "ROWS"
