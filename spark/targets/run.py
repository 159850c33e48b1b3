"""Tasks of units on Spark: one action, no retry of ours, reports as each task ends.

Reports come by an accumulator: its updates reach the driver with the end of each task, before the action
returns, and once for a task however often Spark repeats it. What has not come when the action has ended, well
or not, was not heard of: the caller hands it in again.

Works and units travel in the closure, in memory and over Spark's sockets: passwords must not lie in a file.
"""

import resource
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark import RDD, SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam, _accumulatorRegistry
from pyspark.sql import SparkSession

from spark.targets.task import NO_TICKET, Deliver, Report, Task, TaskRun, pack, run_task
from spark.worker import end_with_connection, keep_modules


class _Reports(AccumulatorParam[list[Report]]):
    """At a worker a list that grows; at the driver each update is handed on, and nothing is kept."""

    def __init__(self, deliver: Deliver | None) -> None:
        self._deliver = deliver

    def __reduce__(self) -> tuple[type["_Reports"], tuple[None]]:
        return _Reports, (None,)

    def zero(self, value: list[Report]) -> list[Report]:
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802
        if self._deliver is None:
            return value1 + value2
        self._deliver(value2)
        return value1


class _Mapped:
    """Runs the task of a partition; picklable."""

    def __init__(self, tasks: Sequence[Task], reports: "Accumulator[list[Report]]") -> None:
        self._tasks = list(tasks)
        self._reports = reports

    def __call__(self, partition: int, rows: Iterable[int]) -> Iterator[int]:
        end_with_connection()
        # Read to its end: a worker that has left something of its input is not used again.
        deque(rows, maxlen=0)
        self._reports.add(_measured(self._tasks[partition]))
        return iter(())


def _measured(task: Task) -> list[Report]:
    """Run a task in a worker of Spark, and report of the worker too."""
    began, cpu_began = time.monotonic(), time.process_time()
    reports = run_task(task)
    context = TaskContext.get()
    assert context is not None, "only a worker of Spark runs this"
    keep_modules()
    ran = TaskRun(
        group=context.getLocalProperty("spark.jobGroup.id") or "",
        stage=context.stageId(),
        seconds=time.monotonic() - began,
        cpu_seconds=time.process_time() - cpu_began,
        memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )
    # First: whoever has the last outcome of its units may leave at once.
    return [Report(task.number, NO_TICKET, "RAN", pack(ran)), *reports]


def describe(spark: SparkSession, text: str) -> None:
    """What Spark's UI and event log show beside the jobs that this thread starts next."""
    spark.sparkContext.setJobDescription(text)


def _empty(context: SparkContext, partitions: int) -> "RDD[int]":
    """Partitions without rows; made once for each number of them, as each making is some calls to the JVM."""
    made: dict[int, RDD[int]] = context.__dict__.setdefault("_lethe_empty", {})
    if partitions not in made:
        no_rows: list[int] = []
        made[partitions] = context.parallelize(no_rows, partitions)
    return made[partitions]


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at a time."""
    return max(1, spark.sparkContext.defaultParallelism)


def run_tasks(spark: SparkSession, tasks: Sequence[Task], deliver: Deliver) -> None:
    """Run tasks as one job of Spark; returns when all have ended.

    Args:
        deliver: gets the reports of each task at its end, from a thread of pyspark's; must not raise.
    Raises: what pyspark raises: cancelled, a worker that died too often, no JVM any more.
    """
    assert tasks, "a job has a task"
    context = spark.sparkContext
    reports: Accumulator[list[Report]] = context.accumulator([], _Reports(deliver))
    try:
        mapped: Any = _empty(context, len(tasks)).mapPartitionsWithIndex(_Mapped(tasks, reports))
        # There are no rows to collect. An action that waits by itself reads the bytecode of Spark's largest
        # classes each time, to clean its closure: a third of what a small job takes.
        mapped._jrdd.countAsync().get()
    finally:
        # pyspark keeps every accumulator of the process for ever.
        _accumulatorRegistry.pop(reports.aid, None)
