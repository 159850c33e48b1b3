"""The recurring purge of tombstones: submitted by Lethe itself, where a store asks for it.

Nothing is submitted for a store that has no `nsds5ReplicaTombstonePurgeInterval` of its own above PT0S; the
interval counts from the beginning of the last one, whoever asked for it.
"""

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from sqlmodel import Session, col, func, select

from app.auth.actions import Action
from app.auth.scopes import Scope
from app.jobs.rows import Job
from app.kinds.parameter import as_timedelta
from app.parameters.service import GlobalValues
from app.replication.tombstones.service import unseen
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.purging import JOB_PURGE, TOMBSTONES, submit_looked
from app.sweeps.recurring import Ticked, submit_recurring
from app.sweeps.tick import Recurring, Schedule, submit_due

TOMBSTONE_INTERVAL: Final = "nsds5ReplicaTombstonePurgeInterval"


def wanted_purges(_values: GlobalValues, store: Store) -> list[Schedule]:
    """What a store's own parameter asks for."""
    interval = as_timedelta(store.parameters.get(TOMBSTONE_INTERVAL, "PT0S"))
    is_asked = store.kind == StoreKind.REPLICA and interval > timedelta(0)
    return [Schedule(TOMBSTONES, interval_s=interval.total_seconds())] if is_asked else []


def _last_began(db: Session, store: Store) -> datetime | None:
    [last] = db.exec(
        select(func.max(Job.created_at)).where(
            Job.store == store.id,
            Job.kind == JOB_PURGE,
            col(Job.params)["kind"].as_string() == TOMBSTONES,
        )
    ).all()
    return last


def _submit(db: Session, settings: Settings, store: Store, _schedule: Schedule, now: datetime) -> Ticked:
    reason = f"{TOMBSTONE_INTERVAL} is {store.parameters[TOMBSTONE_INTERVAL]}"
    return submit_recurring(
        db,
        store,
        scope=Scope.PURGES_WRITE,
        submit=lambda caller: submit_looked(
            db, store, unseen(db, store, {}), caller=caller, reason=reason, settings=settings, now=now
        ),
        action=Action.PURGE_CREATE,
        detail=lambda job: {"kind": TOMBSTONES, "reason": job.reason},
        now=now,
    )


BURIALS: Final = Recurring(
    store_kind=StoreKind.REPLICA,
    kinds=frozenset({TOMBSTONES}),
    wanted=wanted_purges,
    submit=_submit,
    last_began=_last_began,
)
tombstone_tick_once = partial(submit_due, BURIALS)
