"""What the tables of verbs and of kinds of stores mean for the floors below: values, passed on by main.py."""

from datetime import datetime

from sqlmodel import Session

from app.auth.actions import Action
from app.clock import SystemClock
from app.db import Database
from app.erase.cycle.attempt import Workshop
from app.hooks.service import hooks_naming
from app.jobs.engines.choice import Engines
from app.jobs.queries import count_active_jobs
from app.jobs.running.suspension import store_key
from app.jobs.running.tasks import TaskKinds
from app.jobs.service import wake
from app.outgoing.hosts import place_of_url
from app.protection.queries import count_active
from app.replication.agreements.service import agreements_naming, agreements_of
from app.schedules.service import remove_schedules_of
from app.schedules.windows.service import WAKE_KEY as WINDOWS_KEY
from app.settings import Settings
from app.stores.checks.models import RecoveryRead
from app.stores.hooks import Leaving, StoreHooks
from app.stores.resting import end_rest_until_recovered
from app.stores.rows import Store
from app.stores.service import stores_naming
from app.verbs import table
from app.verbs.stores.table import KINDS, kind_of
from app.verbs.verb import Tools


def task_kinds(engines: Engines, workshop: Workshop) -> TaskKinds:
    """Job kind to its task."""
    return table.task_kinds(Tools(engines, workshop))


def _count_users(db: Session, store_id: str) -> int:
    """Jobs and protections of a store that have not ended: its target cannot change under them."""
    return count_active_jobs(db, store_id) + count_active(db, store_id)


def _leave(db: Session, store_id: str, now: datetime) -> list[Leaving]:
    """Remove the schedules and agreements of a store with it; returns what the audit says of each."""
    schedules = remove_schedules_of(db, store_id, now=now)
    agreements = agreements_of(db, store_id)  # their rows go with the row of the store
    return [
        *(
            Leaving(Action.SCHEDULE_REMOVE, ("schedule", row.id), {"verb": row.verb, "cron": row.cron})
            for row in schedules
        ),
        *(
            Leaving(
                Action.AGREEMENT_REMOVE,
                ("agreement", row.id),
                {
                    "host": "{}:{}".format(*place_of_url(row.consumer_url)),
                    "consumer_store": row.consumer_store,
                },
            )
            for row in agreements
        ),
    ]


def recover(database: Database, settings: Settings, store: Store, actor: str) -> RecoveryRead:
    """Raise our epoch above a store's target; accept what a restored replica has lost.

    A store that rests since a start on an older copy of the metadata goes on.

    Raises: ServiceError: the target cannot be asked.
    """
    found = kind_of(store).recover(database, settings, store, actor)
    with database.transaction() as db:
        now = database.now(db)
        if end_rest_until_recovered(db, store.id, now=now):
            wake(db, store_key(store.id), now=now)
    return found


def secret_users(db: Session, reference: str) -> list[str]:
    """The stores, agreements and webhooks that name a secret."""
    return [
        *stores_naming(db, reference),
        *agreements_naming(db, reference),
        *hooks_naming(db, reference, now=SystemClock().now()),
    ]


def is_ahead(database: Database, store: Store, settings: Settings) -> bool | None:
    """Whether a store's target has seen a greater epoch than ours; None: it cannot be asked."""
    return kind_of(store).is_ahead(database, store, settings)


STORE_HOOKS = StoreHooks(
    count_active_jobs=_count_users,
    count_extinctions=lambda db, store: kind_of(store).extinctions(db, store),
    leave=_leave,
    resumed=lambda db, store, now: wake(db, store_key(store), now=now),
    relabelled=lambda db, now: wake(db, WINDOWS_KEY, now=now),
    checks={name: kind.check for name, kind in KINDS.items()},
    recover=recover,
)
