"""Which engine runs the units of a job: decided when the job runs, from what its target holds then.

Rules:
- AUTO goes by the threshold of the job's kind of work, and by whether the pool is up, cold or busy;
- the children of a batch share the tasks of Spark: from FLEET_SHARES children on, a fourth of the rows will
  do, and the start of a cold pool is theirs together;
- a threshold that a setting names is an order: it holds for a pool that is cold or busy, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from app.errors import Conflict
from app.jobs.engines.engine import Engine
from app.jobs.engines.spark_engine import SparkEngine
from app.jobs.errors import JeNotInstalled, SparkDisabled, SparkNotInstalled
from app.jobs.queries import count_siblings
from app.jobs.running.context import JobContext
from app.kit.spark.thresholds import HERE, UNITS, SizeUnit, Threshold, ThresholdsNow, WorkKind
from app.settings import EngineChoice, Settings
from spark import extras
from spark.pool.snapshot import PoolSnapshot

CHECKPOINT_ENGINE = "engine"
EVENT_ENGINE = "engine"
FLEET_SHARES = 4
BUSY_S = 2.0
"""A pool is busy where somebody has waited for a slot for so long."""
Reason = Literal[
    "REQUESTED",
    "ROWS",
    "ARCHIVE_SIZE",
    "NO_ESTIMATE",
    "NO_GAIN",
    "POOL_COLD",
    "POOL_BUSY",
    "SPARK_DISABLED",
    "SPARK_NOT_INSTALLED",
    "POOL_FAILED",
    "POOL_DRAINING",
    "NO_LEDGER",
    "ARCHIVE_NOT_SHARED",
    "TARGET_ON_THIS_MACHINE",
]
SHOWN_AS: Final[Mapping[SizeUnit, tuple[str, str]]] = {
    "ROWS": ("estimated_rows", "min_rows"),
    "CHANGES": ("estimated_rows", "min_rows"),
    "BYTES": ("archive_bytes", "min_bytes"),
}
"""What the event calls the size of the work, and its threshold; here only archives are counted in bytes."""


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
        archives: whether its units write files that this process must find, or read such as it has.
        is_here: whether its target means something else, or nothing, on another machine.
        kind: which threshold AUTO goes by; `rows` counts changes of a WINDOW, bytes of a VERIFICATION.
    """

    requested: EngineChoice
    rows: int | None
    has_ledger: bool
    archives: bool = False
    is_here: bool = False
    kind: WorkKind = "PURGE"


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of this process; `spark` is None where it is switched off.

    Args:
        thresholds: tells from how much work on AUTO takes Spark.
        why_no_spark: for the job's event, where `spark` is None.
        are_here: whether workers of Spark run on this machine.
        is_shared: whether workers of Spark and this process may find each other's files.
    """

    inline: Engine
    spark: SparkEngine | None = None
    thresholds: ThresholdsNow = lambda: HERE
    why_no_spark: Literal["SPARK_DISABLED", "SPARK_NOT_INSTALLED"] = "SPARK_DISABLED"
    are_here: bool = True
    is_shared: bool = True

    def enough(self, kind: WorkKind) -> int | None:
        """From how much work on AUTO takes Spark now, of a job that is no child; None: however much it is."""
        return least_of(self.thresholds()[kind], self._pool(), siblings=1)

    def _pool(self) -> PoolSnapshot | None:
        return None if self.spark is None else self.spark.pool.snapshot()

    def choose(self, context: JobContext, work: Work) -> Engine:
        """The engine of this attempt; the job's row and an event tell which, and why."""
        siblings = context.read(lambda db: count_siblings(db, context.job.id))
        threshold = self.thresholds()[work.kind]
        pool = self._pool()
        least = least_of(threshold, pool, siblings=siblings)
        engine, reason = self._choose(work, threshold, pool, least)
        size_name, least_name = SHOWN_AS[UNITS[work.kind]]
        shown = {
            "engine": engine.name,
            "reason": reason,
            "requested": work.requested,
            size_name: work.rows,
            least_name: least,
            "threshold_source": threshold.source,
        }
        if context.checkpoint(CHECKPOINT_ENGINE) != shown:
            context.write(lambda db: context.change(db, {"engine": engine.name}, (EVENT_ENGINE, shown)))
            context.save_checkpoint(CHECKPOINT_ENGINE, shown)
            if reason == "POOL_FAILED" and self.spark is not None:
                self.spark.fall_back()
        context.moves_to(pool=engine is self.spark)
        return engine

    def _choose(
        self, work: Work, threshold: Threshold, pool: PoolSnapshot | None, least: int | None
    ) -> tuple[Engine, Reason]:
        if work.requested == "INLINE":
            return self.inline, "REQUESTED"
        if self.spark is None or pool is None:
            return self.inline, self.why_no_spark
        if not work.has_ledger:
            return self.inline, "NO_LEDGER"
        if work.is_here and not self.are_here:
            return self.inline, "TARGET_ON_THIS_MACHINE"
        if work.archives and not self.is_shared:
            return self.inline, "ARCHIVE_NOT_SHARED"
        if work.requested == "SPARK":
            return self.spark, "REQUESTED"
        against = why_inline(work.rows, threshold, pool, least)
        by_size: Reason = "ARCHIVE_SIZE" if work.kind == "VERIFICATION" else "ROWS"
        if against is None:
            return self.spark, by_size
        return self.inline, by_size if against == "ROWS" else against


WhyInline = Literal[
    "ROWS", "NO_ESTIMATE", "NO_GAIN", "POOL_COLD", "POOL_BUSY", "POOL_FAILED", "POOL_DRAINING"
]


def least_of(threshold: Threshold, pool: PoolSnapshot | None, *, siblings: int) -> int | None:
    """From how much work of one job on Spark is taken now; None: whatever the size, it is not.

    Args:
        siblings: children of the same batch, the job among them.
    """
    if threshold.least is None or threshold.least_cold is None:
        return None
    shared = threshold.least // min(FLEET_SHARES, siblings)
    if threshold.source == "SETTING" or is_up(pool):
        return shared
    return max(shared, threshold.least_cold // siblings)


def why_inline(
    size: int | None, threshold: Threshold, pool: PoolSnapshot, least: int | None
) -> WhyInline | None:
    """Why AUTO does not take Spark; None: it does.

    Args:
        size: of the work, in the threshold's unit; None: nobody knows.
        least: `least_of` the threshold.
    """
    if least is None:
        return "NO_GAIN"
    if size is None:
        return "NO_ESTIMATE"
    if size < least:
        is_for_its_start = not is_up(pool) and threshold.least is not None and size >= threshold.least
        return "POOL_COLD" if is_for_its_start else "ROWS"
    if pool.state == "FAILED":
        return "POOL_FAILED"
    if pool.state == "DRAINING":
        return "POOL_DRAINING"
    return "POOL_BUSY" if threshold.source != "SETTING" and is_busy(pool) else None


def is_up(pool: PoolSnapshot | None) -> bool:
    """Whether a job that comes now finds a JVM; what is given up or drained is not cold for it."""
    return pool is not None and pool.state in ("READY", "DRAINING", "FAILED")


def is_busy(pool: PoolSnapshot) -> bool:
    """Whether a job that comes now would stand behind others, or finds nobody who works."""
    if pool.state != "READY":
        return False
    return pool.executors == 0 or any(item.waited_s >= BUSY_S for item in pool.queue)
