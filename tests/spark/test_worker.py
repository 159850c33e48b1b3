"""What a worker has loaded is not looked at again by the collector of garbage behind each task."""

import gc
from collections import deque
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

from spark.pool.lease import Lease
from spark.worker import keep_modules


def _kept(rows: Iterable[int]) -> Iterator[tuple[int, int]]:
    """How much the collector leaves alone in a worker, before and behind a module that is imported."""
    deque(rows, maxlen=0)
    keep_modules()
    first = gc.get_freeze_count()
    keep_modules()  # nothing was imported: what the task itself has made is collected as ever
    assert gc.get_freeze_count() == first
    import pyarrow.compute  # noqa: F401 -- what a task imports later

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
