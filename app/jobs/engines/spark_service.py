"""The Spark side of one process: pool, exchange and engine, made from settings, shown and operated.

Rules:
- nothing here waits for Spark but `stop`, and that has a bound;
- the pool starts at the first need, or at once where the settings say EAGER; never in a request.
"""

import os
import sys
import threading
from datetime import timedelta

from app.clock import Clock
from app.jobs.engines.spark_engine import QUEUE_RETRY_S, SparkEngine
from app.jobs.errors import PoolNotRunning, PoolQueueFull
from app.jobs.models import (
    ExchangeRead,
    SparkCalibration,
    SparkExecutor,
    SparkLimits,
    SparkPoolRead,
    SparkSlot,
    SparkThreshold,
    SparkWaiting,
)
from app.kit.durations import duration_of
from app.kit.spark.calibration import read_calibration, thresholds_of
from app.kit.spark.thresholds import UNITS
from app.settings import Settings, SparkSettings
from spark.exchange.board import ExchangeLimits
from spark.exchange.dispatch import Exchange
from spark.pool.errors import PoolStopped
from spark.pool.master import answers
from spark.pool.options import SparkOptions, default_cds_archive
from spark.pool.pool import PoolLimits, SparkPool
from spark.pool.snapshot import PoolSnapshot

STOP_LEAST_S = 0.5

MASTER_AWAY = "MASTER_AWAY"


class SparkService:
    """Pool and exchange of this process.

    Args:
        instance_id: whose pool it is, where there are several.
    """

    def __init__(self, settings: Settings, clock: Clock, *, instance_id: str) -> None:
        spark = settings.spark
        self._settings = settings
        self._clock = clock
        self._instance_id = instance_id
        self.pool = SparkPool(_options(settings), limits=_limits(spark))
        self.exchange = Exchange(
            self.pool,
            dispatchers=spark.slots,
            limits=ExchangeLimits(task_s=spark.task_ms / 1000, ahead_max=spark.units_ahead_max),
        )
        self.engine = SparkEngine(self.pool, self.exchange, clock, queue_max=spark.queue_max)
        # Whoever works at files holds a slot for long; one is left for the units of other jobs.
        self.hands_room = threading.BoundedSemaphore(max(1, spark.slots - 1))

    def start(self) -> None:
        """Start the pool where the settings want it early."""
        if self._settings.spark.start == "EAGER":
            self.pool.start()

    def stop(self, within_s: float) -> None:
        """End every lease, every dispatcher and the JVM, within twice the timeout of the settings.

        Args:
            within_s: what is left for all of it; the JVM is killed where that is little.
        """
        each_s = min(self._settings.spark.stop_timeout_s, max(STOP_LEAST_S, within_s / 2))
        self.exchange.close(each_s)
        self.pool.stop(each_s)

    @property
    def is_failed(self) -> bool:
        """Whether Spark has been given up after failed rebuilds."""
        return self.pool.snapshot().state == "FAILED"

    def retry_master(self) -> None:
        """Start a pool that was given up for its master's sake, when that one listens again."""
        found = self.pool.snapshot()
        is_away = found.state == "FAILED" and (found.last_error or "").startswith(MASTER_AWAY)
        if is_away and answers(found.master):
            self.pool.start()

    def recycle(self, *, force: bool) -> None:
        """Replace the JVM; returns at once.

        Raises: PoolNotRunning: there is none.
        """
        try:
            self.pool.recycle(force=force)
        except PoolStopped as stopped:
            raise PoolNotRunning(
                "nobody has needed Spark yet: the first job that does starts it"
            ) from stopped

    def check_room(self) -> None:
        """Raise PoolQueueFull when enough jobs wait for Spark."""
        if self.engine.is_full:
            raise PoolQueueFull(self._settings.spark.queue_max, retry_after_s=QUEUE_RETRY_S)

    def read(self) -> SparkPoolRead:
        """The pool as clients see it."""
        found, exchange = self.pool.snapshot(), self.exchange.snapshot()
        return SparkPoolRead(
            instance=self._instance_id,
            state=found.state,
            since=self._clock.now() - timedelta(seconds=found.since_s),
            draining=found.draining,
            master=found.master,
            spark_version=found.spark_version,
            slots=_slots(found),
            queue=[
                SparkWaiting(job_class=item.job_class, waited=timedelta(seconds=round(item.waited_s, 3)))
                for item in found.queue
            ],
            exchange=ExchangeRead(
                jobs=exchange.leases,
                jobs_waiting=exchange.leases_waiting,
                units_waiting=exchange.units_waiting,
                units_under_way=exchange.units_under_way,
                spark_jobs_running=exchange.spark_jobs_running,
                spark_jobs=exchange.spark_jobs,
                units_done=exchange.units_done,
                units_again=exchange.units_again,
            ),
            rebuilds=found.rebuilds,
            failed_rebuilds=found.failed_rebuilds,
            last_error=found.last_error,
            start_took=duration_of(found.start_took_s),
            context_age=duration_of(found.context_age_s),
            executors=found.executors,
            uses_cds=found.uses_cds,
            limits=limits_of(self._settings.spark),
            cores=sum(each.cores for each in found.executor_list) or None,
            memory_bytes=sum(each.memory for each in found.executor_list) or None,
            executor_list=_executors(found),
            thresholds=_thresholds(self._settings),
            calibration=_calibration(self._settings),
        )


def _slots(found: PoolSnapshot) -> list[SparkSlot]:
    return [
        SparkSlot(
            number=slot.number,
            state=slot.state,
            job_class=slot.job_class,
            leased_for=duration_of(slot.leased_for_s),
            jobs_run=slot.jobs_run,
        )
        for slot in found.slots
    ]


def _executors(found: PoolSnapshot) -> list[SparkExecutor]:
    return [
        SparkExecutor(
            id=each.id,
            address=each.address,
            cores=each.cores,
            tasks=each.tasks,
            memory_bytes=each.memory,
            memory_used_bytes=each.memory_used,
        )
        for each in found.executor_list
    ]


def _thresholds(settings: Settings) -> list[SparkThreshold]:
    return [
        SparkThreshold(
            kind=kind,
            unit=UNITS[kind],
            least=each.least,
            least_cold=each.least_cold,
            source=each.source,
            basis=each.basis,
        )
        for kind, each in thresholds_of(settings).items()
    ]


def _calibration(settings: Settings) -> SparkCalibration:
    found = read_calibration(settings)
    made_at = None if found.calibration is None else found.calibration.made_at
    return SparkCalibration(state=found.state, made_at=made_at, why=found.why)


def limits_of(settings: SparkSettings) -> SparkLimits:
    """The limits that clients may want to know."""
    return SparkLimits(
        slots=settings.slots,
        queue_max=settings.queue_max,
        min_rows=settings.min_rows,
        units_ahead_max=settings.units_ahead_max,
        task_duration=timedelta(milliseconds=settings.task_ms),
    )


def _options(settings: Settings) -> SparkOptions:
    spark = settings.spark
    return SparkOptions(
        master=spark.master,
        cores=spark.cores or os.cpu_count() or 1,
        driver_memory=spark.driver_memory,
        driver_host=spark.driver_host,
        executor_memory=spark.executor_memory,
        executor_cores=spark.executor_cores,
        cores_max=spark.cores_max,
        executors=spark.executors,
        executors_min=spark.executors_min,
        executors_max=spark.executors_max,
        image=spark.image,
        namespace=spark.namespace,
        service_account=spark.service_account,
        archives=tuple(spark.archives),
        encrypted=settings.spark_is_encrypted,
        secret_file=None if spark.secret_file is None else spark.secret_file.absolute(),
        secret_name=spark.secret_name,
        ui_port=spark.ui_port if spark.ui else None,
        event_log_dir=None if spark.event_log_dir is None else spark.event_log_dir.absolute(),
        python=str(spark.python or sys.executable),
        cds_archive=spark.cds_archive or default_cds_archive(),
        # Not the system's: there nobody would remove what a killed process has left.
        local_dir=(spark.local_dir or settings.data_dir / "spark").absolute(),
        log_file=(settings.data_dir / "spark.log").absolute(),
        start_timeout_s=spark.start_timeout_s,
        java_home=spark.java_home,
        java_options=tuple(spark.java_options),
        conf=spark.conf,
    )


def _limits(spark: SparkSettings) -> PoolLimits:
    return PoolLimits(
        slots=spark.slots,
        # The exchange waits with one lease for each of its dispatchers at most: that is never the full queue.
        queue_max=spark.queue_max + spark.slots,
        max_age_s=spark.max_age_s,
        max_jobs=spark.max_jobs,
    )
