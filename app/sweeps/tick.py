"""The recurring tick: sweeps that Lethe submits by itself where a store asks for them.

Invariants:
- nothing is submitted for a store that does not ask for it itself;
- what a store asks for is read again under its lock, in the transaction that submits;
- of several instances exactly one submits: the row's `next_at` is moved by a guarded update in the
  transaction that inserts the job;
- ticks that nobody was there for are made up once, however many they were;
- a tick that meets a suspended store, or a sweep of the same that has not ended, is skipped and noted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.db import Database
from app.kit.cron import next_time
from app.parameters.service import GlobalValues, global_values
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.recurring import Ticked, last_job_of
from app.sweeps.rows import SweepTick

STORES_MAX: Final = 10_000
logger = structlog.get_logger("lethe.tick")


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a store wants a kind of sweep: by a cron in its zone, or so many seconds apart."""

    kind: str
    cron: str | None = None
    time_zone: str | None = None
    interval_s: float | None = None

    def after(self, at: datetime) -> datetime:
        """The first time after an instant."""
        if self.cron is not None:
            assert self.time_zone is not None, "a cron has a time zone"
            return next_time(self.cron, at, time_zone=self.time_zone)
        assert self.interval_s is not None, "what has no cron has an interval"
        assert self.interval_s > 0, self
        return at + timedelta(seconds=self.interval_s)

    @classmethod
    def of(cls, row: SweepTick) -> "Schedule":
        """As a row has it."""
        return cls(row.kind, row.cron, row.time_zone, row.interval_s)

    def columns(self) -> dict[str, Any]:
        """As a row keeps it."""
        return {name: value for name, value in asdict(self).items() if name != "kind"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurring:
    """What recurs at the stores of a kind.

    Args:
        kinds: all kinds of sweeps that a store may ask for.
        wanted: what a store asks for, with the global values of all parameters.
        submit: does it now, in the transaction that holds the store.
        last_began: when such a sweep began last, whoever asked for it: the next comes an interval later, the
            first at once; None: the first comes at its next time after it was switched on.
    """

    store_kind: StoreKind
    kinds: frozenset[str]
    wanted: Callable[[GlobalValues, Store], Sequence[Schedule]]
    submit: Callable[[Session, Settings, Store, Schedule, datetime], Ticked]
    last_began: Callable[[Session, Store], datetime | None] | None = None

    def first_at(self, db: Session, store: Store, schedule: Schedule, *, now: datetime) -> datetime:
        """When the next one comes, as far as nothing has been submitted by a tick."""
        if self.last_began is None:
            return schedule.after(now)
        last = self.last_began(db, store)
        return now if last is None else schedule.after(min(last, now))


def submit_due(
    recurring: Recurring,
    database: Database,
    settings: Settings,
    *,
    now: datetime,
    changed: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Bring the rows in line with the stores, then submit what is due; returns the new jobs.

    Args:
        changed: told of each job and each store that has one.
    """
    with database.reading() as db:
        is_in_line = _differences(db, recurring) == ([], [])
        due = _due(db, recurring, now) if is_in_line else []
    if not is_in_line:
        with database.transaction() as db:
            _bring_in_line(db, recurring, now)
        with database.reading() as db:
            due = _due(db, recurring, now)
    made = []
    for store, kind in due:
        with database.transaction() as db:
            job_id = _tick(db, recurring, settings, store, kind, now=now)
        if job_id is not None:
            made.append(job_id)
            changed(job_id)
            changed(store)
    return made


def _differences(
    db: Session, recurring: Recurring
) -> tuple[list[tuple[Store, Schedule]], list[tuple[str, str]]]:
    """What the stores ask for and the rows do not say, and the keys of rows that no store asks for."""
    kept = db.exec(select(SweepTick).where(col(SweepTick.kind).in_(recurring.kinds))).all()
    rows = {(row.store, row.kind): Schedule.of(row) for row in kept}
    query = select(Store).where(Store.kind == recurring.store_kind).order_by(col(Store.id)).limit(STORES_MAX)
    stores = db.exec(query).all()
    values = global_values(db) if stores else {}
    asked = [(store, item) for store in stores for item in recurring.wanted(values, store)]
    assert {item.kind for _, item in asked} <= recurring.kinds, "a kind that nobody would find due"
    changed = [(store, item) for store, item in asked if rows.get((store.id, item.kind)) != item]
    wanted = {(store.id, item.kind) for store, item in asked}
    return changed, [key for key in rows if key not in wanted]


def _bring_in_line(db: Session, recurring: Recurring, now: datetime) -> None:
    """A tick that is new, or has another schedule, comes at its first time from now."""
    changed, gone = _differences(db, recurring)
    for store, item in changed:
        # Instances that see the same at once make one row: the second waits, and finds it.
        db.get(Store, store.id, with_for_update=True)
        at = recurring.first_at(db, store, item, now=now)
        row = db.get(SweepTick, (store.id, item.kind))
        if row is not None and Schedule.of(row) == item:
            continue
        row = row or SweepTick(store=store.id, kind=item.kind, next_at=at)
        row.sqlmodel_update({**item.columns(), "next_at": at})
        db.add(row)
    for key in gone:
        db.delete(db.get_one(SweepTick, key))
    db.flush()


def _due(db: Session, recurring: Recurring, now: datetime) -> Sequence[tuple[str, str]]:
    """Store and kind of each tick that is due."""
    query = select(SweepTick.store, SweepTick.kind).where(
        col(SweepTick.kind).in_(recurring.kinds), col(SweepTick.next_at) <= now
    )
    return db.exec(query.order_by(col(SweepTick.next_at)).limit(STORES_MAX)).all()


def _tick(
    db: Session, recurring: Recurring, settings: Settings, store_id: str, kind: str, *, now: datetime
) -> str | None:
    """Do one due tick, unless another instance has done it."""
    row = db.get(SweepTick, (store_id, kind))
    store = db.get(Store, store_id, with_for_update=True)
    if row is None or store is None or row.next_at > now:
        return None
    schedule = Schedule.of(row)
    if schedule not in recurring.wanted(global_values(db), store):  # changed since it was found due
        return None
    last = recurring.last_began(db, store) if recurring.last_began is not None else None
    if last is not None and last <= now < schedule.after(last):  # somebody else has asked for one meanwhile
        _move(db, row, {"next_at": schedule.after(last)})
        return None
    if not _move(db, row, {"next_at": schedule.after(now), "last_at": now}):
        return None
    ticked = recurring.submit(db, settings, store, schedule, now)
    db.execute(_row_of(store_id, kind).values(**ticked.values()))
    logger.info("tick", store=store_id, sweep=kind, **asdict(ticked))
    return ticked.job_id


def _row_of(store_id: str, kind: str) -> Any:
    return (
        update(SweepTick)
        .where(col(SweepTick.store) == store_id, col(SweepTick.kind) == kind)
        .execution_options(synchronize_session=False)
    )


def _move(db: Session, row: SweepTick, values: Mapping[str, Any]) -> bool:
    """Whether this instance has moved a row on from where it found it."""
    statement = _row_of(row.store, row.kind).where(col(SweepTick.next_at) == row.next_at)
    return db.execute(statement.values(**values).returning(col(SweepTick.store))).first() is not None


def reckon_ahead(db: Session, *, now: datetime, slack: timedelta) -> None:
    """Let ticks come at their next time that a clock which was ahead has moved on, or begun."""
    rows = db.exec(select(SweepTick).where(col(SweepTick.next_at) > now).limit(STORES_MAX)).all()
    for row in rows:
        at = Schedule.of(row).after(now + slack)
        if row.next_at > at:
            db.execute(_row_of(row.store, row.kind).values(next_at=at))


def shown_tick(
    db: Session, recurring: Recurring, store: Store, schedule: Schedule, *, now: datetime
) -> dict[str, Any]:
    """What clients see of a tick; of one just switched on its first time is computed."""
    row = db.get(SweepTick, (store.id, schedule.kind))
    if row is None or Schedule.of(row) != schedule:
        at = recurring.first_at(db, store, schedule, now=now)
        row = SweepTick(store=store.id, kind=schedule.kind, next_at=at, **schedule.columns())
    return row.model_dump(exclude={"store"}) | last_job_of(db, row.last_job_id)


def shown_by_interval(
    db: Session, recurring: Recurring, store: Store, *, now: datetime
) -> dict[str, Any] | None:
    """The fields of an IntervalTickRead of the only sweep that a store may ask for; None: it is off."""
    wanted = recurring.wanted(global_values(db), store)
    assert len(wanted) <= 1, "one interval, one sweep"
    for item in wanted:
        assert item.interval_s is not None, "what recurs by an interval has one"
        interval = timedelta(seconds=item.interval_s)
        return shown_tick(db, recurring, store, item, now=now) | {"interval": interval}
    return None
