"""The recurring trimming: purges CHANGELOG that Lethe submits by itself, where a store asks for them.

Nothing is submitted for a store that has no `nsslapd-changelogtrim-interval` of its own above PT0S; the
interval counts from the beginning of the last trimming, whoever asked for it.
"""

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from sqlmodel import Session, col, func, select

from app.auth.actions import Action
from app.auth.scopes import Scope
from app.jobs.rows import Job
from app.parameters.service import GlobalValues
from app.parameters.spec import as_timedelta
from app.replication.trimming.service import submit_unseen
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.models import IntervalTickRead
from app.sweeps.purging import CHANGELOG, JOB_PURGE
from app.sweeps.recurring import Ticked, submit_recurring
from app.sweeps.tick import Recurring, Schedule, shown_by_interval, submit_due

INTERVAL: Final = "nsslapd-changelogtrim-interval"


class TrimTickRead(IntervalTickRead):
    """The recurring trimming of a store."""


def wanted_trimmings(_values: GlobalValues, store: Store) -> list[Schedule]:
    """What a store's own parameter asks for."""
    interval = as_timedelta(store.parameters.get(INTERVAL, "PT0S"))
    is_asked = store.kind == StoreKind.REPLICA and interval > timedelta(0)
    return [Schedule(CHANGELOG, interval_s=interval.total_seconds())] if is_asked else []


def _last_began(db: Session, store: Store) -> datetime | None:
    [last] = db.exec(
        select(func.max(Job.created_at)).where(
            Job.store == store.id,
            Job.kind == JOB_PURGE,
            col(Job.params)["kind"].as_string() == CHANGELOG,
        )
    ).all()
    return last


def _submit(db: Session, settings: Settings, store: Store, _schedule: Schedule, now: datetime) -> Ticked:
    reason = f"{INTERVAL} is {store.parameters[INTERVAL]}"
    return submit_recurring(
        db,
        store,
        scope=Scope.PURGES_WRITE,
        submit=lambda caller: submit_unseen(
            db, store, {}, caller=caller, reason=reason, settings=settings, now=now, parent_id=None
        ),
        action=Action.PURGE_CREATE,
        detail=lambda job: {"kind": CHANGELOG, "reason": job.reason},
        now=now,
    )


TRIMMINGS = Recurring(
    store_kind=StoreKind.REPLICA,
    kinds=frozenset({CHANGELOG}),
    wanted=wanted_trimmings,
    submit=_submit,
    last_began=_last_began,
)
trim_tick_once = partial(submit_due, TRIMMINGS)


def read_tick(db: Session, store: Store, *, now: datetime) -> TrimTickRead | None:
    """The recurring trimming of a store; None: it is off."""
    fields = shown_by_interval(db, TRIMMINGS, store, now=now)
    return None if fields is None else TrimTickRead.model_validate(fields)
