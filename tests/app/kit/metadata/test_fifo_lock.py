"""A lock that serves its waiters in the order of their arrival."""

import threading
import time

import pytest

from app.kit.metadata.fifo_lock import FifoLock
from tests.app.jobs.workbench import in_threads


def test_waiter_that_gives_up_leaves_the_queue() -> None:
    lock = FifoLock()
    assert lock.acquire(0)
    assert lock.acquire(0.02) is False
    lock.release()
    assert lock.acquire(0) is True


def test_newcomer_does_not_overtake_those_who_wait() -> None:
    lock, order = FifoLock(), []

    def wait(name: str) -> None:
        assert lock.acquire(10)
        order.append(name)
        lock.release()

    lock.acquire(0)
    threads = []
    for name in "abc":
        thread = threading.Thread(target=wait, args=(name,))
        thread.start()
        threads.append(thread)
        time.sleep(0.03)
    lock.release()
    wait("late")
    for thread in threads:
        thread.join(5)
    assert order == ["a", "b", "c", "late"]


def test_lock_is_held_by_one_at_a_time_even_when_waits_time_out() -> None:
    lock, inside, most, served = FifoLock(), [0], [0], [0]

    def hammer(_number: int) -> None:
        for turn in range(60):
            if lock.acquire(0.0005 * (turn % 3)):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                served[0] += 1
                inside[0] -= 1
                lock.release()

    assert in_threads(8, hammer) == [None] * 8
    assert most == [1]
    assert served[0] > 0
    assert lock.acquire(0) is True


def test_release_without_a_holder_is_a_programmers_error() -> None:
    with pytest.raises(AssertionError):
        FifoLock().release()
