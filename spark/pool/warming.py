"""A little of everything, so that the first job does not pay for the loading of classes and workers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spark.formats.arrow import pa
from spark.pool.started import StartedSession, release_thread


def warm_up(started: StartedSession) -> None:
    """Run a query, a shuffle and a Python worker once; takes seconds, and holds up nobody but itself."""
    session = started.session.newSession()
    context = session.sparkContext
    context.setLocalProperty("spark.scheduler.pool", "interactive")
    try:
        session.range(100, numPartitions=2).selectExpr("id % 7 as k").groupBy("k").count().collect()
        session.range(2, numPartitions=1).mapInArrow(_pass_on, "id long").collect()
        context.parallelize([1], 1).map(_same).collect()
    finally:
        release_thread(started.gateway)


def warm_up_beside(started: StartedSession) -> None:
    """Warm up in a thread that ends with it; if it fails, the first job pays."""
    helper = ThreadPoolExecutor(1, thread_name_prefix="lethe-spark-warming")
    helper.submit(warm_up, started)
    helper.shutdown(wait=False)


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _same(value: Any) -> Any:
    return value
