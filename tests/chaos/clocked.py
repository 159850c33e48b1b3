"""Lethe with a wall clock that a test sets while it runs: `python -m tests.chaos.clocked FILE serve ...`.

FILE holds by how many seconds the wall is ahead (or behind); without it the clock is right. Leases are judged
by the clock of the metadata's server, and lengths are taken from boot time: neither of them jumps.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.cli.main import main
from app.clock import SystemClock

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


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    JumpingClock.place = Path(sys.argv.pop(1))
    setattr(SystemClock, "now", JumpingClock.now)  # noqa: B010 -- wherever the process makes one
    setattr(SystemClock, "place", JumpingClock.place)  # noqa: B010
    sys.exit(main())
