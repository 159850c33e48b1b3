"""Who gets a slot, who waits, and who is sent away."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark.pool.errors import LeaseRefused, LeaseWaitEnded, PoolDraining, PoolQueueFull, PoolStopped
from spark.pool.pool import SparkPool
from tests.spark.conftest import wait_until


class Applicant(threading.Thread):
    """Waits for a lease and gives it back."""

    def __init__(self, pool: SparkPool, name: str, served: list[str]) -> None:
        super().__init__()
        self.refusal: LeaseRefused | None = None
        self._pool, self._job_id, self._served = pool, name, served

    def run(self) -> None:
        try:
            with self._pool.lease(job_id=self._job_id, job_class="BULK") as lease:
                self._served.append(lease.run(lambda session: self._job_id))
        except LeaseRefused as refusal:
            self.refusal = refusal


@contextmanager
def _both_slots_taken(pool: SparkPool) -> Iterator[None]:
    with pool.lease(job_id="a", job_class="BULK"), pool.lease(job_id="b", job_class="BULK"):
        yield


def _wait_in_line(pool: SparkPool, names: list[str], served: list[str]) -> list[Applicant]:
    applicants = []
    for number, name in enumerate(names, start=1):
        applicants.append(Applicant(pool, name, served))
        applicants[-1].start()
        wait_until(lambda n=number: len(pool.snapshot().queue) == n, within_s=5, what=f"{name} waits")  # type: ignore[misc]
    return applicants


def test_full_queue_says_when_to_come_again(pool: SparkPool) -> None:
    served: list[str] = []
    with _both_slots_taken(pool):
        applicants = _wait_in_line(pool, ["c", "d"], served)
        with pytest.raises(PoolQueueFull) as full:
            pool.lease(job_id="e", job_class="BULK")
        snapshot = pool.snapshot()
    for applicant in applicants:
        applicant.join(10)
    assert 1 <= full.value.retry_after_s <= 300
    assert [waiting.job_id for waiting in snapshot.queue] == ["c", "d"]
    assert {slot.job_id for slot in snapshot.slots} == {"a", "b"}
    assert {slot.state for slot in snapshot.slots} == {"LEASED"}
    assert sorted(served) == ["c", "d"]


def test_slot_goes_to_whoever_came_first(pool: SparkPool) -> None:
    served: list[str] = []
    with pool.lease(job_id="a", job_class="BULK"):
        with pool.lease(job_id="b", job_class="BULK"):
            applicants = _wait_in_line(pool, ["first", "second"], served)
        for applicant in applicants:
            applicant.join(10)
    assert served == ["first", "second"]


def test_wait_ends_by_time_and_by_the_caller(pool: SparkPool) -> None:
    with _both_slots_taken(pool):
        began = time.monotonic()
        with pytest.raises(LeaseWaitEnded) as late:
            pool.lease(job_id="c", job_class="BULK", wait_s=0.3)
        with pytest.raises(LeaseWaitEnded) as now:
            pool.lease(job_id="c", job_class="BULK", wait_s=0)
        with pytest.raises(LeaseWaitEnded) as asked:
            pool.lease(job_id="c", job_class="BULK", should_stop=lambda: True)
        took_s = time.monotonic() - began
        assert pool.snapshot().queue == ()
    assert (late.value.cause, now.value.cause, asked.value.cause) == ("TIMEOUT", "TIMEOUT", "STOP")
    assert took_s < 3


def test_drained_pool_refuses_until_it_is_resumed_and_lets_leases_go_on(pool: SparkPool) -> None:
    served: list[str] = []
    with pool.lease(job_id="a", job_class="BULK") as in_hand, pool.lease(job_id="b", job_class="BULK"):
        (applicant,) = _wait_in_line(pool, ["c"], served)
        pool.drain()
        applicant.join(5)
        with pytest.raises(PoolDraining):
            pool.lease(job_id="d", job_class="BULK")
        assert pool.snapshot().state == "DRAINING"
        assert in_hand.run(lambda session: session.range(4).count()) == 4
    pool.resume()
    assert isinstance(applicant.refusal, PoolDraining)
    assert served == []
    with pool.lease(job_id="d", job_class="BULK") as lease:
        assert lease.run(lambda session: session.range(2).count()) == 2


def test_pool_that_was_never_started_refuses_and_does_not_wait(shared_pool: SparkPool) -> None:
    never = SparkPool(shared_pool._options)
    with pytest.raises(PoolStopped):
        never.lease(job_id="a", job_class="BULK")
    with pytest.raises(PoolStopped):
        never.recycle()
    never.stop(1)
    assert never.snapshot().state == "STOPPED"
