"""The JVM dies: the pool serves again in the same process, and nothing is left of the dead one."""

import logging
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.pool.errors import SparkLost
from spark.pool.pool import SparkPool
from tests.spark.conftest import wait_until

SERVES_AGAIN_S = 20.0


def _descendants(root: int) -> set[int]:
    """Processes below a process, workers of Python among them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found, fresh = set(), {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def _running(pids: set[int]) -> set[int]:
    return {pid for pid in pids if os.path.exists(f"/proc/{pid}")}


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _jvm(pool: SparkPool) -> int:
    pid = pool.snapshot().jvm_pid
    assert pid is not None
    return pid


def _die_under_a_job(pool: SparkPool, *, after_s: float) -> None:
    """Kill the JVM while workers of Python compute."""

    def compute(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        time.sleep(600)
        yield from batches

    def job(session: SparkSession) -> int:
        return session.range(2, numPartitions=2).mapInArrow(compute, "id long").count()

    pid = _jvm(pool)
    with pool.lease(job_id="dies", job_class="BULK") as lease:
        killer = threading.Timer(after_s, os.kill, (pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(SparkLost):
            lease.run(job)
        killer.join()
        with pytest.raises(SparkLost):
            lease.run(lambda session: session.range(1).count())


def _serve_again(pool: SparkPool) -> float:
    """Wait for a lease and a result; returns what that took."""
    began = time.monotonic()
    with pool.lease(job_id="next", job_class="INTERACTIVE", wait_s=120) as lease:
        granted_s = time.monotonic() - began
        assert lease.run(lambda session: session.range(9).count()) == 9
    return granted_s


def _one_round(pool: SparkPool, *, idle: bool, after_s: float) -> float:
    pid = _jvm(pool)
    below = _descendants(pid) | {pid}
    if idle:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pool.snapshot().state == "REBUILDING", within_s=2, what="the death is noticed")
    else:
        _die_under_a_job(pool, after_s=after_s)
    took_s = _serve_again(pool)
    wait_until(lambda: not _running(below), within_s=10, what="no orphan")
    assert _jvm(pool) != pid
    return took_s


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(1200)])])
def test_killed_jvm_is_replaced_and_leaves_no_process_thread_or_descriptor(
    pool: SparkPool, rounds: int, record_property: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pool.lease(job_id="warm", job_class="BULK") as lease:
        assert lease.run(lambda session: session.range(9).count()) == 9
    dice = random.Random(rounds)
    rebuilds = pool.snapshot().rebuilds
    threads, descriptors = threading.active_count(), _descriptors()
    took = [
        _one_round(pool, idle=number % 2 == 0, after_s=dice.uniform(0.2, 3.0)) for number in range(rounds)
    ]
    record_property("serves_again_s", took)
    snapshot = pool.snapshot()
    assert max(took) < SERVES_AGAIN_S
    warned = {record.name for record in caplog.records if record.levelno >= logging.WARNING}
    assert warned == {"spark.pool.pool"}, "py4j writes stacks to the root logger"
    assert snapshot.rebuilds == rebuilds + rounds
    assert snapshot.last_error == "the JVM ended with -9"
    # The two slots and a cancel may have got a connection since; nothing grows with the rounds.
    assert threading.active_count() <= threads + 3
    assert _descriptors() <= descriptors + 8
    assert len(list(Path(pool._options.local_dir or "").glob("jvm-*"))) == 1


def test_recycle_waits_for_the_lease_in_hand_and_keeps_who_waits(pool: SparkPool) -> None:
    pid, results = _jvm(pool), []

    def wait_for_lease() -> None:
        with pool.lease(job_id="waits", job_class="BULK") as lease:
            results.append(lease.run(lambda session: session.range(5).count()))

    with pool.lease(job_id="in-hand", job_class="BULK") as lease:
        pool.recycle()
        thread = threading.Thread(target=wait_for_lease)
        thread.start()
        wait_until(lambda: len(pool.snapshot().queue) == 1, within_s=5, what="a lease waits")
        assert lease.run(lambda session: session.range(3).count()) == 3
        assert pool.snapshot().state == "REBUILDING"
        assert _jvm(pool) == pid
    thread.join(60)
    assert results == [5]
    assert _jvm(pool) != pid
