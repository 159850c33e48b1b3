"""A model that knows nothing of calendars but the local time of each minute, and asks every one of them."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
LATE_AFTER = timedelta(minutes=1)
QUEUE_AGAIN = timedelta(seconds=30)
QUEUE_AT_ONCE = timedelta(seconds=1)
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # by half an hour
    "America/Havana",  # at midnight
    "Asia/Beirut",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Pacific/Chatham",
)
# Around which the clocks change in one of them; and days without any.
CHANGES = (
    datetime(2026, 3, 8, tzinfo=UTC),
    datetime(2026, 3, 29, tzinfo=UTC),
    datetime(2026, 4, 4, tzinfo=UTC),
    datetime(2026, 10, 3, tzinfo=UTC),
    datetime(2026, 10, 25, tzinfo=UTC),
    datetime(2026, 11, 1, tzinfo=UTC),
    datetime(2026, 2, 15, tzinfo=UTC),
    datetime(2026, 3, 22, tzinfo=UTC),
    datetime(2026, 7, 1, tzinfo=UTC),
)
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def random_field(draw: random.Random, place: int) -> str:
    """Stars, steps, lists, ranges, single numbers."""
    least, most = LIMITS[place]
    one = draw.randint(least, most)
    form = draw.random()
    if form < (0.3, 0.3, 0.8, 0.9, 0.75)[place]:
        return "*"
    if form < 0.45:
        return f"*/{draw.choice((2, 5, 7, 15, 20, 30))}" if place < 2 else "*"
    if form < 0.6:
        return ",".join(str(draw.randint(least, most)) for _ in range(draw.randint(2, 3)))
    if form < 0.7:
        return f"{min(one, most - 1)}-{most}"
    return str(one)


def random_cron(draw: random.Random) -> str:
    fields = [random_field(draw, place) for place in range(5)]
    if draw.random() < 0.4:  # where clocks change
        fields[1] = str(draw.randint(0, 3))
    if fields[3] != "*" and (fields[2] != "*" or draw.random() < 0.7):
        fields[3] = "*"  # a 30th of February would be refused
    return " ".join(fields)


def values(text: str, place: int) -> set[int]:
    least, most = LIMITS[place]
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        first, last = (least, most) if span == "*" else (int(low), int(high or low))
        found |= set(range(first, last + 1, int(step or 1)))
    return found


@dataclass
class MinuteCron:
    """Which minutes fit an expression."""

    expression: str
    zone: ZoneInfo
    _sets: list[set[int]] = field(init=False)

    def __post_init__(self) -> None:
        self._texts = self.expression.split()
        self._sets = [values(text, place) for place, text in enumerate(self._texts)]
        self._by_wall = any(text.startswith("*") for text in self._texts[:2])

    def fits(self, at: datetime) -> bool:
        local = at.astimezone(self.zone)
        if self._by_wall:
            return self._fits_wall(local)
        before = (at - MINUTE).astimezone(self.zone).replace(tzinfo=None)
        wall = local.replace(tzinfo=None)
        skipped = before + MINUTE
        while skipped < wall:  # the minutes that the clock has left out
            if self._fits_wall(skipped):
                return True
            skipped += MINUTE
        return local.fold == 0 and self._fits_wall(wall)

    def _fits_wall(self, wall: datetime) -> bool:
        minutes, hours, days, months, weekdays = self._sets
        on_day = wall.day in days
        on_weekday = wall.isoweekday() % 7 in weekdays
        is_both = self._texts[2].startswith("*") or self._texts[4].startswith("*")
        is_day = (on_day and on_weekday) if is_both else (on_day or on_weekday)
        return wall.minute in minutes and wall.hour in hours and wall.month in months and is_day

    def between(self, first: datetime, last: datetime) -> list[datetime]:
        """All minutes that fit, both ends included."""
        return [at for at in minutes_of(first, last) if self.fits(at)]


def minutes_of(first: datetime, last: datetime) -> Iterator[datetime]:
    at = first
    while at <= last:
        yield at
        at += MINUTE


@dataclass
class MinuteSchedule:
    """What a schedule fires, told minute by minute: which due times have come, and which is due now.

    Args:
        makes_up: whether what was missed is made up, once for all.
        queues: whether one that finds a job under way waits for its end; else it leaves its due time out.
    """

    due_times: Collection[datetime]
    offset: timedelta
    makes_up: bool
    queues: bool
    fired: list[datetime] = field(default_factory=list)
    now: datetime | None = None
    waiting: list[datetime] = field(default_factory=list)
    queued: datetime | None = None
    again_at: datetime | None = None

    def begin(self, now: datetime) -> None:
        self.now = now
        self.waiting = self._ahead(now)

    def _ahead(self, now: datetime) -> list[datetime]:
        return sorted(due for due in self.due_times if due + self.offset > now and due not in self.fired)

    def look(
        self, now: datetime, *, there_since: datetime, is_busy: bool, is_refused: bool
    ) -> tuple[datetime, str] | None:
        """What is fired at a look of an instance that is there since an instant; None: nothing."""
        if self.now is not None and now < self.now:  # put back: what was not fired comes again
            self.waiting = self._ahead(now)
            if self.again_at is not None:
                self.again_at = min(self.again_at, now + QUEUE_AT_ONCE)
        self.now = now
        due = self._due(now, there_since) if self.again_at is None else self._queued(now)
        if due is None:
            return None
        if is_busy and self.queues:
            self.queued, self.again_at = due, now + QUEUE_AGAIN
            return None
        self.queued = self.again_at = None
        self.fired.append(due)
        self.waiting = self._ahead(now)
        return due, "SKIPPED_RUNNING" if is_busy else "REFUSED" if is_refused else "SUBMITTED"

    def _queued(self, now: datetime) -> datetime | None:
        return self.queued if self.again_at is not None and self.again_at <= now else None

    def _due(self, now: datetime, there_since: datetime) -> datetime | None:
        come = [due for due in self.waiting if due + self.offset <= now]
        if not come:
            return None
        self.waiting = self._ahead(now)
        newest = max(due for due in self.due_times if come[0] <= due and due + self.offset <= now)
        is_late = there_since - (newest + self.offset) > LATE_AFTER
        return None if newest in self.fired or (is_late and not self.makes_up) else newest
