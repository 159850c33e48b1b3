"""What windows mean for the jobs of this process.

Rules:
- windows are read again every LOOK_EVERY_S while a job is held, never while there is none;
- what holds is reckoned from the metadata's clock at each look, by which jobs are claimed too: instances
  whose own clocks differ agree, and no job is claimed a moment before its window opens. Nothing is counted,
  so no jump of that clock is missed.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlmodel import Session

from app.clock import Clock
from app.db import Database
from app.jobs.running.claims import ClaimedJob
from app.jobs.running.openings import Opening
from app.schedules.windows.rows import Window
from app.schedules.windows.rules import Opens, Rule, finishes_at, level_at, opens
from app.schedules.windows.service import WAKE_KEY, all_windows, is_for, rule_of
from app.stores.rows import Store

LOOK_EVERY_S: Final = 2.0
UNKNOWN_FOR: Final = timedelta(minutes=1)
OUTSIDE: Final = "outside of every ALLOW window"
IsHeld = Callable[[str, Mapping[str, Any]], bool]


class WindowBrake:
    """The windows as the runner of one process asks for them; any thread.

    Args:
        is_held: whether windows hold a job of a kind, with its parameters.
    """

    wake_key = WAKE_KEY

    def __init__(self, database: Database, clock: Clock, *, is_held: IsHeld) -> None:
        self._database = database
        self._clock = clock
        self._is_held = is_held
        self._guard = threading.Lock()
        self._seen_at_s: float | None = None
        self._windows: Sequence[Window] = ()
        self._stores: dict[str, _OfStore] = {}
        self._ends: dict[tuple[str, ...], _End] = {}

    def of(self, job: ClaimedJob, *, fresh: bool = False) -> Opening | None:
        """How hard a job may work now; None: nothing brakes it."""
        if job.store is None or not self._is_held(job.kind, job.params):
            return None
        with self._guard:
            return self._look(job.store, fresh=fresh).opening

    def closes(self, db: Session, job: ClaimedJob) -> bool:
        """Whether a job may not work now, as this transaction sees it; it opens no other.

        Windows and labels are locked to its end: who changes them comes before it, and is seen, or after it,
        and finds a job that waits.
        """
        if job.store is None or not self._is_held(job.kind, job.params):
            return False
        windows = all_windows(db, lock=True)
        if windows:
            db.get(Store, job.store, with_for_update={"read": True}, populate_existing=True)
        return level_at(_rules_of(db, job.store, windows), self._database.now(db)).intensity <= 0

    def finishes_at(self, job: ClaimedJob, now: datetime, *, work_s: float) -> datetime | None:
        """When work of so many seconds at full intensity is done; None: not within a foreseeable time."""
        rules: Sequence[Rule] = ()
        if job.store is not None and self._is_held(job.kind, job.params):
            with self._guard:
                rules = self._look(job.store, fresh=False).rules
        return finishes_at(rules, now, work_s=work_s)

    def _look(self, store: str, *, fresh: bool) -> "_OfStore":
        """What holds at a store, as it was seen at most LOOK_EVERY_S ago."""
        now_s = self._clock.boottime_s()
        is_old = self._seen_at_s is None or now_s - self._seen_at_s >= LOOK_EVERY_S
        if not (is_old or fresh) and store in self._stores:
            return self._stores[store]
        with self._database.reading() as db:
            if is_old or fresh:
                self._windows, self._stores, self._seen_at_s = all_windows(db), {}, now_s
                self._ends = {} if not self._windows else self._ends
            rules = _rules_of(db, store, self._windows)
            now = self._database.now(db)
        found = _OfStore(rules, self._opening(rules, now))
        self._stores[store] = found
        return found

    def _opening(self, rules: Sequence[Rule], now: datetime) -> Opening | None:
        level = level_at(rules, now)
        if level.intensity >= 1:
            return None
        ref = OUTSIDE if level.rule is None else level.rule.id
        if level.intensity > 0:
            return Opening(level.intensity, ref)
        end = self._opens(rules, now)
        return Opening(level.intensity, ref, end.at, looked_at=now, not_before=end.not_before)

    def _opens(self, rules: Sequence[Rule], now: datetime) -> Opens:
        """When work may go on: reckoned over many changes of windows, so kept until then."""
        key = tuple(sorted(rule.id for rule in rules))  # a window is never changed, only removed
        known = self._ends.get(key)
        if known is None or not known.since <= now < known.until:
            end = opens(rules, now)
            known = self._ends[key] = _End(now, end.not_before or now + UNKNOWN_FOR, end)
        return known.end


@dataclass(frozen=True, slots=True)
class _End:
    """When windows let work go on, and from when until when that may be told."""

    since: datetime
    until: datetime
    end: Opens


@dataclass(frozen=True, slots=True)
class _OfStore:
    """What was seen of the windows of a store."""

    rules: Sequence[Rule]
    opening: Opening | None


def _rules_of(db: Session, store: str, windows: Sequence[Window]) -> list[Rule]:
    row = db.get(Store, store) if windows else None
    labels = {} if row is None else row.labels
    return [rule_of(window) for window in windows if is_for(window, labels)]
