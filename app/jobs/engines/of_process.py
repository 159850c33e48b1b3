"""The engines that a process has: threads always, Spark where it is installed and switched on."""

from typing import TYPE_CHECKING

from app.clock import Clock
from app.jobs.engines.choice import Engines, why_no_spark
from app.jobs.engines.engine import InlineEngine
from app.kit.spark.calibration import thresholds_now
from app.settings import Settings

if TYPE_CHECKING:
    from app.jobs.engines.spark_service import SparkService


def spark_service(settings: Settings, clock: Clock, *, instance_id: str) -> "SparkService | None":
    """The Spark side of a process; None where the settings switch it off, or its extra is not installed."""
    if why_no_spark(settings) is not None:
        return None
    # Nobody else imports pyspark: an installation without it has all but this.
    from app.jobs.engines.spark_service import SparkService

    return SparkService(settings, clock, instance_id=instance_id)


def engines_of(settings: Settings, clock: Clock, spark: "SparkService | None") -> Engines:
    """The engines that jobs of this process run on."""
    return Engines(
        InlineEngine(clock),
        None if spark is None else spark.engine,
        thresholds_now(settings),
        why_no_spark(settings) or "SPARK_DISABLED",
        are_here=settings.executors_are_here,
        is_shared=settings.archives_reach_executors,
    )
