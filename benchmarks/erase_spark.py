"""The plan of an erasure on Spark: on one core and on two, and what memory it takes, driver included."""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.process_tree import tree_memory_mib
from spark.erase.calls.calls import PlanCall
from spark.erase.calls.request import PlanRequest
from spark.erase.run import SparkHands
from spark.pool.options import SparkOptions, default_cds_archive
from spark.pool.pool import PoolLimits, SparkPool

READY_MAX_S = 120.0
LOOK_S = 0.1


@dataclass
class SparkFound:
    """What the plan took on some cores.

    Attributes:
        peak_mib: proportional memory of this process, the JVM and its workers together, at its highest while
            a plan was made.
        before_mib: the same of this process alone, before the JVM was started.
    """

    cores: int
    seconds: list[float] = field(default_factory=list)
    entries: int = 0
    peak_mib: float = 0.0
    before_mib: float = 0.0
    refusal: str | None = None

    @property
    def median_s(self) -> float:
        """The plan that counts."""
        return statistics.median(self.seconds)


class Watcher:
    """Looks at the memory of this process and its children until it is left."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            self.peak_mib = max(self.peak_mib, tree_memory_mib())


def measure(directory: Path, *, cores: int, rounds: int, driver_memory: str, scratch: Path) -> SparkFound:
    """Plan some times on a pool of so many cores; the first plan, which loads classes, does not count."""
    found = SparkFound(cores, before_mib=tree_memory_mib())
    options = SparkOptions(
        cores=cores,
        driver_memory=driver_memory,
        cds_archive=default_cds_archive(),
        local_dir=scratch / f"spark-{cores}",
    )
    pool = SparkPool(options, limits=PoolLimits(slots=1, warm_up=False))
    pool.start()
    try:
        with SparkHands(pool.lease(job_id="benchmark", job_class="BULK", wait_s=READY_MAX_S)) as hands:
            for number in range(rounds + 1):
                _plan(hands, directory, found, counts=number > 0)
    finally:
        pool.stop()
    return found


def _plan(hands: SparkHands, directory: Path, found: SparkFound, *, counts: bool) -> None:
    with Watcher() as watcher:
        began = time.perf_counter()
        answer = hands.plan(PlanCall(str(directory), PlanRequest()))
        took_s = time.perf_counter() - began
    found.peak_mib = max(found.peak_mib, watcher.peak_mib)
    found.entries = sum(each.entry_count for each in answer.files)
    found.refusal = None if answer.refusal is None else answer.refusal.detail
    if counts:
        found.seconds.append(took_s)
