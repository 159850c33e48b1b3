"""The recurring trimming: purges CHANGELOG that Lethe submits by itself, where a store asks for them.

Rules:
- nothing is submitted for a store that has no `nsslapd-changelogtrim-interval` of its own above PT0S;
- what a store asks for is read again under its lock, in the transaction that submits: of several instances
  one submits;
- the interval counts from the beginning of the last trimming, whoever asked for it; one that has not ended,
  or a suspended store, lets the time pass.
"""

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlmodel import Session, col, func, select

from app.auth.actions import Action
from app.auth.scopes import Scope
from app.db import Database
from app.jobs.recurring import submit_recurring
from app.jobs.rows import Job
from app.jobs.trimming import CHANGELOG, JOB_PURGE
from app.parameters.registry import as_timedelta
from app.replication.trimming.service import submit_unseen
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store, is_suspended

INTERVAL: Final = "nsslapd-changelogtrim-interval"
STORES_MAX: Final = 10_000
logger = structlog.get_logger("lethe.tick")


def trim_tick_once(
    database: Database, settings: Settings, *, now: datetime, changed: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Submit what is due; returns the new jobs.

    Args:
        changed: told of each job and each store that has one.
    """
    with database.reading() as db:
        query = select(Store).where(Store.kind == StoreKind.REPLICA).order_by(col(Store.id)).limit(STORES_MAX)
        due = [store.id for store in db.exec(query).all() if _is_due(db, store, now)]
    made = []
    for store_id in due:
        with database.transaction() as db:
            job_id = _submit(db, settings, store_id, now=now)
        if job_id is not None:
            made.append(job_id)
            changed(job_id)
            changed(store_id)
    return made


def _is_due(db: Session, store: Store, now: datetime) -> bool:
    interval = as_timedelta(store.parameters.get(INTERVAL, "PT0S"))
    if interval <= timedelta(0) or is_suspended(store, now=now):
        return False
    [last] = db.exec(
        select(func.max(Job.created_at)).where(
            Job.store == store.id,
            Job.kind == JOB_PURGE,
            col(Job.params)["kind"].as_string() == CHANGELOG,
        )
    ).all()
    return last is None or now >= last + interval


def _submit(db: Session, settings: Settings, store_id: str, *, now: datetime) -> str | None:
    """Submit a store's trimming, unless another instance has, or one is under way."""
    store = db.get(Store, store_id, with_for_update=True)
    if store is None or not _is_due(db, store, now):
        return None
    reason = f"{INTERVAL} is {store.parameters[INTERVAL]}"
    ticked = submit_recurring(
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
    logger.info("tick", store=store_id, purge=CHANGELOG, **asdict(ticked))
    return ticked.job_id
