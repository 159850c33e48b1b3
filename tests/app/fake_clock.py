"""A clock that moves only when a test says so."""

import threading
from datetime import UTC, datetime, timedelta


class FakeClock:
    """Wall time and boot time move together; whoever sleeps moves them."""

    def __init__(self, start: datetime | None = None) -> None:
        self._guard = threading.Lock()
        self._start = start or datetime.now(UTC).replace(microsecond=0)
        self._passed_s = 0.0

    def now(self) -> datetime:
        with self._guard:
            return self._start + timedelta(seconds=self._passed_s)

    def boottime_s(self) -> float:
        with self._guard:
            return 1_000.0 + self._passed_s

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        with self._guard:
            self._passed_s += seconds
