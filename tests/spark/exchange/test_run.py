"""The exchange over a real JVM: outcomes stream, killed workers' units are done again, a cancel is quick."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.exchange.board import ExchangeLimits
from spark.exchange.dispatch import Exchange
from spark.exchange.errors import TaskBroken
from spark.exchange.lease import ExchangeLease, LeaseTerms
from spark.pool.errors import SparkJobFailed
from spark.pool.pool import SparkPool
from spark.targets.errors import TargetCancelled
from spark.targets.run import run_tasks
from spark.targets.task import Report, Task, pack
from tests.spark.conftest import wait_until
from tests.spark.exchange.work import (
    blunder,
    die,
    die_once,
    done,
    made_target,
    note,
    note_first,
    think_long,
    work_of,
)

GONE_MAX_S = 10.0


@pytest.fixture
def exchange(pool: SparkPool) -> Iterator[Exchange]:
    made = Exchange(pool, dispatchers=2, limits=ExchangeLimits(task_s=0.5))
    yield made
    made.close(10)


def test_units_of_many_jobs_run_in_workers_and_share_jobs_of_spark(
    exchange: Exchange, tmp_path: Path
) -> None:
    targets = [made_target(tmp_path, f"{number}.db") for number in range(6)]

    def run(number: int) -> list[int]:
        with exchange.lease(work_of(targets[number], note), LeaseTerms(workers=1)) as lease:
            return sorted(outcome.unit for outcome in lease.map(iter(range(10))))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(run, range(6))) == [list(range(10))] * 6
    assert [done(target) for target in targets] == [list(range(10))] * 6
    snapshot = exchange.snapshot()
    assert snapshot.units_done == 60
    assert snapshot.spark_jobs < 30
    assert (snapshot.leases, snapshot.units_waiting, snapshot.units_under_way) == (0, 0, 0)


def test_worker_killed_before_and_after_its_commit_is_replaced(exchange: Exchange, tmp_path: Path) -> None:
    """Spark repeats the task: a unit that was committed is run again, which a ledger makes harmless."""
    target = made_target(tmp_path)
    with exchange.lease(work_of(target, die_once), LeaseTerms(workers=1)) as lease:
        outcomes = list(lease.map(iter(range(1))))
    assert [(outcome.unit, outcome.error) for outcome in outcomes] == [(0, None)]
    assert {file.name for file in tmp_path.glob("*-0")} == {"before-0", "after-0"}
    assert done(target) == [0]


def test_worker_that_dies_at_each_attempt_fails_the_job_in_the_words_of_spark(
    pool: SparkPool, tmp_path: Path
) -> None:
    task = Task(0, pack(work_of(made_target(tmp_path), die)), ((1, pack(0)),))
    good = pack(work_of(made_target(tmp_path, "good.db"), note))
    heard: list[Report] = []
    with pool.lease(job_id="dies", job_class="BULK") as lease:
        with pytest.raises(SparkJobFailed) as failed:
            lease.run(lambda session: run_tasks(session, [task], heard.extend))
        assert "Job aborted due to stage failure" in str(failed.value)
        assert "ExecutionException" not in str(failed.value)
        assert heard == []
        lease.run(lambda session: run_tasks(session, [replace(task, work=good)], heard.extend))
    assert [report.kind for report in heard] == ["RAN", "DONE"]


def test_many_keys_that_travel_with_a_password_lie_in_no_file(pool: SparkPool, tmp_path: Path) -> None:
    """Above a megabyte pyspark wrote all of it, in the clear, into a file that stayed as long as the JVM.

    A purge by a plan names up to 5,000 keys in each of its units.
    """
    target = replace(made_target(tmp_path), password="open-sesame-of-a-shop")
    keys = [os.urandom(24).hex() for _ in range(50_000)]
    task = Task(0, pack(work_of(target, note_first)), ((1, pack((5, keys))),))
    heard: list[Report] = []
    with pool.lease(job_id="keys", job_class="BULK") as lease:

        def run(session: SparkSession) -> set[str]:
            run_tasks(session, [task], heard.extend)
            return {
                str(path)
                for path in Path(session.sparkContext.getConf().get("spark.local.dir")).rglob("*")
                if path.is_file() and b"open-sesame" in path.read_bytes()
            }

        assert lease.run(run) == set()
    assert [report.kind for report in heard] == ["RAN", "DONE"]
    assert done(target) == [5]


def test_mistake_of_a_program_comes_back_as_one(exchange: Exchange, tmp_path: Path) -> None:
    with (
        pytest.raises(TaskBroken, match="KeyError: 'unit 0'"),
        exchange.lease(work_of(made_target(tmp_path), blunder), LeaseTerms(workers=1)) as lease,
    ):
        list(lease.map(iter(range(3))))


def test_cancel_of_a_unit_in_a_numpy_loop_ends_its_map_at_once_and_its_worker_soon(
    exchange: Exchange, tmp_path: Path
) -> None:
    target = made_target(tmp_path)
    with exchange.lease(work_of(target, think_long), LeaseTerms(workers=1)) as lease:
        cancel = threading.Thread(target=_cancel_at_work, args=(lease, tmp_path / "thinking"))
        cancel.start()
        [outcome] = lease.map(iter(range(1)))
        cancelled = time.monotonic()
        assert isinstance(outcome.error, TargetCancelled)
    pid = int((tmp_path / "thinking").read_text())
    while _lives(pid):
        assert time.monotonic() - cancelled < GONE_MAX_S
        time.sleep(0.02)
    print(f"the worker was gone after {time.monotonic() - cancelled:.2f} s")


def _cancel_at_work(lease: ExchangeLease[Any, Any], thinking: Path) -> None:
    """Cancel once a worker is in its loop."""
    wait_until(lambda: thinking.exists() and thinking.read_text() != "", within_s=60, what="a worker thinks")
    lease.cancel()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_a_lease_took_is_found_in_spark_by_its_groups_and_stages(
    pool: SparkPool, exchange: Exchange, tmp_path: Path
) -> None:
    name = "job_1 PURGE shop"
    with exchange.lease(work_of(made_target(tmp_path), note), LeaseTerms(workers=1, name=name)) as lease:
        assert len(list(lease.map(iter(range(3))))) == 3
        use = lease.use()
    assert use["tasks"] >= len(use["stages"]) >= 1
    assert use["task_s"] >= use["cpu_s"] > 0
    assert use["memory_bytes"] > 20 * 1024**2

    def look(spark: Any) -> list[tuple[list[int], str]]:
        tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()
        return [
            (list(tracker.getJobInfo(job).stageIds), store.job(job).description().get())
            for group in use["groups"]
            for job in tracker.getJobIdsForGroup(group)
        ]

    with pool.lease(job_id="look", job_class="INTERACTIVE") as looking:
        found = looking.run(look)
    assert sorted(stage for stages, _ in found for stage in stages) == sorted(use["stages"])
    assert all(description.endswith(f": {name}") for _, description in found)


def test_pool_shows_who_runs_tasks(pool: SparkPool) -> None:
    deadline = time.monotonic() + 15
    while not pool.snapshot().executor_list:
        assert time.monotonic() < deadline, "nobody was looked at"
        time.sleep(0.1)
    [here] = pool.snapshot().executor_list
    assert (here.id, here.cores) == ("driver", 2)
    assert here.memory > here.memory_used >= 0
    assert here.address.startswith("127.0.0.1:")
