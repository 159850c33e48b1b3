"""What windows mean for the jobs of this process.

Rules:
- windows are read again every LOOK_EVERY_S while a job is held, never while there is none;
- what holds is reckoned from the wall clock at each look: nothing is counted, so no jump of it is missed.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlmodel import col, select

from app.clock import Clock
from app.db import Database
from app.jobs.running.claims import ClaimedJob
from app.jobs.running.openings import Opening
from app.schedules.windows.rows import Window
from app.schedules.windows.rules import Rule, finishes_at, level_at, opens_at
from app.schedules.windows.service import WAKE_KEY, all_windows, is_for, rule_of
from app.stores.rows import Store

LOOK_EVERY_S: Final = 2.0
STORES_MAX: Final = 200
"""Whose labels are remembered."""
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
        self._labels: dict[str, Mapping[str, str]] = {}

    def of(self, job: ClaimedJob, *, fresh: bool = False) -> Opening | None:
        """How hard a job may work now; None: nothing brakes it."""
        rules = self._rules(job, fresh=fresh)
        if not rules:
            return None
        now = self._clock.now()
        level = level_at(rules, now)
        if level.intensity >= 1:
            return None
        ref = OUTSIDE if level.rule is None else level.rule.id
        return Opening(level.intensity, ref, None if level.intensity > 0 else opens_at(rules, now))

    def finishes_at(self, job: ClaimedJob, now: datetime, *, work_s: float) -> datetime | None:
        """When work of so many seconds at full intensity is done; None: not within a foreseeable time."""
        return finishes_at(self._rules(job, fresh=False), now, work_s=work_s)

    def _rules(self, job: ClaimedJob, *, fresh: bool) -> list[Rule]:
        if job.store is None or not self._is_held(job.kind, job.params):
            return []
        with self._guard:
            self._look(job.store, fresh=fresh)
            labels = self._labels.get(job.store, {})
            return [rule_of(row) for row in self._windows if is_for(row, labels)]

    def _look(self, store: str, *, fresh: bool) -> None:
        now_s = self._clock.boottime_s()
        is_old = self._seen_at_s is None or now_s - self._seen_at_s >= LOOK_EVERY_S
        if not (is_old or fresh or store not in self._labels):
            return
        with self._database.reading() as db:
            windows = all_windows(db)
            known = self._labels if len(self._labels) < STORES_MAX else {}
            names = {store, *known}
            query = select(Store.id, col(Store.labels)).where(col(Store.id).in_(names))
            labels = dict(db.execute(query).tuples().all()) if windows else {}
        self._windows = windows
        self._labels = {name: labels.get(name, {}) for name in names}
        self._seen_at_s = now_s
