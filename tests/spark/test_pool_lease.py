"""What a lease does and leaves: nothing of one job may reach the next on the same slot."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from spark.pool.errors import SparkJobCancelled, SparkJobFailed
from spark.pool.lease import Lease
from spark.pool.pool import SparkPool
from tests.spark.conftest import wait_until


class LocalDataSource(DataSource):
    """Registered by one job, never seen by another."""

    @classmethod
    def name(cls) -> str:
        return "left_behind"


def _leave_traces(session: SparkSession) -> None:
    session.conf.set("spark.sql.shuffle.partitions", "77")
    session.range(3).createOrReplaceTempView("left_behind")
    session.udf.register("left_behind", lambda value: value)
    session.dataSource.register(LocalDataSource)
    session.sql("declare variable left_behind = 3")
    session.sql("create database if not exists elsewhere")
    session.sql("use elsewhere")
    context = session.sparkContext
    context.addJobTag("left-behind")
    context.setLocalProperty("left.behind", "yes")
    context.setLocalProperty("spark.scheduler.pool", "elsewhere")


def _traces(session: SparkSession) -> dict[str, Any]:
    context = session.sparkContext
    java = session._jsparkSession.sessionState()
    return {
        "partitions": session.conf.get("spark.sql.shuffle.partitions"),
        "views": [table.name for table in session.catalog.listTables()],
        "functions": java.catalog().listTemporaryFunctions().size(),
        "sources": java.dataSourceManager().dataSourceExists("left_behind"),
        "variables": java.catalogManager().tempVariableManager().isEmpty(),
        "database": session.catalog.currentDatabase(),
        "tags": set(context.getJobTags()),
        "left.behind": context.getLocalProperty("left.behind"),
        "pool": context.getLocalProperty("spark.scheduler.pool"),
        "group": context.getLocalProperty("spark.jobGroup.id"),
        "description": context.getLocalProperty("spark.job.description"),
    }


def _clean(lease: Lease, fair_pool: str) -> dict[str, Any]:
    return {
        "partitions": "6",
        "views": [],
        "functions": 0,
        "sources": False,
        "variables": True,
        "database": "default",
        "tags": {lease.group},
        "left.behind": None,
        "pool": fair_pool,
        "group": lease.group,
        "description": lease.job_id,
    }


def test_everything_left_behind_is_gone_for_the_next_job_on_the_slot(pool: SparkPool) -> None:
    with pool.lease(job_id="other", job_class="BULK"):  # so that one slot is left, and both come to it
        with pool.lease(job_id="first", job_class="BULK") as first:
            slot = first.slot
            first.run(_leave_traces)
            assert first.run(_traces)["views"] == ["left_behind"]
        with pool.lease(job_id="second", job_class="INTERACTIVE") as second:
            assert second.slot is slot
            assert second.run(_traces) == _clean(second, "interactive")


def test_thread_of_a_returned_slot_has_no_local_property(pool: SparkPool) -> None:
    with pool.lease(job_id="first", job_class="BULK") as lease:
        lease.run(_leave_traces)
        slot = lease.slot
    started = pool._started
    assert started is not None
    properties = slot.submit(lambda: started.session.sparkContext._jsc.sc().getLocalProperties().size())
    assert properties.result(10) == 0


def test_failed_function_says_the_line_that_matters(lease: Lease) -> None:
    def divide(_: Iterator[Any]) -> Iterator[Any]:
        raise ZeroDivisionError("nothing to divide by")

    seen = []
    for function in (
        lambda session: {}["missing"],
        lambda session: session.sql("select raise_error('refused')").collect(),
        lambda session: session.range(1).mapInArrow(divide, "id long").collect(),
        lambda session: session.table("nowhere"),
    ):
        with pytest.raises(SparkJobFailed) as failed:
            lease.run(function)
        assert failed.value.__cause__ is not None
        seen.append(failed.value.detail)
    assert seen[:3] == [
        "KeyError: 'missing'",
        "[USER_RAISED_EXCEPTION] refused SQLSTATE: P0001",
        "ZeroDivisionError: nothing to divide by",
    ]
    assert seen[3].startswith("[TABLE_OR_VIEW_NOT_FOUND]")


def test_broken_connection_of_the_function_itself_is_no_lost_jvm(lease: Lease) -> None:
    def connect_nowhere(session: SparkSession) -> None:
        raise ConnectionRefusedError(111, "a database of the job's own")

    with pytest.raises(SparkJobFailed, match="ConnectionRefusedError"):
        lease.run(connect_nowhere)
    assert lease.run(lambda session: session.range(3).count()) == 3


def test_interactive_job_does_not_wait_behind_a_bulk_hog(pool: SparkPool) -> None:
    def sleep(value: int) -> int:
        import time

        time.sleep(0.4)
        return value

    def hog(session: SparkSession) -> int:
        return session.sparkContext.parallelize(range(150), 150).map(sleep).count()

    with pool.lease(job_id="hog", job_class="BULK") as bulk:
        outcome: list[type[BaseException]] = []

        def run() -> None:
            try:
                bulk.run(hog)
            except SparkJobCancelled as error:
                outcome.append(type(error))

        thread = threading.Thread(target=run)
        thread.start()
        tracker = pool._started.session.sparkContext.statusTracker()  # type: ignore[union-attr]
        wait_until(lambda: bool(tracker.getActiveStageIds()), within_s=20, what="the hog runs")
        with pool.lease(job_id="short", job_class="INTERACTIVE") as interactive:
            began = time.monotonic()
            assert interactive.run(lambda session: session.range(10, numPartitions=2).count()) == 10
            took_s = time.monotonic() - began
        still_running = bool(tracker.getJobIdsForGroup(bulk.group)) and thread.is_alive()
        bulk.cancel("seen enough")
        thread.join(20)
    assert still_running
    assert outcome == [SparkJobCancelled]
    # 150 tasks of 0.4 s on two cores are 30 s.
    assert took_s < 20
