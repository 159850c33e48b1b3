"""Checks that come by themselves: each store is looked at every period, by an instance that reaches it.

Rules:
- whoever looks moves the store's due time on first, in a guarded update: two never look at once, and one that
  dies is followed by another after CLAIM;
- a store that rests is left alone; what is never due costs no statement.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog
from sqlalchemy import func, insert, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, or_, select

from app.clock import Clock
from app.db import Database
from app.errors import ServiceError
from app.jobs.running.runner import survive
from app.news.gate import Gate
from app.parameters.service import global_values
from app.settings import Settings
from app.stores.borders import judge_at_check
from app.stores.checks.keeping import check_period, keep_check, next_look
from app.stores.checks.models import Finding, FindingSeverity, StoreCheck
from app.stores.checks.rows import StoreHealth
from app.stores.models import StoreKind
from app.stores.rows import Store, is_of_known_kind, is_suspended
from app.stores.same_target import kept_same_target, others_on_target
from app.stores.service import note_target, target_of_row

TICK_S: Final = 2.0
THREADS: Final = 2
CLAIM: Final = timedelta(minutes=2)
FIRST: Final = timedelta(seconds=60)
"""A store that is new is looked at after this, or its period."""
DUE_MAX: Final = 1_000
PIECES_MAX: Final = 1_000
AT_ONCE: Final = 4
"""So many stores are claimed, looked at one after the other, and kept together: a look each costs a third."""
APART_S: Final = 0.02
"""Between two of these: a thousand stores that are due together leave room for those who ask."""
Check = Callable[[Database, Store, Settings, datetime], StoreCheck]
logger = structlog.get_logger("lethe.checks")


class Checker:
    """The threads that look at stores.

    Args:
        checks: kind of store to the function that looks at its target.
    """

    def __init__(
        self, database: Database, settings: Settings, clock: Clock, checks: Mapping[StoreKind, Check]
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._checks = checks
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"lethe-checks-{number}", daemon=True)
            for number in range(THREADS)
        ]

    def start(self) -> None:
        """Begin to look."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin no further check; one that hangs at its target holds nothing that anybody waits for."""
        self._stopped.set()

    def _run(self) -> None:
        gate = Gate(self._database.news, self._clock.boottime_s)
        while not self._stopped.wait(TICK_S):
            if gate.opens() and not survive(partial(self._look, gate), "metadata away"):
                gate.forget()

    def _look(self, gate: Gate) -> bool:
        while not self._stopped.wait(APART_S) and self.check_some():
            pass
        due = self._first_due()
        gate.rests_for(None if due is None else (due - self._clock.now()).total_seconds())
        return True

    def check_some(self) -> bool:
        """Look at some stores that are due; returns whether there were any."""
        now = self._clock.now()
        with self._database.reading() as db:
            due = self._due(db, now)
        new = [store_id for store_id, due_at in due if due_at is None]
        if new:
            self._greet(new, now)
        known = [(store_id, due_at) for store_id, due_at in due if due_at is not None]
        for first in range(0, len(known), AT_ONCE):
            claimed, was_any = self._claim(known[first : first + AT_ONCE], now)
            if was_any:
                self._check(claimed)
                return True
        return False

    def _due(self, db: Session, now: datetime) -> list[tuple[str, datetime | None]]:
        """The stores that are due and reached from here, and those that nobody has seen yet.

        Their names alone: of a thousand that are due together each look takes AT_ONCE, and looks again. Those
        that only others reach are passed over, however many they are.
        """
        query = (
            select(Store.id, Store.runs_on, StoreHealth.due_at)
            .join(StoreHealth, col(StoreHealth.store) == col(Store.id), isouter=True)
            .where(is_of_known_kind(), or_(col(StoreHealth.due_at).is_(None), col(StoreHealth.due_at) <= now))
            .order_by(col(StoreHealth.due_at), col(Store.id))
        )
        labels = set(self._settings.labels)
        for piece in range(PIECES_MAX):
            rows = db.execute(query.offset(piece * DUE_MAX).limit(DUE_MAX)).all()
            found = [(store_id, due_at) for store_id, runs_on, due_at in rows if labels.issuperset(runs_on)]
            if found or len(rows) < DUE_MAX:
                return found
        return []

    def _greet(self, store_ids: Sequence[str], now: datetime) -> None:
        """Note when new stores are due first."""
        with self._database.transaction(is_news=False) as db:
            values = global_values(db)
            for store in _stores(db, store_ids):
                period = check_period(db, store, values, self._settings)
                first = min(next_look(now, period), now + FIRST) if period else next_look(now, period)
                new = {"store": store.id, "warnings": 0, "findings": [], "due_at": first}
                new |= {"stale_at": first + 2 * period + FIRST if period else None}
                # Else somebody else was faster, or the store is gone.
                with suppress(IntegrityError), db.begin_nested():
                    db.execute(insert(StoreHealth).values(**new))

    def _claim(
        self, due: Sequence[tuple[str, datetime]], now: datetime
    ) -> tuple[list[tuple[Store, timedelta]], bool]:
        """Move the due times of some stores on; those to look at with their periods, and if any was ours."""
        claimed, was_any = [], False
        with self._database.transaction(is_news=False) as db:
            values = global_values(db)
            seen = dict(due)
            for store in _stores(db, list(seen)):
                mine = db.execute(
                    update(StoreHealth)
                    .where(col(StoreHealth.store) == store.id, col(StoreHealth.due_at) == seen[store.id])
                    .values(due_at=now + CLAIM)
                    .returning(col(StoreHealth.checked_at))
                ).first()
                if mine is None:
                    continue
                was_any = True
                period = check_period(db, store, values, self._settings)
                if not self._put_off(db, store, mine[0], period, now):
                    claimed.append((store, period))
        return claimed, was_any

    def _put_off(
        self, db: Session, store: Store, checked_at: datetime | None, period: timedelta, now: datetime
    ) -> bool:
        """Move on further what is not looked at now; returns whether that is so."""
        again = next_look(now, period)
        due = again if checked_at is None or not period else checked_at + period
        is_early = bool(period) and checked_at is not None and due > now
        rests = is_suspended(store, now=now)
        if period and not is_early and not rests:
            return False
        values: dict[str, datetime | None] = {"due_at": min(due, again) if is_early else again}
        if not period or rests:
            values["stale_at"] = None
        db.execute(update(StoreHealth).where(col(StoreHealth.store) == store.id).values(**values))
        return True

    def _check(self, claimed: Sequence[tuple[Store, timedelta]]) -> None:
        """Look at stores whose due times were moved on here; one that fails is followed by the others."""
        found: list[tuple[Store, timedelta, StoreCheck, datetime]] = []

        def look(store: Store, period: timedelta) -> bool:
            now = self._clock.now()
            found.append((store, period, self._found(store, now), now))
            return True

        for store, period in claimed:
            if not self._stopped.is_set():
                survive(partial(look, store, period), "metadata away")
        if found:
            with self._database.transaction(is_news=False) as db:
                for each in sorted(found, key=lambda one: one[0].id):
                    _keep(db, *each)

    def _found(self, store: Store, now: datetime) -> StoreCheck:
        try:
            judge_at_check(self._database, self._settings, store)
            return self._checks[StoreKind(store.kind)](self._database, store, self._settings, now)
        except ServiceError as error:
            finding = Finding(code=error.code, severity=FindingSeverity.ERROR, detail=error.detail)
            return StoreCheck(ok=False, reachable=False, findings=[finding])

    def _first_due(self) -> datetime | None:
        with self._database.reading() as db:
            return db.exec(select(func.min(StoreHealth.due_at))).one()


def _stores(db: Session, store_ids: Sequence[str]) -> Sequence[Store]:
    """Their rows, those that are still there, in one order: of two who change them none deadlocks."""
    return db.exec(select(Store).where(col(Store.id).in_(store_ids)).order_by(col(Store.id))).all()


def _keep(db: Session, store: Store, period: timedelta, found: StoreCheck, now: datetime) -> None:
    """Keep what a look has found."""
    seen = db.get(Store, store.id)
    if seen is None or target_of_row(seen) != target_of_row(store):
        return  # it names another target by now: that is looked at after CLAIM
    if found.identity is not None:
        note_target(db, store.id, store, identity=found.identity, parameters=found.parameters)
    found.findings += kept_same_target(others_on_target(db, seen, found.findings, found.identity))
    keep_check(db, store, found, period=period, now=now)
