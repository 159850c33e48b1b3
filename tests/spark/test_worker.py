"""What a worker has loaded is not looked at again behind each task; and it ends with its connection."""

import gc
import importlib
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.pool.lease import Lease
from spark.worker import end_with_connection, keep_modules
from tests.spark.conftest import wait_until

SELDOM = ("mailbox", "wave", "netrc", "sched")
"""Modules of the standard library, of which a worker that has run other tests has not all."""


def _kept(rows: Iterable[int]) -> Iterator[tuple[int, int]]:
    """How much the collector leaves alone in a worker, before and behind a module that is imported."""
    deque(rows, maxlen=0)
    keep_modules()
    first = gc.get_freeze_count()
    keep_modules()  # nothing was imported: what the task itself has made is collected as ever
    assert gc.get_freeze_count() == first
    # What a task imports later.
    importlib.import_module(next(name for name in SELDOM if name not in sys.modules))
    keep_modules()
    yield first, gc.get_freeze_count()


def _in_a_worker(session: SparkSession) -> list[tuple[int, int]]:
    return session.sparkContext.parallelize([1], 1).mapPartitions(_kept).collect()


def test_a_worker_keeps_what_it_has_loaded(lease: Lease) -> None:
    [(first, then)] = lease.run(_in_a_worker)
    assert 0 < first < then


def test_elsewhere_nothing_is_kept() -> None:
    before = gc.get_freeze_count()
    keep_modules()
    assert gc.get_freeze_count() == before


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_worker_ends_where_its_task_has_ended_without_it(
    lease: Lease, tmp_path: Path, is_watched: bool
) -> None:
    folder = str(tmp_path)

    def first_row_then_no_end(batches: Iterator[Any]) -> Iterator[Any]:
        if is_watched:
            end_with_connection()
            end_with_connection()  # of a task that comes later
        for batch in batches:
            Path(folder, str(os.getpid())).touch()
            yield batch
            while True:
                time.sleep(0.01)

    def first_row(session: SparkSession) -> int:
        rows = session.range(0, 100_000, numPartitions=1)  # more than what a worker keeps before it writes
        return len(rows.mapInArrow(first_row_then_no_end, "id long").limit(1).collect())

    assert lease.run(first_row) == 1
    [worker] = [int(path.name) for path in tmp_path.iterdir()]
    if is_watched:
        wait_until(lambda: not os.path.exists(f"/proc/{worker}"), within_s=10, what="the worker is gone")
    else:
        time.sleep(3)  # longer than Spark waits before it kills the worker of a task that still stands
        os.kill(worker, 9)  # it was there: Spark has not ended it


def test_elsewhere_nobody_waits_for_a_connection() -> None:
    seen = "import threading, spark.worker as w; w.end_with_connection(); print(threading.active_count())"
    ran = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "1\n"
