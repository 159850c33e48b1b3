"""A throttled cycle that will not end in time says so while something can be done about it.

The throttle never speeds up, so what time backups take has to fit into what the cycle has to spare. Where it
does not, the cycle names the period with which it would have fitted, as much time being lost, with something
to spare. While a backup goes on that grows: it is said again when what was named would not do any more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from app.erase.cycle.attempt import Attempt
from app.erase.cycle.throttle import (
    READ_UNITS_PER_BYTE,
    TOUCH_SHARE,
    UNITS_PER_BYTE,
    WRITE_SHARES,
    Rate,
    round_units,
)
from app.erase.messages import Message
from app.erase.rows import ErasureCycle, ErasureFile
from app.kit.durations import format_duration
from app.kit.instants import instant_text
from app.protection.queries import backup_spans

CYCLE_LATE: Final = "CYCLE_LATE"
SAID: Final = "period_that_would_do_s"
TO_SPARE: Final = 1.25
HOUR_S: Final = 3600


@dataclass(frozen=True, slots=True)
class Lateness:
    """What a cycle lacks.

    Attributes:
        late: by how much its work would overrun its end.
        backups: for so long backups have held files of the store since its start.
        period: in which the same work would have come to its end, as much time being lost.
    """

    late: timedelta
    backups: timedelta
    period: timedelta


def warn_if_late(attempt: Attempt, remaining: Sequence[ErasureFile]) -> None:
    """Say that a cycle will not end in time, if backups have taken of it."""
    cycle = attempt.cycle
    if cycle.plan is None or cycle.started_at is None or cycle.ends_at is None:
        return
    if time_needed(cycle, remaining, now=attempt.now) is None:
        return
    store, since = attempt.store.id, cycle.started_at
    spans = attempt.record.read(lambda db: backup_spans(db, store, since=since))
    found = lateness(cycle, remaining, spans, now=attempt.now)
    if found is None or found.period.total_seconds() <= cycle.plan.get(SAID, 0.0):
        return
    named = timedelta(seconds=_rounded(found.period.total_seconds() * TO_SPARE))
    facts: dict[str, Any] = {
        "files": len(remaining),
        "late_by": format_duration(found.late),
        "backups_took": format_duration(found.backups),
        "period_that_would_do": format_duration(named),
    }
    said = {SAID: named.total_seconds()}
    attempt.record.change(
        lambda _db, row: setattr(row, "plan", (row.plan or {}) | said), say=Message.LATE, **facts
    )
    detail = (
        f"{len(remaining)} file(s) remain, and the cycle ends at {instant_text(cycle.ends_at)}, "
        f"{facts['late_by']} before its throttle lets it reach the last of them: backups have held its files "
        f"for {facts['backups_took']}. A period of {facts['period_that_would_do']} or more would do"
    )
    attempt.record.warn(CYCLE_LATE, detail)


def time_needed(cycle: ErasureCycle, remaining: Sequence[ErasureFile], *, now: datetime) -> timedelta | None:
    """By how much the rest of a cycle's work overruns its end; None where it does not."""
    if not cycle.ms_per_unit or cycle.ends_at is None:
        return None
    units = sum(max(0, _units_of(file) - file.charged_units) for file in remaining)
    late = Rate(cycle.ms_per_unit).next_at(cycle.next_at, now, units) - cycle.ends_at
    return late if late > timedelta(0) else None


def lateness(
    cycle: ErasureCycle,
    remaining: Sequence[ErasureFile],
    backups: Sequence[tuple[datetime, datetime]],
    *,
    now: datetime,
) -> Lateness | None:
    """Judge a cycle by its throttle; None where it is in time, or no backup has held its files."""
    late = time_needed(cycle, remaining, now=now)
    if late is None or cycle.started_at is None or cycle.ends_at is None:
        return None
    took = time_in(backups, cycle.started_at, now)
    if not took:
        return None
    length = cycle.ends_at - cycle.started_at
    # Of each period so much is work; what is lost is lost once, however long the period is.
    work_share = (READ_UNITS_PER_BYTE + WRITE_SHARES + TOUCH_SHARE) / UNITS_PER_BYTE
    period_s = (length + late / (1 - work_share)).total_seconds()
    return Lateness(_whole(late), _whole(took), timedelta(seconds=period_s))


def time_in(spans: Sequence[tuple[datetime, datetime]], begin: datetime, end: datetime) -> timedelta:
    """How much of a time lies in any of some spans."""
    total, reached = timedelta(0), begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total, reached = total + (last - first), last
    return total


def _units_of(file: ErasureFile) -> int:
    return file.size_bytes * READ_UNITS_PER_BYTE + (round_units(file.size_bytes) if file.entry_count else 0)


def _rounded(seconds: float) -> int:
    """Up to whole hours, where there are some."""
    step = HOUR_S if seconds > HOUR_S else 1
    return math.ceil(seconds / step) * step


def _whole(span: timedelta) -> timedelta:
    return timedelta(seconds=math.ceil(span.total_seconds()))
