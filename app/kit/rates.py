"""How often somebody may ask: a bucket per key that fills with time."""

import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final

KEYS_MAX: Final = 10_000
"""The keys heard of longest ago are forgotten: they begin with a full bucket again."""


class Rates:
    """Buckets of `burst`, each filling with `per_s`; safe in threads."""

    def __init__(self, *, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        assert per_s > 0
        assert burst >= 1
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def take(self, key: str) -> None:
        """Take one out, if one is there."""
        with self._lock:
            left, now = self._left(key), self._clock()
            self._buckets[key] = (max(0.0, left - 1.0), now)
            self._buckets.move_to_end(key)
            while len(self._buckets) > KEYS_MAX:
                self._buckets.popitem(last=False)

    def wait_s(self, key: str) -> float:
        """How long until one is there; 0: now."""
        with self._lock:
            return max(0.0, (1.0 - self._left(key)) / self._per_s)

    def _left(self, key: str) -> float:
        left, at = self._buckets.get(key, (self._burst, self._clock()))
        return min(self._burst, left + (self._clock() - at) * self._per_s)
