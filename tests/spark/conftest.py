"""One JVM for all tests of Spark: there can be only one in a process, and each start costs seconds.

Tests take `pool` and lend a slot of it; a lease cleans up after itself, and what is not so is a finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark.pool.lease import Lease
from spark.pool.options import SparkOptions, default_cds_archive
from spark.pool.pool import PoolLimits, SparkPool

READY_S = 60.0


def spark_options(local_dir: Path) -> SparkOptions:
    """A small and quick Spark: half of the compiler, the class archive where `make setup` could make it."""
    return SparkOptions(
        driver_memory="1g",
        java_options=("-XX:TieredStopAtLevel=1",),  # half the work of the compiler
        cds_archive=default_cds_archive(),
        local_dir=local_dir,
        start_timeout_s=READY_S,
    )


def wait_until(condition: Callable[[], bool], *, within_s: float, what: str) -> float:
    """Wait for a condition and return how long that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, f"not within {within_s} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.fixture(scope="session")
def shared_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkPool]:
    """The pool of the test run; not started by itself."""
    shared = SparkPool(
        spark_options(tmp_path_factory.mktemp("spark")),
        limits=PoolLimits(slots=2, queue_max=2, close_timeout_s=10.0, warm_up=False),
    )
    yield shared
    shared.stop()


@pytest.fixture
def pool(shared_pool: SparkPool) -> Iterator[SparkPool]:
    """The pool, READY and idle; it must be idle again after the test."""
    shared_pool.resume()
    shared_pool.start()
    wait_until(lambda: shared_pool.snapshot().state == "READY", within_s=READY_S, what="READY")
    yield shared_pool
    snapshot = shared_pool.snapshot()
    assert [slot for slot in snapshot.slots if slot.state != "IDLE"] == []
    assert snapshot.queue == ()


@pytest.fixture
def lease(pool: SparkPool) -> Iterator[Lease]:
    """A slot lent for the time of the test."""
    with pool.lease(job_id="test", job_class="INTERACTIVE") as lent:
        yield lent


@pytest.fixture
def no_spark(shared_pool: SparkPool) -> None:
    """No JVM in the process, for tests that start one by themselves."""
    shared_pool.stop()
    wait_until(lambda: shared_pool.snapshot().state == "STOPPED", within_s=30, what="STOPPED")
