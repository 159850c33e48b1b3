"""The eraser's own look at all stores, every few seconds: what follows what, which parameters have changed.

Invariants:
- nothing begins by itself unless the store's je.env.runEraser is true and its je.erase.period is above 0, or
  a cycle that was asked for EXPIRED or was DROPPED;
- after COMPLETE and INCOMPLETE the next one begins at the end of the last one; after ABORTED none does, until
  somebody switches the eraser off and on or changes the period;
- what a look decides is decided again under the lock of the store's row, in the transaction that acts: of
  several instances one acts.

Source: je-data-eraser; facts eraser-behaviour, 2; design.md, Erase.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlmodel import Session, col, select

from app.auth.actions import Action
from app.auth.rows import AuditEvent, audited
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.erase.messages import Message, message
from app.erase.models import CycleParams
from app.erase.place import place_of
from app.erase.queries import newest_cycle, newest_cycles
from app.erase.record import end_cycle, store_row
from app.erase.rows import ACTIVE, CycleState, ErasureCycle, ErasureStore, Origin
from app.erase.rules import Wanted, eraser_key, wanted, wanted_among
from app.erase.service import settle, submit_cycle, target_of
from app.errors import ServiceError
from app.jobs.rows import Job
from app.jobs.service import request_abort, wake
from app.jobs.states import TERMINAL, JobState
from app.jobs.writing import change_job
from app.parameters.service import global_values
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store, is_suspended
from app.stores.targets import environment_directory

ACTOR: Final = "eraser"
PERIOD_CHANGED: Final = "PERIOD_CHANGED"
STORES_MAX: Final = 10_000
DETAIL_MAX_CHARS: Final = 500
FOLLOWED_AT_ONCE: Final = frozenset({CycleState.EXPIRED, CycleState.DROPPED})
FOLLOWED_AT_END: Final = frozenset({CycleState.COMPLETE, CycleState.INCOMPLETE, CycleState.FAILED})
logger = structlog.get_logger("lethe.eraser")


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all stores.

    Args:
        changed: told of each job and each store for which something was done.
    """

    database: Database
    settings: Settings
    now: datetime
    changed: Callable[[str], None] = lambda _: None

    def run(self) -> list[str]:
        """Look at each JE store; returns the stores for which something was done."""
        with self.database.reading() as db:
            due = self._due(db)
        done = []
        for store_id in due:
            with self.database.transaction() as db:
                told = self._act(db, store_id)
            for each in told:
                self.changed(each)
            done += [store_id] if told else []
        return done

    def _due(self, db: Session) -> list[str]:
        """The stores that a look under the lock is worth; a few queries for all of them."""
        values, newest = global_values(db), newest_cycles(db)
        rows = {row.store: row for row in db.exec(select(ErasureStore)).all()}
        return [
            store.id
            for store in _stores(db)
            if self._is_due(db, store, wanted_among(values, store), newest.get(store.id), rows.get(store.id))
        ]

    def _is_due(
        self,
        db: Session,
        store: Store,
        asked: Wanted,
        newest: ErasureCycle | None,
        row: ErasureStore | None,
    ) -> bool:
        seen = (False, 0.0) if row is None else (row.seen_enabled, row.seen_period_s)
        if seen != (asked.enabled, asked.period.total_seconds()):
            return True
        if newest is None:
            return asked.enabled
        if newest.state in ACTIVE:
            job = db.get_one(Job, newest.job_id)
            paused = job.state == JobState.PAUSED and newest.state == CycleState.RUNNING
            return job.state in TERMINAL or paused or _has_other_period(newest, asked)
        return self._next_is_due(db, store, newest, asked)

    def _act(self, db: Session, store_id: str) -> list[str]:
        store = db.get(Store, store_id, with_for_update=True)
        if store is None:
            return []
        asked, newest = wanted(db, store), newest_cycle(db, store_id)
        row = store_row(db, store_id, now=self.now)
        period_s = asked.period.total_seconds()
        switched = (row.seen_enabled, row.seen_period_s) != (asked.enabled, period_s)
        before, row.trouble = row.trouble, None
        told = self._do(db, store, newest, asked, switched=switched)
        if row.trouble not in (None, before):
            logger.warning("no cycle was begun", store=store_id, trouble=row.trouble)
        if row.trouble is None:  # else what was switched is tried again
            row.seen_enabled, row.seen_period_s = asked.enabled, period_s
        row.updated_at = self.now
        db.add(row)
        return told

    def _do(
        self, db: Session, store: Store, newest: ErasureCycle | None, asked: Wanted, *, switched: bool
    ) -> list[str]:
        if switched and asked.enabled:
            wake(db, eraser_key(store.id), now=self.now)
        if newest is not None and newest.state in ACTIVE:
            if settle(db, newest, now=self.now) or self._drop(db, newest, asked):
                return [newest.job_id]
            return [store.id] if switched else []
        restarts = switched and newest is not None and _restarts(newest, asked)
        if self._next_is_due(db, store, newest, asked) or (
            restarts and asked.enabled and not is_suspended(store, now=self.now)
        ):
            return self._begin(db, store, newest, asked)
        return []

    # -- the period has changed

    def _drop(self, db: Session, cycle: ErasureCycle, asked: Wanted) -> bool:
        """Drop a cycle whose period was the store's and is another one now."""
        if not _has_other_period(cycle, asked):
            return False
        try:
            request_abort(db, cycle.job_id, now=self.now, actor=ACTOR, reason=PERIOD_CHANGED)
        except ServiceError:  # it has ended since, or is about to: settled by the next look
            return False
        cycle = db.get_one(ErasureCycle, cycle.id)
        end_cycle(db, cycle, CycleState.DROPPED, now=self.now)
        event = message(db, cycle, Message.DROPPED)
        change_job(db, cycle.job_id, guards=[], values={}, now=self.now, event=event)
        return True

    # -- the next cycle

    def _next_is_due(self, db: Session, store: Store, newest: ErasureCycle | None, asked: Wanted) -> bool:
        if is_suspended(store, now=self.now):
            return False
        if newest is None:
            return asked.enabled
        return self._follows(db, newest, asked) and db.get_one(Job, newest.job_id).state in TERMINAL

    def _follows(self, db: Session, newest: ErasureCycle, asked: Wanted) -> bool:
        """Whether the next one comes now, once the job of the newest has ended."""
        if newest.state in FOLLOWED_AT_ONCE and not newest.followed:
            return asked.enabled or (_repeats(newest, asked) and not _is_reviewed(db, newest))
        if newest.state not in FOLLOWED_AT_END or not asked.enabled:
            return False
        return self.now >= _rests_until(newest)

    def _begin(self, db: Session, store: Store, newest: ErasureCycle | None, asked: Wanted) -> list[str]:
        params = _params(store, None if newest is None or _is_reviewed(db, newest) else newest, asked)
        row = store_row(db, store.id, now=self.now)
        caller = Caller("", ACTOR, frozenset({Scope.ERASURE_WRITE}), frozenset({store.id}))
        try:
            directory = environment_directory(store, self.settings)
            job, cycle = submit_cycle(
                db,
                store,
                params,
                identity=place_of(directory),
                caller=caller,
                reason=_reason(params, newest),
                settings=self.settings,
                now=self.now,
            )
        except ServiceError as error:
            row.trouble = f"{error.code}: {error.detail}"[:DETAIL_MAX_CHARS]
            return []
        if newest is not None:
            newest.followed = True
            db.add(newest)
        db.add(_audit(store.id, cycle, now=self.now))
        return [store.id, job.id]


def _stores(db: Session) -> list[Store]:
    query = select(Store).where(Store.kind == StoreKind.JE).order_by(col(Store.id)).limit(STORES_MAX)
    return list(db.exec(query).all())


def _rests_until(cycle: ErasureCycle) -> datetime:
    """When the next one may begin. One that failed before it had an end rests for its whole length."""
    if cycle.ends_at is not None:
        return cycle.ends_at
    ended = cycle.ended_at or cycle.created_at
    if cycle.state == CycleState.FAILED:
        return ended + timedelta(seconds=cycle.period_s or cycle.duration_s)
    return ended


def _has_other_period(cycle: ErasureCycle, asked: Wanted) -> bool:
    return cycle.follows_period and cycle.period_s != asked.period.total_seconds()


def _restarts(newest: ErasureCycle, asked: Wanted) -> bool:
    """Whether a change of the parameters begins a cycle before its time."""
    return newest.state == CycleState.ABORTED or _has_other_period(newest, asked)


def _repeats(cycle: ErasureCycle, asked: Wanted) -> bool:
    """Whether a cycle that did not come to its end is begun afresh though the eraser is off: it was asked for
    by a request, and how long it is to be is still known.
    """
    if cycle.origin != Origin.REQUEST:
        return False
    return not cycle.follows_period or asked.period > timedelta(0)


def _is_reviewed(db: Session, cycle: ErasureCycle) -> bool:
    """Whether a cycle executed a reviewed plan: a fresh one would go beyond it."""
    return db.get_one(Job, cycle.job_id).params.get("plan_id") is not None


def _params(store: Store, newest: ErasureCycle | None, asked: Wanted) -> CycleParams:
    """A fresh one of the same kind where a requested cycle did not come to its end; else the parameters'."""
    by_parameters = CycleParams(
        period=asked.period,
        min_file_age=asked.period,
        duration=asked.period,
        follows_period=True,
        follows_kinds=True,
        kinds=list(asked.kinds),
        engine=None,
        throttle=None,
        origin=Origin.PARAMETERS,
        target=target_of(store),
    )
    if newest is None or newest.state not in FOLLOWED_AT_ONCE or newest.origin != Origin.REQUEST:
        return by_parameters
    kinds = list(asked.kinds) if newest.follows_kinds else newest.kinds
    changes: dict[str, object] = {"origin": Origin.REQUEST, "kinds": kinds}
    changes |= {"follows_period": newest.follows_period, "follows_kinds": newest.follows_kinds}
    if not newest.follows_period:
        changes |= {
            "period": None if newest.period_s is None else timedelta(seconds=newest.period_s),
            "min_file_age": timedelta(seconds=newest.min_file_age_s),
            "duration": timedelta(seconds=newest.duration_s),
        }
    return CycleParams.model_validate(by_parameters.model_dump() | changes)


def _reason(params: CycleParams, newest: ErasureCycle | None) -> str:
    if newest is not None and newest.state in FOLLOWED_AT_ONCE:
        return f"{newest.id} is {newest.state}: a fresh one"
    assert params.origin is Origin.PARAMETERS, "a request begins its own"
    return "je.env.runEraser is on"


def _audit(store_id: str, cycle: ErasureCycle, *, now: datetime) -> AuditEvent:
    subject, detail = ("erasure-cycle", cycle.id), {"origin": str(cycle.origin), "kinds": cycle.kinds}
    return audited(Action.ERASURE_CYCLE_CREATE, subject, at=now, actor=ACTOR, store=store_id, detail=detail)
