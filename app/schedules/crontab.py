"""Cron expressions of five fields in a time zone, as crontab has them: `30 2 * * MON-FRI`.

What fits a calendar is cronsim's word, asked without any zone; which instants a local time stands for is
decided here, as Debian's cron does:
- an expression whose minute and hour are named (`30 2 * * *`) fits a local time that comes twice the first
  time only, and one that a change of the clocks leaves out right after the gap;
- one that begins its minute or hour with a star goes by the local time as it is: what is left out is left
  out, what comes twice fits twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim

from app.kit.cron import InvalidCron, require_some_day

FIELDS: Final = 5
CRON_MAX_CHARS: Final = 200
NEAR: Final = timedelta(hours=4)
"""No zone moves its clocks by more at once, but for whole days, which are left out as they are."""
MINUTE: Final = timedelta(minutes=1)
NEAR_MINUTES: Final = 2 * int(NEAR / MINUTE)


def parse_crontab(text: str) -> str:
    """The expression in its canonical form: one blank between fields.

    Raises: InvalidCron.
    """
    if len(text) > CRON_MAX_CHARS:
        raise InvalidCron(f"at most {CRON_MAX_CHARS} characters")
    fields = text.split()
    if len(fields) != FIELDS:
        raise InvalidCron("five fields: minute, hour, day of month, month, day of week, as in `30 2 * * *`")
    canonical = " ".join(fields)
    require_some_day(canonical)
    return canonical


@dataclass(frozen=True, slots=True)
class Crontab:
    """When something comes: a valid expression in a zone. All instants are aware, those given back in UTC."""

    expression: str
    time_zone: str
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)
    _by_wall: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        minute, hour = self.expression.split()[:2]
        object.__setattr__(self, "_zone", ZoneInfo(self.time_zone))
        object.__setattr__(self, "_by_wall", minute.startswith("*") or hour.startswith("*"))

    def next_after(self, at: datetime) -> datetime | None:
        """The first instant after `at`; None: none comes within the calendar."""
        return self._first(at, reverse=False)

    def last_until(self, at: datetime) -> datetime | None:
        """The last instant that is not after `at`; None: none has come."""
        return self._first(at, reverse=True)

    def upcoming(self, after: datetime) -> Iterator[datetime]:
        """All instants after `after`."""
        found = self.next_after(after)
        while found is not None:
            yield found
            found = self.next_after(found)

    def _first(self, at: datetime, *, reverse: bool) -> datetime | None:
        """The nearest instant on one side; local times near a change of the clocks are not in order."""
        local = at.astimezone(self._zone).replace(tzinfo=None)
        shift = self._shift_near(at)
        start = local + shift + timedelta(microseconds=1) if reverse else local - shift
        best: datetime | None = None
        for wall in self._walls(start, reverse=reverse):
            for found in self._instants(wall):
                fits = found <= at if reverse else found > at
                nearer = best is None or (found > best if reverse else found < best)
                if fits and nearer:
                    best = found
            if best is not None and self._is_settled(wall, best, reverse=reverse):
                return best
        return best

    def _walls(self, start: datetime, *, reverse: bool) -> Iterator[datetime]:
        try:
            yield from CronSim(self.expression, start, reverse=reverse)
        except (StopIteration, OverflowError):
            return

    def _shift_near(self, at: datetime) -> timedelta:
        """By how much the clocks are changed near an instant."""
        before, after = (each.astimezone(self._zone).utcoffset() for each in (at - NEAR, at + NEAR))
        assert before is not None, "a zone has an offset"
        assert after is not None, "a zone has an offset"
        return abs(after - before)

    def _is_settled(self, wall: datetime, best: datetime, *, reverse: bool) -> bool:
        """Whether no later local time of the search can stand for a nearer instant."""
        shift = self._shift_near(best)
        if not shift:
            return True
        best_wall = best.astimezone(self._zone).replace(tzinfo=None)
        return wall < best_wall - shift if reverse else wall > best_wall + shift

    def _instants(self, wall: datetime) -> list[datetime]:
        """What a local time stands for: nothing, one instant, or two."""
        first, second = (wall.replace(tzinfo=self._zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        exists = first.astimezone(self._zone).replace(tzinfo=None) == wall
        if exists:
            return sorted({first, second}) if self._by_wall else [first]
        if self._by_wall:
            return []
        for _ in range(NEAR_MINUTES):  # to the end of the gap
            wall += MINUTE
            moved = wall.replace(tzinfo=self._zone).astimezone(UTC)
            if moved.astimezone(self._zone).replace(tzinfo=None) == wall:
                return [moved]
        return []
