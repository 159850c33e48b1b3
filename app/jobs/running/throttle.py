"""The speed of a job: rows and bytes per second and the share of time worked, changeable while it runs.

Work is charged after it is done; the debt drains at the rate in effect, and time in which nothing was
charged gives no credit.
"""

import threading

from app.clock import Clock
from app.jobs.models import ThrottleSetting

CHARGES_MAX = 10_000
REQUESTED = "REQUESTED"
USUAL_SHARE = 0.2
"""How much of the usual size the latest charge is."""


class Throttle:
    """The debt of one job, shared by its workers."""

    def __init__(self, clock: Clock, setting: ThrottleSetting | None = None) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._setting = setting or ThrottleSetting()
        self._cause = REQUESTED
        self._rows = 0.0
        self._bytes = 0.0
        self._rest_s = 0.0
        self._drained_at = clock.boottime_s()
        self._charges = 0
        self._usual = (0.0, 0.0, 0.0)

    @property
    def setting(self) -> ThrottleSetting:
        """The bounds in effect."""
        return self._setting

    @property
    def cause(self) -> str:
        """What the bounds are for: REQUESTED, or WINDOW."""
        return self._cause

    def set(self, setting: ThrottleSetting, *, cause: str = REQUESTED) -> None:
        """Change the bounds; debt from before drains at the new rate."""
        with self._guard:
            self._drain()
            self._setting, self._cause = setting, cause

    def charge(self, *, rows: int, byte_count: int, worked_s: float) -> None:
        """Add work that was done."""
        with self._guard:
            self._drain()
            self._rows += rows
            self._bytes += byte_count
            self._charges += 1
            share = max(USUAL_SHARE, 1 / self._charges)
            self._usual = (
                self._usual[0] + share * (rows - self._usual[0]),
                self._usual[1] + share * (byte_count - self._usual[1]),
                self._usual[2] + share * (worked_s - self._usual[2]),
            )
            intensity = self._setting.intensity
            if intensity is not None:
                self._rest_s += worked_s * (1 / intensity - 1)

    def charges_in(self, seconds: float) -> int | None:
        """How many charges of the usual size the bounds allow in that time; None: there are no bounds."""
        with self._guard:
            setting = self._setting
            rows, byte_count, worked_s = self._usual
            allowed = [
                seconds * bound / max(amount, 1e-9)
                for bound, amount in (
                    (setting.rows_per_s, rows),
                    (setting.bytes_per_s, byte_count),
                    (setting.intensity, worked_s),
                )
                if bound is not None
            ]
            if not allowed:
                return None
            return int(min(*allowed, CHARGES_MAX)) if self._charges else 0

    def delay_s(self) -> float:
        """Seconds until the next unit may start."""
        with self._guard:
            self._drain()
            delays = [self._rest_s if self._setting.intensity is not None else 0.0]
            if self._setting.rows_per_s is not None:
                delays.append(self._rows / self._setting.rows_per_s)
            if self._setting.bytes_per_s is not None:
                delays.append(self._bytes / self._setting.bytes_per_s)
            return max(delays)

    def _drain(self) -> None:
        now = self._clock.boottime_s()
        passed = max(0.0, now - self._drained_at)
        self._drained_at = now
        rows_rate, bytes_rate = self._setting.rows_per_s, self._setting.bytes_per_s
        self._rows = max(0.0, self._rows - passed * rows_rate) if rows_rate is not None else 0.0
        self._bytes = max(0.0, self._bytes - passed * bytes_rate) if bytes_rate is not None else 0.0
        self._rest_s = max(0.0, self._rest_s - passed)
