"""The look at schedules: one statement by an index, whatever their number; then sleep until one is due.

Rules:
- instances do not speak to each other: what is due is decided under the lock of its row;
- the clock is that of the metadata: instances whose own clocks differ agree on what is due;
- a clock that was put back, here or while another instance looked or nobody ran, has the times of schedules
  reckoned anew, and wakes what waits for a window.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog
from sqlmodel import Session, col, select

from app.clock import Clock
from app.db import Database
from app.jobs.running.runner import survive
from app.jobs.service import wake
from app.kit.rests import Rest
from app.schedules.firing import Firing, fired_since
from app.schedules.rows import Schedule
from app.schedules.rules import MISSED_AFTER
from app.schedules.service import set_next, timing_of
from app.schedules.windows.service import WAKE_KEY
from app.settings import Settings

DUE_MAX: Final = 200
"""Schedules of one look; more are looked at right after."""
PIECE: Final = 100
BACKLOG_PAUSE_S: Final = 0.05
FAILED_PAUSE_S: Final = 1.0
RECKONED_AGAIN_AFTER: Final = timedelta(seconds=1)
RECKONED_AGAIN_MAX: Final = timedelta(hours=1)
SLACK: Final = timedelta(seconds=1)
"""By which the metadata's clock and this machine's boot time may differ from look to look."""
logger = structlog.get_logger("lethe.schedules")


@dataclass(frozen=True, slots=True)
class _Moment:
    """An instant of the metadata's clock, and this machine's boot time then."""

    at_s: float
    now: datetime

    def at(self, at_s: float) -> "_Moment":
        """The same clock at another boot time."""
        return _Moment(at_s, self.now + timedelta(seconds=at_s - self.at_s))


@dataclass(slots=True)
class Scheduler:
    """The schedules as one instance looks at them; one thread.

    Args:
        changed: told of each job that is made, and of its store.
        put_back: called where the clock may have been put back, and at the first look, until it returns true.
    Attributes:
        rest_s: in how many seconds to look again.
    """

    database: Database
    settings: Settings
    clock: Clock
    changed: Callable[[str], None] = lambda _: None
    put_back: Callable[[], bool] = lambda: True
    rest_s: float = field(default=0.0, init=False)
    _seen: datetime | None = field(default=None, init=False)
    _there_since: datetime | None = field(default=None, init=False)
    _left: "_Moment | None" = field(default=None, init=False)
    _is_reckoned: bool = field(default=False, init=False)
    _reckoning: Rest | None = field(default=None, init=False)

    def look(self) -> list[str]:
        """Fire what is due; returns the jobs. One that fails is made again soon."""
        self.rest_s = FAILED_PAUSE_S
        begun = self._moment_after(self._left)
        if begun is None:  # nobody looked here for a while
            self._there_since = None
        try:
            with self.database.reading() as db:
                now = self.database.now(db)
                found = _next(db, now)
            begun = _Moment(self.clock.boottime_s(), now)
            return self._look(now, found, self._present_since(now))
        finally:
            self._left = begun and begun.at(self.clock.boottime_s())

    def _moment_after(self, left: "_Moment | None") -> "_Moment | None":
        """What time it is by the last look; None: that was too long ago, or there was none."""
        at_s = self.clock.boottime_s()
        if left is None or at_s - left.at_s > MISSED_AFTER.total_seconds():
            return None
        return left.at(at_s)

    def _present_since(self, now: datetime) -> datetime:
        """What came due from then on was not missed: it was looked ever since, however long that took.

        Where the metadata was away for longer than `schedules_late_s`, what came before that is missed.
        """
        left = self._moment_after(self._left)
        is_steady = left is not None and left.now - SLACK <= now <= left.now + MISSED_AFTER
        if self._there_since is None or not is_steady:
            self._there_since = now
        most = timedelta(seconds=self.settings.schedules_late_s)
        self._there_since = max(min(self._there_since, now), now - most)
        return self._there_since

    def _look(self, now: datetime, found: Sequence["_Next"], there_since: datetime) -> list[str]:
        # Another instance may have seen a later time than this one ever did, and may be gone.
        if self._seen is None or now < self._seen or any(each.is_ahead for each in found):
            self._clock_was_put_back(now)
            with self.database.reading() as db:
                found = _next(db, now)
        self._seen = now
        self._bring_in_line(now)
        due = [each.schedule_id for each in found if each.at <= now]
        firing = Firing(self.database, self.settings, self.changed)
        made: list[str] = []
        failed = 0
        for schedule_id in due:
            fire = partial(firing.fire, schedule_id, now=now, there_since=there_since)
            done = survive(partial(_fire, fire, made), "metadata away")
            failed += not done
        self.rest_s = self._rest(found, due, now, failed=failed)
        if not failed and len(due) < DUE_MAX:
            self._there_since = now
        return made

    def _rest(self, found: Sequence["_Next"], due: Sequence[str], now: datetime, *, failed: int) -> float:
        """Until the next one is due, as far as it is known; others may write one meanwhile."""
        poll_s = self.settings.schedules_poll_s
        if failed:
            return FAILED_PAUSE_S
        if len(due) >= DUE_MAX:
            return BACKLOG_PAUSE_S
        if due:  # when these come again is not known here
            return min(poll_s, 1.0)
        return min([poll_s, *((each.at - now).total_seconds() for each in found)])

    def _bring_in_line(self, now: datetime) -> None:
        """What is not done is tried again ever later: a row that cannot be read stays as it is."""
        if self._is_reckoned or (self._reckoning is not None and now < self._reckoning.until):
            return
        self._is_reckoned = self.put_back()
        self._reckoning = Rest.after(
            self._reckoning, now=now, first=RECKONED_AGAIN_AFTER, longest=RECKONED_AGAIN_MAX
        )

    def _clock_was_put_back(self, now: datetime) -> None:
        """Reckon the times anew of what was reckoned at a later time than it is."""
        self._is_reckoned, self._reckoning = False, None
        reckoned = 0
        while True:
            with self.database.transaction() as db:
                query = select(Schedule).where(col(Schedule.reckoned_at) > now).limit(PIECE)
                rows = db.exec(query.with_for_update(skip_locked=True)).all()
                for row in rows:
                    _reckon(db, row, now)
                reckoned += len(rows)
                if len(rows) < PIECE:
                    if self._seen is not None or reckoned:
                        wake(db, WAKE_KEY, now=now)
                    break
        if reckoned:
            logger.warning(
                "the clock was set back: the next times of schedules were computed again", schedules=reckoned
            )


def _fire(fire: Callable[[], str | None], made: list[str]) -> bool:
    job_id = fire()
    if job_id is not None:
        made.append(job_id)
    return True


@dataclass(frozen=True, slots=True)
class _Next:
    """A schedule that comes.

    Attributes:
        is_ahead: whether any was reckoned at a later time than it is: the clock was put back since.
    """

    schedule_id: str
    at: datetime
    is_ahead: bool


def _next(db: Session, now: datetime) -> list[_Next]:
    """The schedules that come next, in their order."""
    # By more than two looks at the same moment may differ.
    is_ahead = select(Schedule.id).where(col(Schedule.reckoned_at) > now + SLACK).exists()
    query = select(Schedule.id, col(Schedule.next_at), is_ahead).where(col(Schedule.next_at).is_not(None))
    rows = db.exec(query.order_by(col(Schedule.next_at)).limit(DUE_MAX)).all()
    return [_Next(schedule_id, at, ahead) for schedule_id, at, ahead in rows if at is not None]


def _reckon(db: Session, row: Schedule, now: datetime) -> None:
    if row.next_due is None and row.queued_due is None:  # paused, or it never comes again
        row.reckoned_at = now
    elif row.queued_due is not None:
        row.next_at = min(row.next_at or now, now + timedelta(seconds=1))
        row.reckoned_at = now
    else:
        timing = timing_of(row)
        fired = fired_since(db, row.id, now - timing.offset)
        set_next(row, timing.next_due(now, fired=fired), now=now)
    db.add(row)
    db.flush()
