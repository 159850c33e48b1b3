"""The exchange over threads in place of Spark: every unit has one outcome, whatever becomes of the jobs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark.exchange.board import Board, ExchangeLimits, Flight, LeaseState
from spark.exchange.dispatch import Exchange
from spark.exchange.errors import TaskBroken, UnitsLost
from spark.exchange.lease import RENEWALS_MAX, LeaseTerms
from spark.pool.errors import PoolDraining, SparkJobCancelled, SparkJobFailed, SparkLost
from spark.targets.errors import TargetAuthFailed, TargetCancelled, TargetLockTimeout
from spark.targets.task import NO_TICKET, Report, pack
from tests.spark.exchange.slots import CORES, ThreadSlots
from tests.spark.exchange.work import be_refused, blunder, done, made_target, note, rest, think, trip, work_of

LIMITS = ExchangeLimits(task_s=0.2, gather_s=0.01)


@pytest.fixture
def slots() -> Iterator[ThreadSlots]:
    made = ThreadSlots(2)
    yield made
    made.close()


@pytest.fixture
def exchange(slots: ThreadSlots) -> Iterator[Exchange]:
    made = Exchange(
        slots,
        dispatchers=2,
        limits=LIMITS,
        run=slots.run_tasks,
        cores=lambda _: CORES,
        describe=slots.describe,
    )
    yield made
    made.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lethe-dispatch")]


def test_every_unit_has_one_outcome(exchange: Exchange, tmp_path: Path) -> None:
    target = made_target(tmp_path)
    with exchange.lease(work_of(target, note), LeaseTerms(workers=1)) as lease:
        outcomes = list(lease.map(iter(range(50))))
    assert sorted((outcome.unit, outcome.result) for outcome in outcomes) == [(n, n * n) for n in range(50)]
    assert done(target) == list(range(50))


def test_units_of_several_jobs_share_jobs_of_spark(
    exchange: Exchange, slots: ThreadSlots, tmp_path: Path
) -> None:
    targets = [made_target(tmp_path, f"{number}.db") for number in range(4)]

    def run(number: int) -> Counter[int]:
        with exchange.lease(work_of(targets[number], note), LeaseTerms(workers=1)) as lease:
            return Counter(outcome.unit for outcome in lease.map(iter(range(20))))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == [Counter(range(20))] * 4
    assert max(len(tasks) for tasks in slots.jobs) > 1
    assert [done(target) for target in targets] == [list(range(20))] * 4


def test_no_more_tasks_run_at_a_place_than_its_leases_have_workers(
    exchange: Exchange, tmp_path: Path
) -> None:
    target = made_target(tmp_path)
    guard, running, most = threading.Lock(), [0], [0]

    def watch() -> None:
        while not ended.is_set():
            tasks = exchange._board._running["here"]
            with guard:
                most[0] = max(most[0], tasks)
            time.sleep(0.001)

    ended = threading.Event()
    watcher = threading.Thread(target=watch)
    watcher.start()

    def run(_number: int) -> int:
        with exchange.lease(work_of(target, think, place="here"), LeaseTerms(workers=2)) as lease:
            return len(list(lease.map(iter(range(12)))))

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == [12, 12, 12]
    ended.set()
    watcher.join()
    assert most[0] == 2
    assert running == [0]
    assert exchange._board._running == Counter()


@pytest.mark.parametrize("allowed", [0, 5])
def test_throttled_job_draws_no_more_than_it_may(exchange: Exchange, tmp_path: Path, allowed: int) -> None:
    drawn: list[int] = []

    def units() -> Iterator[int]:
        for unit in range(20):
            drawn.append(unit)
            yield unit

    terms = LeaseTerms(workers=2, ahead_max=lambda: allowed)
    with exchange.lease(work_of(made_target(tmp_path), note), terms) as lease:
        for taken, _ in enumerate(lease.map(units()), start=1):
            assert len(drawn) <= taken + max(2, allowed)


def test_units_after_an_error_are_run_all_the_same(exchange: Exchange, tmp_path: Path) -> None:
    with exchange.lease(work_of(made_target(tmp_path), trip), LeaseTerms(workers=1)) as lease:
        outcomes = list(lease.map(iter(range(25))))
    failed = {outcome.unit for outcome in outcomes if outcome.error is not None}
    assert failed == {4, 9, 14, 19, 24}
    assert all(isinstance(outcome.error, TargetLockTimeout) for outcome in outcomes if outcome.unit in failed)
    assert sorted(outcome.unit for outcome in outcomes) == list(range(25))


@pytest.mark.parametrize(
    "fault", [SparkLost("no JVM"), SparkJobFailed("a worker died"), SparkJobCancelled("for another's sake")]
)
def test_units_of_a_job_that_ended_badly_are_run_again(
    exchange: Exchange, slots: ThreadSlots, tmp_path: Path, fault: SparkLost
) -> None:
    target = made_target(tmp_path)
    slots.script.extend([fault, None, fault])
    with exchange.lease(work_of(target, note), LeaseTerms(workers=1)) as lease:
        outcomes = list(lease.map(iter(range(30))))
    assert sorted(outcome.unit for outcome in outcomes) == list(range(30))
    assert exchange.snapshot().units_again > 0


def test_unit_that_is_lost_again_and_again_fails_its_own_lease_only(
    exchange: Exchange, slots: ThreadSlots, tmp_path: Path
) -> None:
    """After a job that failed each of its units goes alone, until the one that fails is found."""
    good, bad = made_target(tmp_path, "good.db"), made_target(tmp_path, "bad.db")
    run = slots.run_tasks

    def poisoned(slot: object, tasks: object, deliver: object) -> None:
        if any(b"bad.db" in task.work for task in tasks):  # type: ignore[attr-defined]
            slots.jobs.append([len(task.units) for task in tasks])  # type: ignore[attr-defined]
            raise SparkJobFailed("a worker died")
        run(slot, tasks, deliver)  # type: ignore[arg-type]

    exchange._run = poisoned

    def lost() -> None:
        with exchange.lease(work_of(bad, note), LeaseTerms(workers=1)) as lease:
            list(lease.map(iter(range(4))))

    with ThreadPoolExecutor(1) as pool:
        failing = pool.submit(lost)
        with exchange.lease(work_of(good, note), LeaseTerms(workers=1)) as lease:
            outcomes = list(lease.map(iter(range(40))))
        with pytest.raises(UnitsLost, match="a worker died"):
            failing.result(10)
    assert sorted(outcome.unit for outcome in outcomes) == list(range(40))


def test_mistake_in_a_unit_fails_its_lease_at_once(exchange: Exchange, tmp_path: Path) -> None:
    target = made_target(tmp_path)
    with (
        pytest.raises(TaskBroken, match="KeyError: 'unit 0'"),
        exchange.lease(work_of(target, blunder), LeaseTerms(workers=1)) as lease,
    ):
        list(lease.map(iter(range(3))))
    assert exchange.snapshot().spark_jobs == 1


def test_work_that_cannot_be_sent_is_refused_before_anything_runs(exchange: Exchange, tmp_path: Path) -> None:
    with pytest.raises(TaskBroken, match="cannot be sent"):
        exchange.lease(work_of(made_target(tmp_path), lambda conn, unit: unit), LeaseTerms(workers=1))
    assert exchange.snapshot().leases == 0


def test_cancel_ends_the_map_at_once_and_innocents_are_run_again(exchange: Exchange, tmp_path: Path) -> None:
    ours, theirs = made_target(tmp_path, "ours.db"), made_target(tmp_path, "theirs.db")

    def innocent() -> list[int]:
        with exchange.lease(work_of(theirs, think), LeaseTerms(workers=1)) as lease:
            return sorted(outcome.unit for outcome in lease.map(iter(range(30))))

    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(innocent)
        with exchange.lease(work_of(ours, think), LeaseTerms(workers=1)) as lease:
            outcomes = lease.map(iter(range(1_000)))
            next(outcomes)
            lease.cancel()
            began = time.monotonic()
            rest = list(lease.map(iter(range(5))))
            assert time.monotonic() - began < 0.1
        assert rest
        assert {type(outcome.error) for outcome in rest if outcome.unit >= 5} <= {TargetCancelled, type(None)}
        assert beside.result(20) == list(range(30))


def test_lease_whose_job_must_stop_drops_what_waits(exchange: Exchange, tmp_path: Path) -> None:
    stop = threading.Event()
    terms = LeaseTerms(workers=1, may_work=lambda: not stop.is_set())
    seen = []
    with exchange.lease(work_of(made_target(tmp_path), think), terms) as lease:
        for outcome in lease.map(iter(range(1_000))):
            seen.append(outcome.unit)
            stop.set()
    assert len(seen) < 30


def test_pool_that_gives_no_slot_ends_a_lease_that_only_waits(
    exchange: Exchange, slots: ThreadSlots, tmp_path: Path
) -> None:
    slots.refusals.append(PoolDraining("an administrator wants it empty"))
    target = made_target(tmp_path)
    with (
        pytest.raises(PoolDraining),
        exchange.lease(work_of(target, note), LeaseTerms(workers=1)) as lease,
    ):
        list(lease.map(iter(range(3))))
    assert done(target) == []


def test_look_may_end_a_lease_that_waits(exchange: Exchange, slots: ThreadSlots, tmp_path: Path) -> None:
    class NotNow(Exception):
        pass

    def look() -> None:
        raise NotNow

    slots.script.extend([SparkLost("no JVM")] * 2)
    terms = LeaseTerms(workers=1, look=look)
    with (
        pytest.raises(NotNow),
        exchange.lease(work_of(made_target(tmp_path), rest), terms) as lease,
    ):
        list(lease.map(iter(range(3))))
    assert exchange.snapshot().leases == 0


def test_jobs_of_spark_are_called_by_whose_units_they_carry(
    exchange: Exchange, slots: ThreadSlots, tmp_path: Path
) -> None:
    target = made_target(tmp_path)
    for name in ("job_1 PURGE shop", ""):
        with exchange.lease(work_of(target, note), LeaseTerms(workers=1, name=name)) as lease:
            assert len(list(lease.map(iter([len(name)])))) == 1
    assert slots.described == ["1 units in 1 tasks: job_1 PURGE shop", "1 units in 1 tasks"]


def test_lease_tells_what_its_tasks_took(exchange: Exchange, tmp_path: Path) -> None:
    with exchange.lease(work_of(made_target(tmp_path), note), LeaseTerms(workers=1)) as lease:
        assert lease.use()["tasks"] == 0
        outcomes = list(lease.map(iter(range(40))))
        use = lease.use()
    assert len(outcomes) == 40
    assert use["tasks"] >= 1
    assert use == {
        "groups": ["group"],
        "stages": [7],
        "tasks": use["tasks"],
        "task_s": 0.5 * use["tasks"],
        "cpu_s": 0.25 * use["tasks"],
        "memory_bytes": 1_000,
    }


def test_only_five_leases_are_named() -> None:
    flight = Flight(lambda _why: None)
    for number in range(7):
        flight.leases[number] = LeaseState("place", 1, "BULK", name=f"job_{number}")
    assert flight.description.endswith("job_0; job_1; job_2; job_3; job_4 and 2 more")


def test_use_that_cannot_be_read_spoils_nothing() -> None:
    board = Board(LIMITS)
    lease = LeaseState("place", 1, "BULK")
    board.open(lease)
    board.hand_in(lease, 1, pack(1))
    flight = board.take_off("BULK", lambda _why: None, cores=1)
    assert flight is not None
    [task] = flight.tasks
    done = pack((None, None, 0.1))
    board.deliver(
        flight,
        [
            Report(task.number, NO_TICKET, "RAN", b"no pickle"),
            Report(task.number, task.units[0][0], "DONE", done),
        ],
    )
    assert board.next_outcome(lease, 0) is not None
    assert board.use_of(lease)["tasks"] == 0


class Forever:
    """A command that tells another password each time; none is right."""

    def __init__(self) -> None:
        self.told = 0

    def now(self) -> str:
        return f"wrong {self.told}"

    def after_refusal(self, tried: str | None) -> str | None:
        self.told += 1
        return self.now()

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return type(None), ()


def test_ever_other_passwords_are_not_tried_for_ever(exchange: Exchange, tmp_path: Path) -> None:
    """A server may lock a user out who tries one after the other."""
    renewal = Forever()
    target = replace(made_target(tmp_path), password="wrong", renewal=renewal)
    with exchange.lease(work_of(target, be_refused), LeaseTerms(workers=1)) as lease:
        outcomes = list(lease.map(iter(range(4))))
    assert [type(outcome.error) for outcome in outcomes] == [TargetAuthFailed] * 4
    assert renewal.told == RENEWALS_MAX


def test_lease_that_is_alone_waits_for_nobody() -> None:
    board = Board(LIMITS)
    first, second = LeaseState("a", 1, "BULK"), LeaseState("b", 1, "BULK")
    board.open(first)
    assert board.gather_s == LIMITS.alone_s
    board.open(second)
    assert board.gather_s == LIMITS.gather_s
