"""A cancel: before the job, in a job, in a worker of Python, and never in somebody else's."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.pool.errors import SparkJobCancelled
from spark.pool.lease import Lease
from spark.pool.pool import SparkPool
from tests.spark.conftest import wait_until

# A task looks whether it was killed once for a thousand rows of `a`: few of `b`, or it outlives its cancel by
# half a minute and holds a core of the next test.
ENDLESS = "select count(*) from range(1000000000000) a cross join range(50) b where a.id * b.id % 7 = 3"


def _run_until_cancelled(lease: Lease, function: Any, seen: list[float]) -> threading.Thread:
    """Run in a thread; notes when the cancel came out."""

    def run() -> None:
        with pytest.raises(SparkJobCancelled, match="enough"):
            lease.run(function)
        seen.append(time.monotonic())

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def _cancel(lease: Lease, thread: threading.Thread, seen: list[float]) -> float:
    """Cancel, wait for the end, and return what it took."""
    began = time.monotonic()
    lease.cancel("enough")
    thread.join(30)
    assert seen, "the function goes on"
    return seen[0] - began


def test_cancel_before_the_job_refuses_it(lease: Lease) -> None:
    lease.cancel("enough")
    with pytest.raises(SparkJobCancelled, match="enough"):
        lease.run(lambda session: session.range(1).count())


def test_cancel_between_two_jobs_stops_the_second(pool: SparkPool) -> None:
    reached, go_on = threading.Event(), threading.Event()
    after: list[int] = []

    def two_jobs(session: SparkSession) -> None:
        session.range(1).count()
        reached.set()
        assert go_on.wait(20)
        after.append(session.range(5, numPartitions=1).selectExpr("sum(id)").collect()[0][0])

    with pool.lease(job_id="two", job_class="BULK") as lease:
        seen: list[float] = []
        thread = _run_until_cancelled(lease, two_jobs, seen)
        assert reached.wait(20)
        lease.cancel("enough")
        wait_until(lambda: lease._calls._work_queue.empty(), within_s=10, what="the cancel is sent")  # type: ignore[attr-defined]
        time.sleep(0.3)
        go_on.set()
        thread.join(20)
    assert seen
    assert after == []


def test_cancel_of_an_adaptive_query_at_any_moment_ends_it(pool: SparkPool) -> None:
    # Story: a cancel fell between two stages of an adaptive plan; Spark forgot it and the query ran for ever.
    for delay_s in (0.0, 0.05, 0.1, 0.2, 0.4):
        with pool.lease(job_id="endless", job_class="BULK") as lease:
            seen: list[float] = []
            thread = _run_until_cancelled(lease, lambda session: session.sql(ENDLESS).collect(), seen)
            time.sleep(delay_s)
            assert _cancel(lease, thread, seen) < 10


def test_cancel_in_a_numpy_loop_ends_the_worker_and_its_writing(pool: SparkPool, tmp_path: Path) -> None:
    folder = str(tmp_path)

    def compute(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        import numpy

        from spark.worker import end_with_connection

        end_with_connection()  # as our tasks do: Spark forgets a worker whose task ended before its input
        matrix = numpy.ones((300, 300))
        with open(f"{folder}/{os.getpid()}", "ab", buffering=0) as written:
            while True:
                matrix = matrix @ matrix
                matrix /= matrix.max()
                written.write(b"x")
        yield from batches

    def job(session: SparkSession) -> int:
        return session.range(2, numPartitions=2).mapInArrow(compute, "id long").count()

    with pool.lease(job_id="numpy", job_class="BULK") as lease:
        seen: list[float] = []
        thread = _run_until_cancelled(lease, job, seen)
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, within_s=30, what="two workers compute")
        began = time.monotonic()
        assert _cancel(lease, thread, seen) < 5
        workers = [int(path.name) for path in tmp_path.iterdir()]
        wait_until(
            lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers),
            within_s=10,
            what="workers are gone",
        )
        gone_s = time.monotonic() - began
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    time.sleep(0.5)
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == sizes
    assert gone_s < 8


def test_cancelled_lease_does_not_hit_the_next_on_the_same_slot(pool: SparkPool) -> None:
    with pool.lease(job_id="other", job_class="BULK"):
        for _ in range(3):
            with pool.lease(job_id="same", job_class="BULK") as cancelled:
                cancelled.cancel("enough")
            with pool.lease(job_id="same", job_class="BULK") as later:
                cancelled.cancel("again")
                assert later.slot is cancelled.slot
                assert later.run(lambda session: session.range(7).count()) == 7


def test_lease_closed_under_a_running_job_cancels_it(pool: SparkPool) -> None:
    lease = pool.lease(job_id="left", job_class="BULK")
    ended: list[BaseException | None] = []

    def run() -> None:
        with pytest.raises(Exception, match="JOB_CANCELLED") as error:
            lease.run(lambda session: session.sql(ENDLESS).collect())
        ended.append(error.value)

    thread = threading.Thread(target=run)
    thread.start()
    tracker = pool._started.session.sparkContext.statusTracker()  # type: ignore[union-attr]
    wait_until(lambda: bool(tracker.getActiveStageIds()), within_s=20, what="the job runs")
    lease.close()
    thread.join(10)
    assert [type(error) for error in ended] == [SparkJobCancelled]
    assert tracker.getActiveJobsIds() == []
