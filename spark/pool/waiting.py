"""Leases that wait for a slot: a queue with an end, first come first served.

Invariant: a waiter is told exactly one thing, a lease or a refusal, and is in the queue until then.
"""

import math
import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

from spark.pool.errors import LeaseRefused, PoolQueueFull
from spark.pool.lease import Lease, Terms

RETRY_AFTER_MIN_S: Final = 1
RETRY_AFTER_MAX_S: Final = 300

# The newest lease counts a fifth in the mean.
_WEIGHT: Final = 0.2


class Waiter:
    """One who waits; `told` is set with either `lease` or `refusal`."""

    def __init__(self, terms: Terms, since: float) -> None:
        self.terms: Final = terms
        self.since: Final = since
        self.told = threading.Event()
        self.lease: Lease | None = None
        self.refusal: LeaseRefused | None = None

    def grant(self, lease: Lease) -> None:
        """Hand over a lease."""
        self.lease = lease
        self.told.set()

    def refuse(self, refusal: LeaseRefused) -> None:
        """Say that there will be none."""
        self.refusal = refusal
        self.told.set()


class WaitingLine:
    """The queue; its caller holds the pool's lock."""

    def __init__(self, *, length_max: int, slots: int) -> None:
        self.length_max: Final = length_max
        self._slots = slots
        self._waiters: deque[Waiter] = deque()
        self._mean_held_s = 1.0

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._waiters)

    def join(self, waiter: Waiter, *, is_served: bool) -> None:
        """Stand at the end.

        Args:
            is_served: whether a slot is free for it at once, so that it does not count as waiting.
        Raises: PoolQueueFull: with the time after which a slot should be free.
        """
        if not is_served and len(self._waiters) >= self.length_max:
            raise PoolQueueFull(
                f"{len(self._waiters)} jobs wait for Spark already", retry_after_s=self.retry_after_s()
            )
        self._waiters.append(waiter)

    def next(self) -> Waiter | None:
        """Take the first one out."""
        return self._waiters.popleft() if self._waiters else None

    def leave(self, waiter: Waiter) -> bool:
        """Go without a lease; False: it has been told something already."""
        if waiter.told.is_set():
            return False
        self._waiters.remove(waiter)
        return True

    def refuse_all(self, refusal: LeaseRefused) -> None:
        """Send everybody away."""
        while self._waiters:
            self._waiters.popleft().refuse(refusal)

    def note_held(self, held_s: float) -> None:
        """Learn from a lease that ended how long they last."""
        self._mean_held_s += _WEIGHT * (held_s - self._mean_held_s)

    def retry_after_s(self) -> int:
        """When a newcomer may find a place, by the mean of the last leases."""
        expected = math.ceil(self._mean_held_s / self._slots)
        return max(RETRY_AFTER_MIN_S, min(RETRY_AFTER_MAX_S, expected))
