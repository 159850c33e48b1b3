"""Lethe with a wall clock that a test sets while it runs.

CLOCK_FILE names a file that holds by how many seconds the wall is ahead (or behind); without it the clock is
right. Leases are judged by the clock of the metadata's server, and lengths are taken from boot time: neither
of them jumps. The forge calls `prepare`; without it this module runs as `lethe`, with the same arguments.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from app.cli.main import main
from app.clock import SystemClock
from tests.forge import FIRST
from tests.journeys.service import Process

VARIABLE: Final = "CLOCK_FILE"
PR_SET_PDEATHSIG = 1


class JumpingClock(SystemClock):
    """The system's clock, ahead by what a file says."""

    place = Path()

    def now(self) -> datetime:
        """Wall time."""
        try:
            ahead_s = float(self.place.read_text() or 0)
        except FileNotFoundError:
            ahead_s = 0.0
        return datetime.now(UTC) + timedelta(seconds=ahead_s)


def set_clock(place: Path, ahead_s: float) -> None:
    """Set the clock of the process that reads this file."""
    fresh = place.with_suffix(".new")
    fresh.write_text(str(ahead_s))
    os.replace(fresh, place)


def clock_of(process: Process, place: Path) -> None:
    """Let the process go by the clock of a file whenever it begins."""
    process.settings |= {VARIABLE: str(place), FIRST: __name__}
    if os.environ.get("LETHE_TEST_FORGE") == "0":
        process.command = [sys.executable, "-m", __name__]


def prepare() -> None:
    """Wherever the process makes a clock, it is the one that the environment names."""
    JumpingClock.place = Path(os.environ[VARIABLE])
    setattr(SystemClock, "now", JumpingClock.now)  # noqa: B010 -- wherever the process makes one
    setattr(SystemClock, "place", JumpingClock.place)  # noqa: B010


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    prepare()
    sys.exit(main())
