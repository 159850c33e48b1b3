"""Rules of schedules: write, pause, resume, remove; who may see and change them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from sqlmodel import Session, col, func, select

from app.auth.service import Caller
from app.errors import Forbidden, StoreForbidden
from app.feed.writing import SCHEDULE, announce_change
from app.kit.ids import new_id
from app.schedules.crontab import Crontab
from app.schedules.errors import NeverDue, ScheduleNotFound, TooManySchedules
from app.schedules.models import NextRun, NextRuns, ScheduleCreate
from app.schedules.rows import Schedule
from app.schedules.rules import MissedRuns, Timing, offset_of
from app.schedules.submitting import check_body, require_rights, submitter_of
from app.settings import Settings
from app.stores.service import get_store

SCHEDULES_MAX: Final = 100_000


def timing_of(row: Schedule) -> Timing:
    """When a schedule comes."""
    offset = offset_of(row.id, timedelta(seconds=row.jitter_s))
    return Timing(Crontab(row.cron, row.time_zone), offset, MissedRuns(row.missed))


def set_next(row: Schedule, due: datetime | None, *, now: datetime) -> None:
    """Note when a schedule comes next; None: never."""
    row.next_due = due
    row.next_at = None if due is None else due + timing_of(row).offset
    row.reckoned_at = row.updated_at = now


def require_visible(row: Schedule, caller: Caller) -> None:
    """Raise StoreForbidden unless the caller may know of a schedule.

    A token that is limited to stores knows those of its stores, and of those over labels its own.
    """
    if row.store is not None:
        caller.require_store(row.store)
    elif caller.stores is not None and row.token_id != caller.token_id:
        raise StoreForbidden("this schedule reaches other stores than this token")


def get_schedule(db: Session, schedule_id: str, caller: Caller, *, lock: bool = False) -> Schedule:
    """The row of a schedule that the caller may see.

    Raises: ScheduleNotFound, StoreForbidden.
    """
    row = db.get(Schedule, schedule_id, with_for_update=lock)
    if row is None:
        raise ScheduleNotFound("there is no such schedule")
    require_visible(row, caller)
    return row


def create_schedule(
    db: Session, request: ScheduleCreate, *, caller: Caller, settings: Settings, now: datetime
) -> Schedule:
    """Write a schedule, when its body was looked at as the POST of its verb would.

    Raises: VerbNotScheduled, ScopeMissing, StoreForbidden, StoreNotFound, NeverDue, TooManySchedules;
        Forbidden: the caller's rights are known only while he calls; ServiceError: as the POST would.
    """
    if caller.is_of_provider:
        raise Forbidden(
            "a schedule acts with the rights of a token that Lethe keeps, and this one is of your identity"
            " provider; make one (`lethe token create`) and write the schedule with it",
            code="TOKEN_OF_PROVIDER",
        )
    scope, _ = submitter_of(request.verb)
    caller.require(scope)
    if request.store is not None:
        caller.require_store(request.store)
        get_store(db, request.store)
    if db.exec(select(func.count()).select_from(Schedule)).one() >= SCHEDULES_MAX:
        raise TooManySchedules(f"there are {SCHEDULES_MAX} schedules; remove some that nobody needs")
    row = Schedule(
        id=new_id("sch"),
        name=request.name,
        verb=request.verb,
        body=request.body,
        store=request.store,
        labels=request.labels or {},
        cron=request.cron,
        time_zone=request.time_zone,
        jitter_s=int(request.jitter.total_seconds()),
        overlap=request.overlap,
        missed=request.missed,
        token_id=caller.token_id,
        created_by=caller.name,
        created_at=now,
        updated_at=now,
        reckoned_at=now,
    )
    check_body(db, row, caller=caller, settings=settings, now=now)
    due = timing_of(row).next_due(now)
    if due is None:
        errors = [{"pointer": "/cron", "detail": "no such time comes"}]
        raise NeverDue("no time of the calendar fits this cron", errors=errors)
    set_next(row, due, now=now)
    return _written(db, row, "ADDED", now=now)


def _written(db: Session, row: Schedule, change: str, *, now: datetime) -> Schedule:
    """Write the row, with its event in the feed."""
    db.add(row)
    _tell(db, row, change, now=now)
    db.flush()
    return row


def _tell(db: Session, row: Schedule, change: str, *, now: datetime) -> None:
    announce_change(
        db,
        "schedule",
        kind=SCHEDULE,
        store=row.store,
        subject=f"schedules/{row.id}",
        data={"change": change, "verb": row.verb},
        now=now,
        token_id=row.token_id,
    )


def pause_schedule(db: Session, schedule_id: str, *, caller: Caller, now: datetime) -> Schedule:
    """Let a schedule rest: what comes meanwhile is not made up. Again is harmless.

    Raises: ScheduleNotFound, StoreForbidden.
    """
    row = get_schedule(db, schedule_id, caller, lock=True)
    row.is_paused, row.queued_due = True, None
    set_next(row, None, now=now)
    return _written(db, row, "PAUSED", now=now)


def resume_schedule(db: Session, schedule_id: str, *, caller: Caller, now: datetime) -> Schedule:
    """Let a schedule come again, from its next time on. Again is harmless.

    Raises: ScheduleNotFound, StoreForbidden; ScopeMissing: it would act for somebody who may less.
    """
    row = get_schedule(db, schedule_id, caller, lock=True)
    require_rights(row, caller)
    if row.is_paused:
        row.is_paused = False
        set_next(row, timing_of(row).next_due(now), now=now)
        _written(db, row, "RESUMED", now=now)
    return row


def remove_schedule(db: Session, schedule_id: str, *, caller: Caller, now: datetime) -> Schedule:
    """Remove a schedule; its jobs stay.

    Raises: ScheduleNotFound, StoreForbidden.
    """
    row = get_schedule(db, schedule_id, caller, lock=True)
    db.delete(row)
    _tell(db, row, "REMOVED", now=now)
    db.flush()
    return row


def remove_schedules_of(db: Session, store_id: str, *, now: datetime) -> Sequence[Schedule]:
    """Remove the schedules of a store that is being removed, whose row is locked; their jobs stay."""
    query = select(Schedule).where(Schedule.store == store_id).order_by(col(Schedule.id))
    rows = db.exec(query.limit(SCHEDULES_MAX).with_for_update()).all()
    for row in rows:
        db.delete(row)
        _tell(db, row, "REMOVED", now=now)
    db.flush()
    return rows


def next_runs(row: Schedule, *, count: int, now: datetime) -> NextRuns:
    """When a schedule comes, as if it were not paused and its jobs took no time."""
    timing = timing_of(row)
    zone = ZoneInfo(row.time_zone)
    found = islice(timing.crontab.upcoming(now - timing.offset), count)
    items = [
        NextRun(due=due, at=due + timing.offset, local=due.astimezone(zone).isoformat()) for due in found
    ]
    return NextRuns(items=items)
