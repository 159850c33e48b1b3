"""Schedules on a metadata database: tokens, stores, looks, and what was fired."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlmodel import col, select, update

from app.auth.models import TokenCreate
from app.auth.rows import Token
from app.auth.scopes import Role, Scope
from app.auth.service import Caller, caller_of, create_token
from app.clock import Clock
from app.db import Database
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.schedules.models import ScheduleCreate
from app.schedules.rows import Schedule, ScheduleFiring
from app.schedules.scheduler import Scheduler
from app.schedules.service import create_schedule
from app.settings import Settings
from app.stores.models import StoreCreate, StoreKind
from app.stores.service import create_store

BEGIN = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)
PURGE = {"kind": "OUTGOING", "retention_minutes": 60}


class WallClock:
    """A wall that may be set back and forth, and a boot time that only goes on."""

    def __init__(self, at: datetime = BEGIN, *, boot_s: float = 1000.0) -> None:
        self.at = at
        self._boot_s = boot_s

    def now(self) -> datetime:
        return self.at

    def boottime_s(self) -> float:
        return self._boot_s

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self._boot_s += abs(seconds)

    def set(self, at: datetime) -> None:
        """Somebody sets the clock: no time passes."""
        self.at = at


def hang(clock: Clock, *databases: Database) -> None:
    """Let the clock of databases be this one, also of those that have their own."""
    for database in databases:
        database.clock = clock
        database.now = lambda _db: clock.now()  # type: ignore[method-assign]


@dataclass
class SchedulesBench:
    """What a test does with schedules."""

    database: Database
    settings: Settings
    clock: WallClock = field(default_factory=WallClock)

    def __post_init__(self) -> None:
        hang(self.clock, self.database)
        self.scheduler = Scheduler(self.database, self.settings, self.clock)

    def store(self, name: str = "shop", **fields: Any) -> str:
        given = {"kind": StoreKind.SYMMETRICDS, "url": f"sqlite:////nowhere/{name}.db"} | fields
        request = StoreCreate(id=name, **given)
        with self.database.transaction() as db:
            create_store(db, request, settings=self.settings, database=self.database, now=self.clock.now())
        return name

    def caller(self, *scopes: Scope, stores: list[str] | None = None, **fields: Any) -> Caller:
        role = None if scopes else Role.OPERATOR
        request = TokenCreate(name="ann", scopes=list(scopes), role=role, stores=stores, **fields)
        with self.database.transaction() as db:
            token, _ = create_token(db, request, now=self.clock.now(), caller=None)
            return caller_of(token)

    def write(self, caller: Caller, **fields: Any) -> Schedule:
        given = {"verb": "PURGE", "body": PURGE, "cron": "*/10 * * * *"} | fields
        if "labels" not in given:
            given.setdefault("store", "shop")
        request = ScheduleCreate.model_validate(given)
        with self.database.transaction() as db:
            return create_schedule(db, request, caller=caller, settings=self.settings, now=self.clock.now())

    def look(self) -> list[str]:
        return self.scheduler.look()

    def look_at(self, at: datetime) -> list[str]:
        self.clock.set(at)
        return self.look()

    def row(self, schedule: Schedule) -> Schedule:
        with self.database.reading() as db:
            return db.get_one(Schedule, schedule.id)

    def fired(self, schedule: Schedule | None = None) -> list[ScheduleFiring]:
        query = select(ScheduleFiring).order_by(col(ScheduleFiring.fired_at), col(ScheduleFiring.due_at))
        if schedule is not None:
            query = query.where(ScheduleFiring.schedule_id == schedule.id)
        with self.database.reading() as db:
            return list(db.exec(query).all())

    def jobs(self) -> list[Job]:
        with self.database.reading() as db:
            return list(db.exec(select(Job).order_by(col(Job.id))).all())

    def end_jobs(self, state: JobState = JobState.SUCCEEDED) -> None:
        with self.database.transaction() as db:
            db.execute(update(Job).values(state=state, finished_at=self.clock.now()))

    def set_token(self, caller: Caller, **values: Any) -> None:
        with self.database.transaction() as db:
            db.execute(update(Token).where(col(Token.id) == caller.token_id).values(**values))
