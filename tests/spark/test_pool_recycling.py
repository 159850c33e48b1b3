"""A context that is old or much used is replaced, but only when nothing has run for a while."""

import time
from pathlib import Path

import pytest

from spark.pool.errors import SparkLost
from spark.pool.pool import PoolLimits, SparkPool
from tests.spark.conftest import READY_S, spark_options, wait_until


@pytest.mark.long
@pytest.mark.usefixtures("no_spark")
def test_much_used_context_is_replaced_once_it_has_been_idle(tmp_path: Path) -> None:
    limits = PoolLimits(slots=1, max_jobs=2, idle_s=2.0, warm_up=False)
    pool = SparkPool(spark_options(tmp_path), limits=limits)
    pool.start()
    try:
        with pool.lease(job_id="a", job_class="BULK", wait_s=READY_S) as lease:
            first = pool.snapshot().jvm_pid
            for _ in range(3):
                lease.run(lambda session: session.range(1).count())
            time.sleep(3)
            assert pool.snapshot().state == "READY", "a lease is out: not idle, however long nothing runs"
        ended = time.monotonic()
        wait_until(lambda: pool.snapshot().state == "REBUILDING", within_s=10, what="the context is replaced")
        assert time.monotonic() - ended >= 1.9
        wait_until(lambda: pool.snapshot().state == "READY", within_s=READY_S, what="READY")
        snapshot = pool.snapshot()
        assert snapshot.jvm_pid != first
        assert (snapshot.rebuilds, snapshot.last_error) == (1, None)
    finally:
        pool.stop()


@pytest.mark.long
def test_forced_recycle_does_not_wait_for_the_lease_in_hand(pool: SparkPool) -> None:
    first = pool.snapshot().jvm_pid
    with pool.lease(job_id="a", job_class="BULK") as lease:
        lease.run(lambda session: session.range(1).count())
        pool.recycle(force=True)
        wait_until(lambda: pool.snapshot().jvm_pid not in (first, None), within_s=READY_S, what="another JVM")
        with pytest.raises(SparkLost, match="recycled"):
            lease.run(lambda session: session.range(1).count())
