"""Which engine an erasure's hands work on, and what trouble of the pool means for its job; no JVM here."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.clock import SystemClock
from app.jobs.engines.choice import CHECKPOINT_ENGINE, EVENT_ENGINE
from app.jobs.engines.spark_engine import SPARK_POOL, SparkEngine
from app.jobs.engines.spark_hands import HandsSource, borrow_spark_hands, log_bytes
from app.jobs.errors import JobStopped, JobWaiting, StopCause
from app.settings import Settings, SparkSettings
from spark.pool.errors import LeaseWaitEnded, PoolDraining, PoolQueueFull, SparkError
from tests.app.jobs.test_spark_engine import Pool
from tests.app.jobs.workbench import Workbench

MIN_BYTES = 1_000


class LendingPool(Pool):
    """A pool that lends, or refuses as a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.refusal: SparkError | None = None
        self.before: list[str] = []
        self.leases: list[Lent] = []
        self.look: Any = lambda: None

    def lease(self, *, job_id: str, should_stop: Any, **_terms: Any) -> Any:
        self.look()
        if should_stop():
            raise LeaseWaitEnded("the job stops", cause="STOP")
        if self.refusal is not None:
            raise self.refusal
        self.leases.append(Lent(job_id))
        return self.leases[-1]


@dataclass
class Lent:
    """A lease that notes what becomes of it."""

    job_id: str
    ended: list[str] = field(default_factory=list)

    def cancel(self, why: str) -> None:
        self.ended.append(why)

    def close(self) -> None:
        self.ended.append("closed")


@pytest.fixture
def pool() -> LendingPool:
    return LendingPool()


@pytest.fixture
def spark(pool: LendingPool) -> Any:
    exchange: Any = SimpleNamespace()
    engine = SparkEngine(pool, exchange, SystemClock(), queue_max=1)
    return SimpleNamespace(pool=pool, engine=engine, hands_room=threading.BoundedSemaphore(1))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "00000000.jdb").write_bytes(bytes(600))
    (tmp_path / "00000001.jdb").write_bytes(bytes(400))
    (tmp_path / "je.info.0").write_bytes(bytes(5_000))
    return tmp_path


def settings_of(**spark: Any) -> Settings:
    return Settings(spark=SparkSettings(erase_min_bytes=MIN_BYTES, **spark))


@pytest.mark.parametrize(
    ("wanted", "size", "state", "chosen", "reason"),
    [
        ("AUTO", MIN_BYTES, "READY", "SPARK", "LOG_SIZE"),
        ("AUTO", MIN_BYTES, "STOPPED", "SPARK", "LOG_SIZE"),
        ("AUTO", MIN_BYTES - 1, "READY", "INLINE", "LOG_SIZE"),
        ("AUTO", MIN_BYTES, "FAILED", "INLINE", "POOL_FAILED"),
        ("AUTO", MIN_BYTES, "DRAINING", "INLINE", "POOL_DRAINING"),
        ("SPARK", 0, "FAILED", "SPARK", "REQUESTED"),
        ("INLINE", MIN_BYTES, "READY", "INLINE", "REQUESTED"),
    ],
)
def test_engine_is_chosen_by_request_size_and_pool(
    spark: Any, pool: LendingPool, wanted: Any, size: int, state: Any, chosen: str, reason: str
) -> None:
    pool.stands(state)
    assert HandsSource(settings_of(), spark).choose(wanted, size=size) == (chosen, reason)


@pytest.mark.parametrize("wanted", ["AUTO", "SPARK"])
def test_executors_elsewhere_or_none_leave_the_hands_here(spark: Any, wanted: Any) -> None:
    away = HandsSource(settings_of(master="spark://executors.example:7077"), spark)
    assert away.choose(wanted, size=MIN_BYTES) == ("INLINE", "DIRECTORY_ON_THIS_MACHINE")
    assert HandsSource(settings_of(), None).choose(wanted, size=MIN_BYTES) == ("INLINE", "SPARK_DISABLED")


def test_hands_are_taken_once_and_the_job_tells_the_engine(
    bench: Workbench, spark: Any, pool: LendingPool, directory: Path
) -> None:
    job_id = bench.submit()
    context = bench.context()
    source = HandsSource(settings_of(), spark)
    hands, engine = source.take(context, None, directory=directory)
    assert (engine, bench.row(job_id)["engine"], context.is_on_pool) == ("SPARK", "SPARK", True)
    shown = bench.checkpoint(job_id, CHECKPOINT_ENGINE)
    assert shown == {
        "engine": "SPARK",
        "reason": "LOG_SIZE",
        "requested": "AUTO",
        "log_bytes": 1_000,
        "min_bytes": MIN_BYTES,
        "threshold_source": "SETTING",
    }
    hands.close()
    source.take(context, None, directory=directory)[0].close()
    assert [event.type for event in bench.events(job_id)].count(EVENT_ENGINE) == 1
    assert [lease.ended for lease in pool.leases] == [["closed"], ["closed"]]
    assert pool.leases[0].job_id == job_id


def test_inline_hands_are_made_by_whoever_is_asked_for_them(
    bench: Workbench, spark: Any, directory: Path
) -> None:
    bench.submit()
    made: list[Any] = []

    def make() -> Any:
        made.append(SimpleNamespace())
        return made[-1]

    source = HandsSource(settings_of(), spark, make)
    hands, engine = source.take(bench.context(), "INLINE", directory=directory)
    assert (engine, [hands]) == ("INLINE", made)


@pytest.fixture
def refusals() -> dict[str, SparkError]:
    return {
        "QUEUE_FULL": PoolQueueFull("full", retry_after_s=7),
        "READY: drained": PoolDraining("drained"),
        "READY": LeaseWaitEnded("no slot within 20 s", cause="TIMEOUT"),
    }


def test_pool_that_lends_nothing_makes_the_job_wait_and_leaves_the_room_free(
    bench: Workbench, spark: Any, pool: LendingPool, refusals: dict[str, SparkError]
) -> None:
    bench.submit()
    context = bench.context()
    for ref, refusal in refusals.items():
        pool.refusal = refusal
        with pytest.raises(JobWaiting) as waiting:
            borrow_spark_hands(spark, context)
        assert [(each.kind, each.ref) for each in waiting.value.waiting_on] == [(SPARK_POOL, ref)]
        assert waiting.value.not_before is not None
        assert not waiting.value.transient
    pool.refusal = None
    borrow_spark_hands(spark, context).close()


def test_pool_that_comes_up_is_shown_while_it_is_waited_for(
    bench: Workbench, spark: Any, pool: LendingPool
) -> None:
    job_id = bench.submit()
    context = bench.context()
    pool.stands("STOPPED")
    seen: list[Any] = []
    pool.look = lambda: seen.extend(bench.row(job_id)["waiting_on"])
    with borrow_spark_hands(spark, context):
        assert [each["ref"] for each in seen] == ["STARTING"]
        assert bench.row(job_id)["waiting_on"] == []
    assert pool.starts == 1


def test_job_that_stops_while_it_waits_says_so(bench: Workbench, spark: Any, pool: LendingPool) -> None:
    bench.submit()
    context = bench.context()
    pool.look = lambda: context.signal(StopCause.ABORT)
    with pytest.raises(JobStopped):
        borrow_spark_hands(spark, context)
    assert spark.hands_room.acquire(blocking=False)


def test_hands_leave_a_slot_for_others(bench: Workbench, spark: Any) -> None:
    bench.submit()
    context = bench.context()
    first = borrow_spark_hands(spark, context)
    with pytest.raises(JobWaiting) as waiting:
        borrow_spark_hands(spark, context)
    assert [each.ref for each in waiting.value.waiting_on] == ["HANDS_FULL"]
    first.close()
    borrow_spark_hands(spark, context).close()


def test_size_of_a_log_is_that_of_its_files_alone(directory: Path) -> None:
    assert log_bytes(directory) == 1_000
    assert log_bytes(directory / "gone") == 0
