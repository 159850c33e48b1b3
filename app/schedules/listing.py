"""The one list of all that recurs: schedules, and what recurs by a parameter or an agreement.

The latter are rows of other tables, where their own domains keep them in line with what stores ask for; here
they are only read. What is removed between the look for ids and that for its row is left out.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, cast

from sqlalchemy import literal, or_, union_all
from sqlalchemy.sql.elements import ColumnElement
from sqlmodel import Session, col, select

from app.auth.service import Caller
from app.erase.queries import newest_cycle
from app.erase.rows import ACTIVE, ErasureStore
from app.erase.rules import PERIOD, RUN_ERASER
from app.erase.service import JOB_ERASURE
from app.events.cleanup.models import JOB_CLEANUP
from app.events.cleanup.tick import SWITCH
from app.jobs.models import JobError
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.pagination import Page, read_page
from app.purge.models import PurgeKind
from app.purge.tick import ALL_JOBS, SWITCHES
from app.replication.agreements.sessions.service import JOB_SESSION
from app.replication.rows import Agreement, AgreementState
from app.replication.tombstones.tick import TOMBSTONE_INTERVAL
from app.replication.trimming.tick import INTERVAL
from app.schedules.models import Firing, Outcome, ScheduleRead
from app.schedules.rows import Schedule
from app.stores.rows import Store
from app.sweeps.purging import CHANGELOG, JOB_PURGE, TOMBSTONES
from app.sweeps.rows import SweepTick

TICK: Final = "tick"
"""`tick:STORE:KIND` is the id of what recurs by a parameter."""
SEPARATOR: Final = ":"


def list_schedules(
    db: Session, caller: Caller, *, store: str | None, page_size: int, page_token: str
) -> Page[ScheduleRead]:
    """All that recurs and the caller may see, by id from the last on: ticks, schedules, agreements."""
    visible = caller.visible_stores()
    filters = {"list": "schedules", "store": store, "visible": visible, "token": visible and caller.token_id}
    found = _every() if store is None and visible is None else _of(caller, store)
    page: Page[str] = read_page(
        db,
        cast(Any, select(found.c.id, literal(1))),  # two columns: rows, not values
        cast(Any, found.c.id),
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=lambda row: str(row.id),
    )
    held = _fetch(db, page.items)
    shown = [_shown(db, found_id) for found_id in page.items]
    del held
    return Page(items=[item for item in shown if item is not None], next_page_token=page.next_page_token)


def _fetch(db: Session, ids: Sequence[str]) -> Sequence[object]:
    """The schedules of a page and their last jobs, all at once: while they are held the session has them."""
    of_schedules = [found_id for found_id in ids if found_id.startswith("sch_")]
    if not of_schedules:
        return []
    schedules = db.exec(select(Schedule).where(col(Schedule.id).in_(of_schedules))).all()
    job_ids = {row.last_job_id for row in schedules if row.last_job_id is not None}
    jobs = db.exec(select(Job).where(col(Job.id).in_(job_ids))).all() if job_ids else []
    return [*schedules, *jobs]


@cache
def _every() -> Any:
    """The ids of all that recurs: what most ask for, made once."""
    return union_all(*_sources(None, None, None)).subquery()


def _of(caller: Caller, store: str | None) -> Any:
    """The ids of what recurs on a store, or on those that the caller sees."""
    return union_all(*_sources(caller.visible_stores(), caller.token_id, store)).subquery()


def _sources(visible: Sequence[str] | None, token_id: str | None, store: str | None) -> Sequence[Any]:
    def of_stores(column: Any, *, own: ColumnElement[bool] | None = None) -> list[ColumnElement[bool]]:
        wanted: list[ColumnElement[bool]] = [] if store is None else [column == store]
        if visible is not None:
            seen = column.in_(visible)
            wanted.append(seen if own is None else or_(seen, own))
        return wanted

    def tick_id(store_column: Any, kind: Any) -> Any:
        return (literal(TICK + SEPARATOR) + store_column + SEPARATOR + kind).label("id")

    is_own = (col(Schedule.store).is_(None)) & (col(Schedule.token_id) == token_id)
    return (
        select(col(Schedule.id).label("id")).where(*of_stores(col(Schedule.store), own=is_own)),
        select(tick_id(col(SweepTick.store), col(SweepTick.kind))).where(*of_stores(col(SweepTick.store))),
        select(tick_id(col(ErasureStore.store), literal(JOB_ERASURE))).where(
            col(ErasureStore.seen_enabled).is_(True),
            col(ErasureStore.store).in_(select(Store.id)),
            *of_stores(col(ErasureStore.store)),
        ),
        select(col(Agreement.id).label("id")).where(
            col(Agreement.interval_s).is_not(None),
            col(Agreement.state) != AgreementState.REMOVED,
            *of_stores(col(Agreement.store)),
        ),
    )


def _shown(db: Session, found_id: str) -> ScheduleRead | None:
    """What an id stands for; None: it has gone since it was found."""
    if found_id.startswith("sch_"):
        schedule = db.get(Schedule, found_id)
        return None if schedule is None else read_schedule(db, schedule)
    if found_id.startswith("agr_"):
        agreement = db.get(Agreement, found_id)
        return None if agreement is None else _agreement(db, agreement)
    _, store, kind = found_id.split(SEPARATOR)
    if kind == JOB_ERASURE:
        row = db.get(ErasureStore, store)
        return None if row is None else _eraser(db, found_id, row)
    tick, of_store = db.get(SweepTick, (store, kind)), db.get(Store, store)
    return None if tick is None or of_store is None else _tick(db, found_id, tick, of_store)


def read_schedule(db: Session, row: Schedule) -> ScheduleRead:
    """A schedule as clients see it, with what became of its last job."""
    last = None
    if row.last_outcome is not None:
        has_job = row.last_outcome == Outcome.SUBMITTED
        job_id = row.last_job_id if has_job or row.last_outcome == Outcome.SKIPPED_RUNNING else None
        last = _firing(db, row.last_due, row.last_at, row.last_outcome, row.last_detail, job_id)
    names = set(ScheduleRead.model_fields) - {"source", "jitter", "last", "labels", "interval"}
    return ScheduleRead(
        **{name: getattr(row, name) for name in names},
        source=None,
        labels=row.labels if row.store is None else None,
        jitter=timedelta(seconds=row.jitter_s),
        last=last,
    )


def _firing(
    db: Session,
    due: datetime | None,
    at: datetime | None,
    outcome: str,
    detail: str | None,
    job_id: str | None,
) -> Firing:
    job = None if job_id is None else db.get(Job, job_id)
    error = None if job is None or job.error is None else JobError.model_validate(job.error)
    state = None if job is None else JobState(job.state)
    return Firing(
        due=due, at=at, outcome=outcome, detail=detail, job_id=job_id, job_state=state, job_error=error
    )


def _tick(db: Session, found_id: str, row: SweepTick, store: Store) -> ScheduleRead:
    verb, body, source = _SOURCES.get(row.kind, _purge_source)(row.kind, store)
    last = None
    if row.last_outcome is not None:
        last = _firing(db, None, row.last_at, row.last_outcome, row.last_detail, row.last_job_id)
    return ScheduleRead(
        id=found_id,
        source=source,
        verb=verb,
        body=body,
        store=row.store,
        labels=None,
        cron=row.cron,
        time_zone=row.time_zone,
        interval=None if row.interval_s is None else timedelta(seconds=row.interval_s),
        next_at=row.next_at,
        last=last,
    )


Source = tuple[str, dict[str, Any], str]
"""Verb, body, parameter."""


def _purge_source(kind: str, store: Store) -> Source:
    switch = ALL_JOBS if store.parameters.get(ALL_JOBS) is True else SWITCHES[PurgeKind(kind)]
    return JOB_PURGE, {"kind": kind}, switch


_SOURCES: Final[dict[str, Callable[[str, Store], Source]]] = {
    CHANGELOG: lambda kind, _store: (JOB_PURGE, {"kind": kind}, INTERVAL),
    TOMBSTONES: lambda kind, _store: (JOB_PURGE, {"kind": kind}, TOMBSTONE_INTERVAL),
    JOB_CLEANUP: lambda _kind, _store: (JOB_CLEANUP, {}, SWITCH),
}


def _eraser(db: Session, found_id: str, row: ErasureStore) -> ScheduleRead:
    newest = newest_cycle(db, row.store)
    last = None
    if newest is not None:
        last = _firing(db, None, newest.started_at, str(newest.state), row.trouble, newest.job_id)
    rests = newest is not None and (newest.state in ACTIVE or newest.ended_at is not None)
    return ScheduleRead(
        id=found_id,
        source=f"{RUN_ERASER}, {PERIOD}",
        verb=JOB_ERASURE,
        body={},
        store=row.store,
        labels=None,
        cron=None,
        time_zone=None,
        interval=timedelta(seconds=row.seen_period_s),
        next_at=newest.ends_at if newest is not None and rests else None,
        last=last,
    )


def _agreement(db: Session, row: Agreement) -> ScheduleRead | None:
    if row.interval_s is None:  # taken away since it was found
        return None
    last = None
    if row.last_started_at is not None:
        detail = row.last_detail or row.last_code
        last = _firing(db, None, row.last_started_at, row.last_outcome or "RUNNING", detail, None)
    next_at = row.next_at
    if next_at is None and row.last_started_at is not None:
        next_at = row.last_started_at + timedelta(seconds=row.interval_s)
    return ScheduleRead(
        id=row.id,
        source=f"agreement {row.id}",
        verb=JOB_SESSION,
        body={"agreement_id": row.id},
        store=row.store,
        labels=None,
        cron=None,
        time_zone=None,
        interval=timedelta(seconds=row.interval_s),
        next_at=next_at,
        last=last,
    )
