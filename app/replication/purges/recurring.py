"""A purge of a replica that Lethe submits by itself, where a parameter of the store asks for it.

Nothing is submitted for a store that has no such interval of its own above PT0S; the interval counts from the
beginning of the last purge of that kind, whoever asked for it.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session, col, func, select

from app.auth.actions import Action
from app.auth.scopes import Scope
from app.jobs.rows import Job
from app.kinds.parameter import as_timedelta
from app.parameters.service import GlobalValues
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.purging import JOB_PURGE, Looked, submit_looked
from app.sweeps.recurring import Ticked, submit_recurring
from app.sweeps.tick import Recurring, Schedule

Unseen = Callable[[Session, Store, Mapping[str, Any]], Looked]
"""The snapshot of a request whose target is looked at when the job runs."""


def recurring_purge(kind: str, *, parameter: str, unseen: Unseen) -> Recurring:
    """What recurs of a kind of purge.

    Args:
        parameter: of the store: the interval.
    """

    def wanted(_values: GlobalValues, store: Store) -> list[Schedule]:
        interval = as_timedelta(store.parameters.get(parameter, "PT0S"))
        is_asked = store.kind == StoreKind.REPLICA and interval > timedelta(0)
        return [Schedule(kind, interval_s=interval.total_seconds())] if is_asked else []

    def last_began(db: Session, store: Store) -> datetime | None:
        of_kind = col(Job.params)["kind"].as_string() == kind
        query = select(func.max(Job.created_at)).where(Job.store == store.id, Job.kind == JOB_PURGE, of_kind)
        [last] = db.exec(query).all()
        return last

    def submit(db: Session, settings: Settings, store: Store, _schedule: Schedule, now: datetime) -> Ticked:
        reason = f"{parameter} is {store.parameters[parameter]}"
        return submit_recurring(
            db,
            store,
            scope=Scope.PURGES_WRITE,
            submit=lambda caller: submit_looked(
                db, store, unseen(db, store, {}), caller=caller, reason=reason, settings=settings, now=now
            ),
            action=Action.PURGE_CREATE,
            detail=lambda job: {"kind": kind, "reason": job.reason},
            now=now,
        )

    return Recurring(
        store_kind=StoreKind.REPLICA,
        kinds=frozenset({kind}),
        wanted=wanted,
        submit=submit,
        last_began=last_began,
    )
