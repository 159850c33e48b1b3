"""The recurring cleanup: what slon's cleanup thread does, submitted by Lethe where a store asks for it.

Rules:
- nothing is submitted for a store that has no `start.cleanup_thread` of its own;
- what a store asks for is read again under its lock, in the transaction that submits;
- of several instances exactly one submits: the row's `next_at` is moved by a guarded update in the
  transaction that inserts the job;
- the first cleanup comes one interval after it was switched on, or the interval changed; ticks that nobody
  was there for are made up once, however many they were;
- a tick that meets a suspended store, or a cleanup that has not ended, is skipped and noted.

Source: facts/slony, section 4: cleanup_interval is both the age of the confirmations and the time between.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Final

import structlog
from pydantic import ConfigDict, Field
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.auth.actions import Action
from app.auth.scopes import Scope
from app.db import Database
from app.events.cleanup.models import CLEANUP_INTERVAL, CleanupRequest
from app.events.cleanup.rows import CleanupTick
from app.events.cleanup.service import submit_unseen
from app.jobs.models import LastJob
from app.jobs.recurring import Ticked, TickOutcome, last_job_of, submit_recurring
from app.kit.durations import Duration
from app.parameters.registry import as_timedelta
from app.parameters.service import effective_by_name
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store

SWITCH: Final = "start.cleanup_thread"
LEAST_S: Final = 60.0
"""An interval of nothing is a good age of confirmations, and no time between two cleanups."""
STORES_MAX: Final = 10_000
logger = structlog.get_logger("lethe.tick")


class CleanupTickRead(LastJob):
    """The recurring cleanup of a store."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "interval": "PT10M",
                    "next_at": "2026-11-20T08:12:05Z",
                    "last_at": "2026-11-20T08:02:05Z",
                    "last_outcome": "SUBMITTED",
                    "last_detail": None,
                    "last_job_id": "job_01kaw3gq8m0f4t5v6w7x8y9z0a",
                    "last_job_state": "SUCCEEDED",
                    "last_job_error": None,
                }
            ]
        }
    )

    interval: Duration = Field(description="Between two cleanups, at least a minute.")
    next_at: datetime
    last_at: datetime | None
    last_outcome: TickOutcome | None = Field(description="Null: none has come yet.")
    last_detail: str | None
    last_job_id: str | None


def tick_once(
    database: Database, settings: Settings, *, now: datetime, changed: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Bring the rows in line with the stores, then submit what is due; returns the new jobs.

    Args:
        changed: told of each job and each store that has one.
    """
    with database.reading() as db:
        is_in_line = _differences(db) == ({}, [])
    if not is_in_line:
        with database.transaction() as db:
            _bring_in_line(db, now)
    with database.reading() as db:
        due = [row.store for row in _due(db, now)]
    made = []
    for store_id in due:
        with database.transaction() as db:
            job_id = _tick(db, settings, store_id, now=now)
        if job_id is not None:
            made.append(job_id)
            changed(job_id)
            changed(store_id)
    return made


def wanted_interval_s(db: Session, store: Store) -> float | None:
    """Seconds between the cleanups that a store asks for; None: it asks for none."""
    if store.kind != StoreKind.SLONY or store.parameters.get(SWITCH) is not True:
        return None
    interval = as_timedelta(effective_by_name(db, CLEANUP_INTERVAL, store.parameters).value)
    return max(LEAST_S, interval.total_seconds())


def _differences(db: Session) -> tuple[Mapping[str, float], list[str]]:
    """What the stores ask for and the rows do not say, and the rows that no store asks for."""
    rows = {row.store: row.interval_s for row in db.exec(select(CleanupTick)).all()}
    query = select(Store).where(Store.kind == StoreKind.SLONY).order_by(col(Store.id)).limit(STORES_MAX)
    asked = {store.id: wanted_interval_s(db, store) for store in db.exec(query).all()}
    wanted = {store: interval_s for store, interval_s in asked.items() if interval_s is not None}
    changed = {store: interval_s for store, interval_s in wanted.items() if rows.get(store) != interval_s}
    return changed, [store for store in rows if store not in wanted]


def _bring_in_line(db: Session, now: datetime) -> None:
    changed, gone = _differences(db)
    for store, interval_s in changed.items():
        at = now + timedelta(seconds=interval_s)
        row = db.get(CleanupTick, store) or CleanupTick(store=store, interval_s=interval_s, next_at=at)
        row.interval_s, row.next_at = interval_s, at
        db.add(row)
    for store in gone:
        db.delete(db.get_one(CleanupTick, store))
    db.flush()


def _due(db: Session, now: datetime) -> list[CleanupTick]:
    query = select(CleanupTick).where(col(CleanupTick.next_at) <= now)
    return list(db.exec(query.order_by(col(CleanupTick.next_at)).limit(STORES_MAX)).all())


def _tick(db: Session, settings: Settings, store_id: str, *, now: datetime) -> str | None:
    """Do one due tick, unless another instance has done it."""
    row = db.get(CleanupTick, store_id)
    store = db.get(Store, store_id, with_for_update=True)
    if row is None or store is None or row.next_at > now:
        return None
    if wanted_interval_s(db, store) != row.interval_s:  # changed since it was found due
        return None
    won = db.execute(
        update(CleanupTick)
        .where(col(CleanupTick.store) == store_id, col(CleanupTick.next_at) == row.next_at)
        .values(next_at=now + timedelta(seconds=row.interval_s), last_at=now)
        .returning(col(CleanupTick.store))
        .execution_options(synchronize_session=False)
    ).first()
    if won is None:
        return None
    ticked = _submit(db, settings, store, now=now)
    db.execute(
        update(CleanupTick)
        .where(col(CleanupTick.store) == store_id)
        .values(**ticked.values())
        .execution_options(synchronize_session=False)
    )
    logger.info("tick", store=store_id, job_kind="EVENT_CLEANUP", **asdict(ticked))
    return ticked.job_id


def _submit(db: Session, settings: Settings, store: Store, *, now: datetime) -> Ticked:
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


def read_tick(db: Session, store: Store, *, now: datetime) -> CleanupTickRead | None:
    """The recurring cleanup of a store; one just switched on has its first time computed. None: it is off."""
    interval_s = wanted_interval_s(db, store)
    if interval_s is None:
        return None
    row = db.get(CleanupTick, store.id)
    if row is None or row.interval_s != interval_s:
        at = now + timedelta(seconds=interval_s)
        row = CleanupTick(store=store.id, interval_s=interval_s, next_at=at)
    fields = row.model_dump(include={"next_at", "last_at", "last_outcome", "last_detail", "last_job_id"})
    fields |= {"interval": timedelta(seconds=interval_s)} | last_job_of(db, row.last_job_id)
    return CleanupTickRead.model_validate(fields)
