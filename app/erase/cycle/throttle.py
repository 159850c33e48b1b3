"""The throttle of a cycle, as the document has it: work units spread evenly over the cycle.

Invariants:
- units are paid before their work begins, and the work begins no earlier than `next_at`;
- time in which nothing was asked for gives no credit: the rate never rises;
- the units of a file are at most UNITS_PER_BYTE for each byte of it.

Source: je-data-eraser, Throttling; design.md, Erase.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.erase.rows import ErasureCycle
from app.jobs.running.context import Spread

UNITS_PER_BYTE: Final = 3
READ_UNITS_PER_BYTE: Final = 1
"""Of component 2, the read through the file, and of component 1, a read that is redundant; each.

The plan has read a file through once, which is component 2; component 1 is what the estimate has too much,
so that a restart, a backup or a lock in between do not make a cycle incomplete.
"""
TOUCH_SHARE: Final = 0.18
MARK_SHARE: Final = 0.16
OVERWRITE_SHARE: Final = 0.50
FINISH_SHARE: Final = 0.16
"""Of components 3 to 6: of the stretch of the file since the round before."""
WRITE_SHARES: Final = MARK_SHARE + OVERWRITE_SHARE + FINISH_SHARE
DELETE_SHARE: Final = 0.25
"""Of a reserved file's length, where it is deleted and not erased."""
HEADERS_SHARE: Final = 1 / 1000
HEADER_MAX_S: Final = 1.0
"""The headers of n files are read over the lesser of a thousandth of the cycle and n times this."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How long one unit takes; 0: there is no throttle."""

    ms_per_unit: float

    @classmethod
    def of(cls, *, total_units: int, left_s: float) -> "Rate":
        """Spread all units over the time that is left of the cycle."""
        return cls(left_s * 1000 / total_units if total_units > 0 and left_s > 0 else 0.0)

    def next_at(self, before: datetime | None, now: datetime, units: int) -> datetime:
        """When the work after these units may begin."""
        assert units >= 0, "work is never given back"
        start = now if before is None else max(now, before)
        return start + timedelta(milliseconds=units * self.ms_per_unit)


def spread(cycle: ErasureCycle, *, now: datetime) -> None:
    """Spread the work of a cycle over what is left of it: after the headers, and after the plan was made."""
    left_s = 0.0 if cycle.ends_at is None else max(0.0, (cycle.ends_at - now).total_seconds())
    cycle.ms_per_unit = Rate.of(total_units=cycle.total_units, left_s=left_s).ms_per_unit
    cycle.next_at = now


def pace_of(cycle: ErasureCycle, *, now: datetime) -> Spread | None:
    """When a throttled cycle is done if it keeps to its throttle, and never later than its end.

    The rate so far tells less: an attempt between two long waits knows only the moment in which it worked.
    """
    if not cycle.ms_per_unit:
        return None
    left = max(0, cycle.total_units - cycle.done_units)
    done_at = Rate(cycle.ms_per_unit).next_at(cycle.next_at, now, left) if left else now
    return Spread(1000 / cycle.ms_per_unit, done_at if cycle.ends_at is None else min(done_at, cycle.ends_at))


def round_units(stretch_bytes: int) -> int:
    """Components 3 to 6 for a stretch of the file.

    The touch is done once, in a file's first round; the stretches of later rounds pay its share too, since
    the estimate gave it to every byte.
    """
    assert stretch_bytes >= 0, "rounds go upwards"
    share = WRITE_SHARES + TOUCH_SHARE
    return round(stretch_bytes * share)


def header_times_s(file_count: int, duration_s: float) -> float:
    """Over how many seconds the creation times are read."""
    return min(duration_s * HEADERS_SHARE, file_count * HEADER_MAX_S)
