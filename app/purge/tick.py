"""The recurring tick: purges that Lethe submits by itself where a store's `start.purge.*.job` is on.

Rules:
- nothing is submitted for a store that nobody has switched on: neither the target's own parameters nor a
  value for all stores do that; a purge whose own switch says no is not submitted, whatever switches on all;
- what a store asks for is read again under its lock, in the transaction that submits;
- of several instances exactly one submits: the row's `next_at` is moved by a guarded update in the
  transaction that inserts the job;
- ticks that nobody was there for are made up once, however many they were;
- a tick that meets a suspended store, or a purge of the same tables that has not ended, is skipped and noted.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime

import structlog
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.auth.actions import Action
from app.auth.scopes import Scope
from app.db import Database
from app.jobs.recurring import Ticked, last_job_of, submit_recurring
from app.kit.cron import next_time
from app.parameters.service import effective_by_name
from app.purge.models import PurgeKind, PurgeRequest, PurgeTickRead
from app.purge.rows import PurgeTick
from app.purge.service import submit_unseen
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store

ALL_JOBS = "start.purge.job"
OUTGOING_JOB = "start.purge.outgoing.job"
INCOMING_JOB = "start.purge.incoming.job"
# The purge of gaps is part of the outgoing job since 3.9.
SWITCHES = {
    PurgeKind.OUTGOING: OUTGOING_JOB,
    PurgeKind.INCOMING: INCOMING_JOB,
    PurgeKind.DATA_GAP: OUTGOING_JOB,
}
CRONS = {
    PurgeKind.OUTGOING: "job.purge.outgoing.cron",
    PurgeKind.INCOMING: "job.purge.incoming.cron",
    PurgeKind.DATA_GAP: "job.purge.datagaps.cron",
}
EVERY_FOUR_HOURS = "0 0 */4 * * *"
"""What 3.x does; a cron that somebody has set goes over it."""
STORES_MAX = 10_000
logger = structlog.get_logger("lethe.tick")


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A purge that a store has switched on."""

    kind: PurgeKind
    cron: str
    time_zone: str


def recurrences(db: Session, store: Store) -> list[Recurrence]:
    """What a store's own parameters ask for."""
    if store.kind != StoreKind.SYMMETRICDS:
        return []
    all_on = store.parameters.get(ALL_JOBS) is True
    wanted = [kind for kind in SWITCHES if store.parameters.get(SWITCHES[kind], all_on) is True]
    return [Recurrence(kind, _cron(db, store, kind, all_on=all_on), store.time_zone) for kind in wanted]


def _cron(db: Session, store: Store, kind: PurgeKind, *, all_on: bool) -> str:
    in_effect = effective_by_name(db, CRONS[kind], store.parameters)
    if in_effect.source == "DEFAULT" and not all_on:
        return EVERY_FOUR_HOURS
    return str(in_effect.value)


def tick_once(
    database: Database, settings: Settings, *, now: datetime, changed: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Bring the rows in line with the stores, then submit what is due; returns the new jobs.

    Args:
        changed: told of each job and each store that has one.
    """
    with database.reading() as db:
        is_in_line = _differences(db) == ([], [])
    if not is_in_line:
        with database.transaction() as db:
            _bring_in_line(db, now)
    with database.reading() as db:
        due = [(row.store, PurgeKind(row.kind)) for row in _due(db, now)]
    made = []
    for store, kind in due:
        with database.transaction() as db:
            job_id = _tick(db, settings, store, kind, now=now)
        if job_id is not None:
            made.append(job_id)
            changed(job_id)
            changed(store)
    return made


def _differences(db: Session) -> tuple[list[tuple[str, Recurrence]], list[tuple[str, str]]]:
    """What the stores ask for and the rows do not say, and the keys of rows that no store asks for."""
    rows = {(row.store, row.kind): (row.cron, row.time_zone) for row in db.exec(select(PurgeTick)).all()}
    stores = db.exec(
        select(Store).where(Store.kind == StoreKind.SYMMETRICDS).order_by(col(Store.id)).limit(STORES_MAX)
    ).all()
    wanted = {(store.id, item.kind.value): item for store in stores for item in recurrences(db, store)}
    changed = [
        (store, item)
        for (store, kind), item in wanted.items()
        if rows.get((store, kind)) != (item.cron, item.time_zone)
    ]
    return changed, [key for key in rows if key not in wanted]


def _bring_in_line(db: Session, now: datetime) -> None:
    """A tick that is new, or has another cron or zone, comes at its next time from now."""
    changed, gone = _differences(db)
    for store, item in changed:
        at = next_time(item.cron, now, time_zone=item.time_zone)
        row = db.get(PurgeTick, (store, item.kind.value))
        row = row or PurgeTick(store=store, kind=item.kind.value, cron="", time_zone="", next_at=at)
        row.cron, row.time_zone, row.next_at = item.cron, item.time_zone, at
        db.add(row)
    for key in gone:
        db.delete(db.get_one(PurgeTick, key))
    db.flush()


def _due(db: Session, now: datetime) -> list[PurgeTick]:
    query = select(PurgeTick).where(col(PurgeTick.next_at) <= now)
    return list(db.exec(query.order_by(col(PurgeTick.next_at)).limit(STORES_MAX)).all())


def _tick(db: Session, settings: Settings, store_id: str, kind: PurgeKind, *, now: datetime) -> str | None:
    """Do one due tick, unless another instance has done it."""
    row = db.get(PurgeTick, (store_id, kind.value))
    store = db.get(Store, store_id, with_for_update=True)
    if row is None or store is None or row.next_at > now:
        return None
    if not any(_says(row, item) for item in recurrences(db, store)):  # changed since it was found due
        return None
    following = next_time(row.cron, now, time_zone=row.time_zone)
    won = db.execute(
        update(PurgeTick)
        .where(
            col(PurgeTick.store) == store_id,
            col(PurgeTick.kind) == kind.value,
            col(PurgeTick.next_at) == row.next_at,
        )
        .values(next_at=following, last_at=now)
        .returning(col(PurgeTick.store))
        .execution_options(synchronize_session=False)
    ).first()
    if won is None:
        return None
    ticked = _submit(db, settings, store, kind, now=now)
    db.execute(
        update(PurgeTick)
        .where(col(PurgeTick.store) == store_id, col(PurgeTick.kind) == kind.value)
        .values(**ticked.values())
        .execution_options(synchronize_session=False)
    )
    logger.info("tick", store=store_id, purge=kind.value, **asdict(ticked))
    return ticked.job_id


def _says(row: PurgeTick, item: Recurrence) -> bool:
    return (row.kind, row.cron, row.time_zone) == (item.kind.value, item.cron, item.time_zone)


def _submit(db: Session, settings: Settings, store: Store, kind: PurgeKind, *, now: datetime) -> Ticked:
    switch = ALL_JOBS if store.parameters.get(ALL_JOBS) is True else SWITCHES[kind]
    request = PurgeRequest(kind=kind, reason=f"{switch} is on")
    return submit_recurring(
        db,
        store,
        scope=Scope.PURGES_WRITE,
        submit=lambda caller: submit_unseen(db, store, request, caller=caller, settings=settings, now=now),
        action=Action.PURGE_CREATE,
        detail=lambda job: {"kind": kind.value, "reason": job.reason},
        now=now,
    )


def list_ticks(db: Session, store: Store, *, now: datetime) -> list[PurgeTickRead]:
    """The purges of a store that recur; one just switched on has its first time computed."""
    shown = []
    for item in recurrences(db, store):
        row = db.get(PurgeTick, (store.id, item.kind.value))
        if row is None or (row.cron, row.time_zone) != (item.cron, item.time_zone):
            at = next_time(item.cron, now, time_zone=item.time_zone)
            row = PurgeTick(
                store=store.id, kind=item.kind.value, cron=item.cron, time_zone=item.time_zone, next_at=at
            )
        fields = row.model_dump() | last_job_of(db, row.last_job_id)
        shown.append(PurgeTickRead.model_validate(fields))
    return shown
