"""The recurring cleanup: what slon's cleanup thread does, submitted by Lethe where a store asks for it.

Nothing is submitted for a store that has no `start.cleanup_thread` of its own; the first cleanup comes one
interval after it was switched on, or the interval changed.
Source: facts/slony, section 4: cleanup_interval is both the age of the confirmations and the time between.
"""

from datetime import datetime
from functools import partial
from typing import Final

from sqlmodel import Session

from app.auth.actions import Action
from app.auth.scopes import Scope
from app.events.cleanup.models import CLEANUP_INTERVAL, JOB_CLEANUP, CleanupRequest
from app.events.cleanup.service import submit_unseen
from app.parameters.service import GlobalValues, effective_among
from app.parameters.spec import as_timedelta
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.models import IntervalTickRead
from app.sweeps.recurring import Ticked, submit_recurring
from app.sweeps.tick import Recurring, Schedule, shown_by_interval, submit_due

SWITCH: Final = "start.cleanup_thread"
LEAST_S: Final = 60.0
"""An interval of nothing is a good age of confirmations, and no time between two cleanups."""


class CleanupTickRead(IntervalTickRead):
    """The recurring cleanup of a store."""


def wanted_cleanups(values: GlobalValues, store: Store) -> list[Schedule]:
    """What a store asks for."""
    if store.kind != StoreKind.SLONY or store.parameters.get(SWITCH) is not True:
        return []
    interval = as_timedelta(effective_among(values, CLEANUP_INTERVAL, store.parameters))
    return [Schedule(JOB_CLEANUP, interval_s=max(LEAST_S, interval.total_seconds()))]


def _submit(db: Session, settings: Settings, store: Store, _schedule: Schedule, now: datetime) -> Ticked:
    request = CleanupRequest(reason=f"{SWITCH} is on")
    return submit_recurring(
        db,
        store,
        scope=Scope.EVENTS_WRITE,
        submit=lambda caller: submit_unseen(db, store, request, caller=caller, settings=settings, now=now),
        action=Action.EVENT_CLEANUP_CREATE,
        detail=lambda job: {"interval": job.params["interval"], "reason": job.reason},
        now=now,
    )


CLEANUPS = Recurring(
    store_kind=StoreKind.SLONY, kinds=frozenset({JOB_CLEANUP}), wanted=wanted_cleanups, submit=_submit
)
tick_once = partial(submit_due, CLEANUPS)


def read_tick(db: Session, store: Store, *, now: datetime) -> CleanupTickRead | None:
    """The recurring cleanup of a store; one just switched on has its first time computed. None: it is off."""
    fields = shown_by_interval(db, CLEANUPS, store, now=now)
    return None if fields is None else CleanupTickRead.model_validate(fields)
