"""A pool without Spark: slots that run tasks in threads, and end as a test's script says."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from spark.pool.errors import SparkError, SparkJobCancelled
from spark.targets.run import Deliver
from spark.targets.task import NO_TICKET, Report, Task, TaskRun, pack, run_task

CORES = 2


class ThreadSlot:
    """One slot for the time of a lease."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def run(self, function: Callable[[Any], None], *, description: str | None = None) -> None:
        """Run in the caller's thread; the slot itself is the session."""
        if self.cancelled.is_set():
            raise SparkJobCancelled("before")
        function(self)

    def cancel(self, why: str) -> None:
        """As Spark does: the driver hears of it, what runs goes on for a while."""
        self.cancelled.set()


class ThreadSlots:
    """Lends slots; keeps what was run.

    Attributes:
        script: the errors of the next jobs of Spark, None for a good one; empty: all are good.
        refusals: what the next leases raise instead.
        jobs: the units of each task of each job of Spark.
        described: how each was called.
    """

    def __init__(self, slots: int) -> None:
        self._free = threading.Semaphore(slots)
        self._pool = ThreadPoolExecutor(CORES)
        self.script: deque[SparkError | None] = deque()
        self.refusals: deque[SparkError] = deque()
        self.jobs: list[list[int]] = []
        self.described: list[str] = []

    @contextmanager
    def lease(
        self,
        *,
        job_id: str,
        job_class: str,
        should_stop: Callable[[], bool] = lambda: False,
        wait_s: float | None = None,
    ) -> Iterator[ThreadSlot]:
        """Wait for a slot."""
        if self.refusals:
            raise self.refusals.popleft()
        with self._free:
            yield ThreadSlot()

    def run_tasks(self, slot: ThreadSlot, tasks: Sequence[Task], deliver: Deliver) -> None:
        """What `spark.targets.run.run_tasks` does, in threads."""
        self.jobs.append([len(task.units) for task in tasks])
        fault = self.script.popleft() if self.script else None
        if fault is not None:
            raise fault
        futures = [self._pool.submit(_run_task, task) for task in tasks]
        for future in futures:
            while not future.done():
                if slot.cancelled.wait(0.005):
                    raise SparkJobCancelled("cancelled")
            deliver(future.result())

    def describe(self, _slot: ThreadSlot, text: str) -> None:
        """Keep what Spark would show beside the next job."""
        self.described.append(text)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _run_task(task: Task) -> list[Report]:
    """As a worker does: the task's own report comes first."""
    ran = TaskRun("group", 7, seconds=0.5, cpu_seconds=0.25, memory_bytes=1_000)
    return [Report(task.number, NO_TICKET, "RAN", pack(ran)), *run_task(task)]
