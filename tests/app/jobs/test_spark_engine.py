"""Which engine a job gets, and what trouble of the pool means for it; Spark itself is replaced by threads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.clock import SystemClock
from app.jobs.engines.choice import CHECKPOINT_ENGINE, EVENT_ENGINE, Engines, Work, least_of
from app.jobs.engines.engine import Borrower, InlineEngine
from app.jobs.engines.spark_engine import FAILED_REST_S, REF_MAX_CHARS, SparkEngine
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.kit.spark.thresholds import Source, Threshold, Thresholds
from app.settings import Settings, SparkSettings
from spark.exchange.board import ExchangeLimits
from spark.exchange.dispatch import Exchange
from spark.pool.errors import PoolDraining, PoolFailed, PoolQueueFull, SparkError, SparkJobFailed
from spark.pool.snapshot import Alone, PoolSnapshot, PoolState, WaitingView
from spark.targets.target import Target, is_on_this_machine
from tests.app.jobs.workbench import Workbench
from tests.spark.exchange.slots import CORES, ThreadSlots
from tests.spark.exchange.work import blunder, made_target, note, rest, work_of

LIMITS = ExchangeLimits(task_s=0.2, gather_s=0.005, losses_max=1)


class Pool:
    """A pool that says of itself what a test wants."""

    def __init__(self) -> None:
        self.found = PoolSnapshot(
            state="READY",
            since_s=1.0,
            slots=(),
            queue=(),
            queue_max=8,
            jobs_run=0,
            rebuilds=0,
            failed_rebuilds=0,
            last_error=None,
            start_took_s=None,
            uses_cds=False,
            spark_version=None,
            master="local[2,4]",
            jvm_pid=None,
            context_age_s=None,
        )
        self.starts = 0

    def stands(self, state: PoolState, *, since_s: float = 1.0) -> None:
        self.found = replace(self.found, state=state, since_s=since_s)

    def start(self) -> None:
        self.starts += 1
        self.stands("STARTING")

    def snapshot(self) -> PoolSnapshot:
        return self.found


@pytest.fixture
def slots() -> Iterator[ThreadSlots]:
    made = ThreadSlots(2)
    yield made
    made.close()


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def engine(pool: Pool, slots: ThreadSlots) -> Iterator[SparkEngine]:
    exchange = Exchange(
        slots,
        dispatchers=2,
        limits=LIMITS,
        run=slots.run_tasks,
        cores=lambda _: CORES,
        describe=slots.describe,
    )
    yield SparkEngine(pool, exchange, SystemClock(), queue_max=1)
    exchange.close()


def work(requested: Any = "AUTO", rows: int | None = 500_000, *, has_ledger: bool = True) -> Work:
    return Work(requested, rows, has_ledger)


def thresholds(least: int | None, least_cold: int | None, source: Source = "BUILT_IN") -> Thresholds:
    made = Threshold(least, least_cold, source, "of a test")
    return {"PURGE": made, "EXTINCTION": made, "WINDOW": made, "ERASURE": made}


@pytest.mark.parametrize(
    ("asked", "state", "chosen", "reason"),
    [
        (work(), "READY", "SPARK", "ROWS"),
        (work(), "STOPPED", "SPARK", "ROWS"),
        (work(rows=100_000), "READY", "SPARK", "ROWS"),
        (work(rows=99_999), "READY", "INLINE", "ROWS"),
        (work(rows=None), "READY", "INLINE", "NO_ESTIMATE"),
        (work(), "FAILED", "INLINE", "POOL_FAILED"),
        (work(), "DRAINING", "INLINE", "POOL_DRAINING"),
        (work("SPARK", 1), "READY", "SPARK", "REQUESTED"),
        (work("SPARK", 1), "FAILED", "SPARK", "REQUESTED"),
        (work("SPARK", has_ledger=False), "READY", "INLINE", "NO_LEDGER"),
        (work("INLINE"), "READY", "INLINE", "REQUESTED"),
    ],
)
def test_engine_is_chosen_by_request_rows_and_pool(
    bench: Workbench, engine: SparkEngine, pool: Pool, asked: Work, state: Any, chosen: str, reason: str
) -> None:
    pool.stands(state)
    job_id = bench.submit()
    context = bench.context()
    engines = Engines(InlineEngine(SystemClock()), engine, lambda: thresholds(100_000, 100_000, "SETTING"))
    assert engines.choose(context, asked).name == chosen
    assert bench.job(job_id).engine == chosen
    [event] = [event for event in bench.events(job_id) if event.type == EVENT_ENGINE]
    assert event.data == {
        "engine": chosen,
        "reason": reason,
        "requested": asked.requested,
        "estimated_rows": asked.rows,
        "min_rows": 100_000,
        "threshold_source": "SETTING",
    }
    engines.choose(context, asked)
    assert len([event for event in bench.events(job_id) if event.type == EVENT_ENGINE]) == 1
    assert bench.checkpoint(job_id, CHECKPOINT_ENGINE) == event.data


WAITS = WaitingView("j", "BULK", 2.0)
"""Somebody has waited for a slot for two seconds."""


@pytest.mark.parametrize(
    ("rows", "stands", "chosen", "reason", "least"),
    [
        (1_000, {"state": "READY"}, "SPARK", "ROWS", 1_000),
        (999, {"state": "READY"}, "INLINE", "ROWS", 1_000),
        (29_999, {"state": "STOPPED"}, "INLINE", "POOL_COLD", 30_000),
        (29_999, {"state": "STARTING"}, "INLINE", "POOL_COLD", 30_000),
        (29_999, {"state": "REBUILDING"}, "INLINE", "POOL_COLD", 30_000),
        (999, {"state": "STOPPED"}, "INLINE", "ROWS", 30_000),
        (30_000, {"state": "STOPPED"}, "SPARK", "ROWS", 30_000),
        (30_000, {"state": "FAILED"}, "INLINE", "POOL_FAILED", 1_000),
        (30_000, {"state": "DRAINING"}, "INLINE", "POOL_DRAINING", 1_000),
        (30_000, {"state": "READY", "queue": (WAITS,)}, "INLINE", "POOL_BUSY", 1_000),
        (30_000, {"state": "READY", "queue": (replace(WAITS, waited_s=1.9),)}, "SPARK", "ROWS", 1_000),
        (30_000, {"state": "READY", "executors": 0}, "INLINE", "POOL_BUSY", 1_000),
        (30_000, {"state": "READY", "executors": 1}, "SPARK", "ROWS", 1_000),
    ],
)
def test_auto_minds_a_pool_that_is_cold_or_busy(
    bench: Workbench,
    engine: SparkEngine,
    pool: Pool,
    rows: int,
    stands: dict[str, Any],
    chosen: str,
    reason: str,
    least: int,
) -> None:
    pool.found = replace(pool.found, **stands)
    job_id = bench.submit()
    engines = Engines(InlineEngine(SystemClock()), engine, lambda: thresholds(1_000, 30_000))
    assert engines.choose(bench.context(), work(rows=rows)).name == chosen
    told = bench.events(job_id)[-1].data
    assert (told["engine"], told["reason"], told["min_rows"]) == (chosen, reason, least)


@pytest.mark.parametrize("stands", [{"queue": (WAITS,)}, {"executors": 0}, {"state": "STOPPED"}])
def test_threshold_that_a_setting_names_is_an_order(
    bench: Workbench, engine: SparkEngine, pool: Pool, stands: dict[str, Any]
) -> None:
    pool.found = replace(pool.found, **({"state": "READY"} | stands))
    bench.submit()
    engines = Engines(InlineEngine(SystemClock()), engine, lambda: thresholds(1_000, 1_000, "SETTING"))
    assert engines.choose(bench.context(), work(rows=1_000)).name == "SPARK"


@pytest.mark.parametrize("rows", [None, 0, 10**12])
def test_auto_never_takes_spark_where_it_is_never_faster(
    bench: Workbench, engine: SparkEngine, rows: int | None
) -> None:
    """As on a local master, whose cores threads use as well."""
    job_id = bench.submit()
    context = bench.context()
    engines = Engines(InlineEngine(SystemClock()), engine)
    assert engines.choose(context, work(rows=rows)).name == "INLINE"
    told = bench.events(job_id)[-1].data
    assert (told["reason"], told["min_rows"], told["threshold_source"]) == ("NO_GAIN", None, "BUILT_IN")
    assert engines.choose(context, work("SPARK", rows)).name == "SPARK"


@pytest.mark.parametrize(
    ("siblings", "state", "least"),
    [
        (1, "READY", 1_000),
        (2, "READY", 500),
        (4, "READY", 250),
        (40, "READY", 250),
        (1, "STOPPED", 30_000),
        (10, "STOPPED", 3_000),
        (1_000, "STOPPED", 250),
    ],
)
def test_children_of_a_batch_pay_for_a_start_together(
    pool: Pool, siblings: int, state: Any, least: int
) -> None:
    pool.stands(state)
    threshold = thresholds(1_000, 30_000)["PURGE"]
    assert least_of(threshold, pool.found, siblings=siblings) == least


@pytest.mark.parametrize(
    ("master", "root", "is_shared"),
    [
        (None, None, True),
        ("local[2]", None, True),
        ("spark://127.0.0.1:7077", None, True),
        ("spark://cluster:7077", None, False),
        ("spark://cluster:7077", "/mnt/archive", True),
        ("k8s://https://10.0.0.1:6443", None, False),
    ],
)
def test_archive_of_a_remote_cluster_needs_a_root_that_somebody_has_named(
    bench: Workbench, engine: SparkEngine, master: str | None, root: str | None, is_shared: bool
) -> None:
    settings = Settings(spark=SparkSettings(master=master), archive_root=Path(root) if root else None)
    assert settings.archives_reach_executors is is_shared
    inline = InlineEngine(SystemClock())
    engines = Engines(inline, engine, is_shared=settings.archives_reach_executors)
    bench.submit()
    context = bench.context()
    archiving = Work("SPARK", 1, has_ledger=True, archives=True)
    assert engines.choose(context, archiving).name == ("SPARK" if is_shared else "INLINE")
    assert engines.choose(context, replace(archiving, archives=False)).name == "SPARK"


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("sqlite:////var/lib/shop.db", True),
        ("postgresql+psycopg://u@127.0.0.1:5432/shop", True),
        ("postgresql+psycopg://u@localhost/shop", True),
        ("postgresql+psycopg://u@[::1]/shop", True),
        ("postgresql+psycopg:///shop", True),
        ("postgresql+psycopg://u@/shop?host=/run/postgresql", True),
        ("postgresql+psycopg://u@db.example/shop", False),
        ("mysql+pymysql://u@localhost/shop", True),
        ("mysql+pymysql://u@/shop?unix_socket=/run/mysqld.sock", True),
        ("mysql+pymysql://u@10.0.0.7/shop", False),
    ],
)
def test_target_that_is_another_one_elsewhere_runs_inline_beside_a_remote_cluster(
    bench: Workbench, engine: SparkEngine, url: str, is_here: bool
) -> None:
    assert is_on_this_machine(Target(url=url)) is is_here
    wanted = Work("SPARK", 1, has_ledger=True, is_here=is_here)
    inline = InlineEngine(SystemClock())
    job_id = bench.submit()
    context = bench.context()
    remote = Settings(spark=SparkSettings(master="spark://cluster:7077"))
    engines = Engines(inline, engine, are_here=remote.executors_are_here)
    assert engines.choose(context, wanted).name == ("INLINE" if is_here else "SPARK")
    reason = "TARGET_ON_THIS_MACHINE" if is_here else "REQUESTED"
    assert bench.events(job_id)[-1].data["reason"] == reason
    assert Engines(inline, engine).choose(context, wanted).name == "SPARK"


def test_why_an_archive_runs_inline_is_told(bench: Workbench, engine: SparkEngine) -> None:
    job_id = bench.submit()
    engines = Engines(InlineEngine(SystemClock()), engine, is_shared=False)
    engines.choose(bench.context(), Work("SPARK", 1, has_ledger=True, archives=True))
    assert bench.events(job_id)[-1].data["reason"] == "ARCHIVE_NOT_SHARED"


def test_cluster_without_executors_is_shown_to_the_job_that_waits_for_one(
    engine: SparkEngine, pool: Pool, tmp_path: Path
) -> None:
    pool.found = replace(pool.found, executors=0)
    shown: list[list[WaitingOn]] = []
    borrower = Borrower(show_waiting=lambda waiting_on: shown.append(list(waiting_on)))
    with engine.lease(work_of(made_target(tmp_path), rest), workers=1, borrower=borrower) as lease:
        assert len(list(lease.map(iter(range(1))))) == 1
    assert [[item.ref for item in items] for items in shown] == [["NO_EXECUTORS"], []]


def test_why_a_cluster_gives_none_and_until_when_it_is_waited_for_are_shown(
    engine: SparkEngine, pool: Pool, tmp_path: Path
) -> None:
    why = "the API server refuses: " + "x" * 300
    pool.found = replace(pool.found, executors=0, alone=Alone(left_s=60.0, why=why))
    shown: list[list[WaitingOn]] = []
    borrower = Borrower(show_waiting=lambda waiting_on: shown.append(list(waiting_on)))
    with engine.lease(work_of(made_target(tmp_path), rest), workers=1, borrower=borrower) as lease:
        assert len(list(lease.map(iter(range(1))))) == 1
    [first], last = shown
    assert first.ref.startswith("NO_EXECUTORS: the API server refuses: x")
    assert len(first.ref) == REF_MAX_CHARS
    assert first.until is not None
    assert timedelta(seconds=50) < first.until - datetime.now(UTC) <= timedelta(seconds=60)
    assert last == []


def test_cluster_that_is_waited_for_without_an_end_shows_no_until(
    engine: SparkEngine, pool: Pool, tmp_path: Path
) -> None:
    pool.found = replace(pool.found, executors=0, alone=Alone(left_s=None, why="a pod is Pending"))
    shown: list[list[WaitingOn]] = []
    borrower = Borrower(show_waiting=lambda waiting_on: shown.append(list(waiting_on)))
    with engine.lease(work_of(made_target(tmp_path), rest), workers=1, borrower=borrower) as lease:
        assert len(list(lease.map(iter(range(1))))) == 1
    assert [(item.ref, item.until) for item in shown[0]] == [("NO_EXECUTORS: a pod is Pending", None)]


def test_without_spark_everything_runs_inline(bench: Workbench) -> None:
    job_id = bench.submit()
    assert Engines(InlineEngine(SystemClock())).choose(bench.context(), work("SPARK")).name == "INLINE"
    assert bench.events(job_id)[-1].data["reason"] == "SPARK_DISABLED"


def test_units_run_through_the_engine_as_inline(engine: SparkEngine, pool: Pool, tmp_path: Path) -> None:
    with engine.lease(work_of(made_target(tmp_path), note), workers=1) as lease:
        outcomes = list(lease.map(iter(range(20))))
    assert sorted((outcome.unit, outcome.result) for outcome in outcomes) == [(n, n * n) for n in range(20)]
    assert pool.starts == 0


def test_pool_is_started_by_the_first_job_that_needs_it_and_waiting_is_shown(
    engine: SparkEngine, pool: Pool, slots: ThreadSlots, tmp_path: Path
) -> None:
    pool.stands("STOPPED")
    shown: list[list[WaitingOn]] = []

    def show(waiting_on: Any) -> None:
        shown.append(list(waiting_on))
        pool.stands("READY")

    borrower = Borrower(show_waiting=show)
    with engine.lease(work_of(made_target(tmp_path), rest), workers=1, borrower=borrower) as lease:
        assert len(list(lease.map(iter(range(2))))) == 2
    assert pool.starts == 1
    assert [[(item.kind, item.ref) for item in items] for items in shown] == [
        [("SPARK_POOL", "STARTING")],
        [],
    ]


@pytest.mark.parametrize(
    ("refusal", "ref"),
    [
        (PoolQueueFull("8 wait", retry_after_s=7), "QUEUE_FULL"),
        (PoolDraining("being drained"), "READY: being drained"),
        (PoolFailed("no Java"), "READY: no Java"),
    ],
)
def test_job_waits_for_a_pool_that_gives_no_slot(
    engine: SparkEngine, slots: ThreadSlots, tmp_path: Path, refusal: SparkError, ref: str
) -> None:
    slots.refusals.append(refusal)
    with (
        pytest.raises(JobWaiting) as waiting,
        engine.lease(work_of(made_target(tmp_path), note), workers=1) as lease,
    ):
        list(lease.map(iter(range(3))))
    [item] = waiting.value.waiting_on
    assert (item.kind, item.ref) == ("SPARK_POOL", ref)
    assert waiting.value.not_before == item.until
    assert waiting.value.not_before is not None
    assert not waiting.value.transient, "waiting for Spark must not use up a job's retries"


def test_pool_that_was_given_up_is_tried_again_after_a_while_only(
    engine: SparkEngine, pool: Pool, tmp_path: Path
) -> None:
    target = made_target(tmp_path)
    pool.stands("FAILED", since_s=20.0)
    with pytest.raises(JobWaiting) as waiting:
        engine.lease(work_of(target, note), workers=1)
    assert waiting.value.not_before is not None
    assert 15 < (waiting.value.not_before - SystemClock().now()).total_seconds() <= 20
    assert pool.starts == 0
    pool.stands("FAILED", since_s=FAILED_REST_S + 1)
    with engine.lease(work_of(target, note), workers=1) as lease:
        assert len(list(lease.map(iter(range(3))))) == 3
    assert pool.starts == 1


def test_pool_that_fails_under_a_job_makes_it_wait(
    engine: SparkEngine, pool: Pool, slots: ThreadSlots, tmp_path: Path
) -> None:
    with (
        pytest.raises(JobWaiting, match="FAILED"),
        engine.lease(work_of(made_target(tmp_path), rest), workers=1) as lease,
    ):
        _fail_under(lease, pool)


def _fail_under(lease: Any, pool: Pool) -> None:
    for _ in lease.map(iter(range(3))):
        pool.stands("FAILED")


def test_unit_that_is_lost_again_and_again_is_a_transient_failure(
    engine: SparkEngine, slots: ThreadSlots, tmp_path: Path
) -> None:
    slots.script.extend([SparkJobFailed("a worker died")] * 10)
    with (
        pytest.raises(JobWaiting) as waiting,
        engine.lease(work_of(made_target(tmp_path), note), workers=1) as lease,
    ):
        list(lease.map(iter(range(2))))
    assert waiting.value.transient
    assert waiting.value.code == "SPARK_UNITS_LOST"


def test_mistake_of_a_program_fails_the_job(engine: SparkEngine, tmp_path: Path) -> None:
    with (
        pytest.raises(JobFailed, match="KeyError") as failed,
        engine.lease(work_of(made_target(tmp_path), blunder), workers=1) as lease,
    ):
        list(lease.map(iter(range(2))))
    assert failed.value.code == "INTERNAL"


def test_job_beyond_the_end_of_the_queue_waits(
    engine: SparkEngine, slots: ThreadSlots, tmp_path: Path
) -> None:
    target = made_target(tmp_path)
    held = [slots._free.acquire() for _ in range(2)]  # no slot is free: what is handed in waits
    with engine.lease(work_of(target, note), workers=1) as first:
        outcomes = first.map(iter(range(2)))
        engine.exchange._board.hand_in(first._lease._state, 1, b"")  # type: ignore[attr-defined]
        assert engine.is_full
        with pytest.raises(JobWaiting, match="QUEUE_FULL"):
            engine.lease(work_of(target, note), workers=1)
        first.cancel()
    for _ in held:
        slots._free.release()
    assert not engine.is_full
    outcomes.close()  # type: ignore[attr-defined]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as looked:
        assert looked.execute("select count(*) from done").fetchone() == (0,)
