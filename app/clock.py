"""The clocks of the service: throttles, cycles, leases and schedules never ask the OS themselves."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, three ways."""

    def now(self) -> datetime:
        """Wall time, aware, UTC."""
        ...

    def boottime_s(self) -> float:
        """Seconds that also pass while the machine or the process sleeps (CLOCK_BOOTTIME)."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def now(self) -> datetime:
        """Wall time, aware, UTC."""
        return datetime.now(UTC)

    def boottime_s(self) -> float:
        """Seconds since boot, suspension included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)
