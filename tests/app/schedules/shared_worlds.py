"""Worlds that three instances share: random schedules, jobs that take their time, a clock that jumps.

One clock is the metadata's, and it jumps for all. The instances' own clocks are wrong, each by its own lot;
one that ends looks no more, and a fresh one comes in its place. Jobs end after a time that is drawn, and now
and then a person holds a store. A model that asks every minute says what must have been fired.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlmodel import col, select, update

from app.db import Database
from app.jobs.errors import ConflictingJob
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.purge.purging import unseen
from app.schedules.rows import Schedule, ScheduleFiring
from app.schedules.scheduler import Scheduler
from app.settings import Settings
from app.stores.service import get_store
from app.sweeps.purging import submit_looked
from app.tables import metadata
from tests.app.schedules.minutes import CHANGES, ZONES, MinuteSchedule, random_cron
from tests.app.schedules.schedules_bench import PURGE, SchedulesBench, WallClock, hang
from tests.app.schedules.worlds import fits

SPAN = timedelta(hours=30)
BACK_MOST = timedelta(hours=4)
IN_A_WORLD = 30
INSTANCES = 3
LOOKS = 45
THERE_S = 60.0
"""Who has looked within that is there; to a clock that is set by more everybody is new."""
JOBS_TAKE_S = (5.0, 40.0, 300.0, 3_600.0, 20_000.0)
WRONG_S = (0.0, -7.0, 40.0, -86_400.0, 31_536_000.0)
MADE_ANEW = ("schedule_firings", "schedules", "job_events", "jobs")

Fired = tuple[str, datetime, datetime, str]


@dataclass
class Ground:
    """What worlds are made on, one after the other: metadata, and each instance's way to it."""

    bench: SchedulesBench
    databases: list[Database]
    outcomes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def on(cls, database: Database, settings: Settings) -> Ground:
        """Give it its stores."""
        bench = SchedulesBench(database, settings, WallClock())
        url = database.url.render_as_string(hide_password=False)
        others = [Database(url, pool_size=2) for _ in range(INSTANCES - 1)]
        hang(bench.clock, *others)
        for number in range(IN_A_WORLD):
            bench.store(f"shop-{number}")
        return cls(bench, [database, *others])

    def close(self) -> None:
        """Give back what it has opened."""
        for database in self.databases[1:]:
            database.close()

    def clear(self) -> None:
        """Leave the stores, and nothing else of a world."""
        with self.bench.database.transaction() as db:
            for name in MADE_ANEW:
                db.execute(sa.delete(metadata.tables[name]))


class Machine:
    """One instance: its look at schedules, its own clock, and when it has looked last."""

    def __init__(self, database: Database, settings: Settings, at: datetime, draw: random.Random) -> None:
        self.clock = WallClock(at + timedelta(seconds=draw.choice(WRONG_S)), boot_s=draw.uniform(10, 1e6))
        self.scheduler = Scheduler(database, settings, self.clock)
        self.left: tuple[float, datetime] | None = None

    def there_since(self, passed_s: float, now: datetime) -> datetime:
        """The last look, where no more than a minute has passed since, and the clock was not set far."""
        if self.left is None:
            return now
        since_s = passed_s - self.left[0]
        set_by_s = (now - self.left[1]).total_seconds() - since_s
        return self.left[1] if since_s <= THERE_S and 0 <= set_by_s <= THERE_S else now


@dataclass
class Told:
    """A schedule as it was written, its model, and until when its job goes on."""

    row: Schedule
    model: MinuteSchedule
    busy_until_s: float = 0.0

    def takes_s(self, seed: int, due: datetime) -> float:
        """How long the job of a due time takes."""
        return random.Random(f"{seed} {self.row.store} {due}").choice(JOBS_TAKE_S)


class World:
    """One path of a clock, met by many schedules and three instances."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self.seed, self.ground, self.bench = seed, ground, ground.bench
        self.draw = random.Random(seed)
        self.begin = self.draw.choice(CHANGES) + timedelta(minutes=self.draw.randint(-600, 600))
        self.passed_s = 0.0
        self.bench.clock.set(self.begin)
        self.machines = [self._machine(number) for number in range(INSTANCES)]
        self.ann = self.bench.caller()
        self.revoked_after = self.draw.choice((LOOKS, LOOKS, 2 * LOOKS // 3))
        self.is_refused = False
        self.told = [self._write(f"shop-{number}") for number in range(IN_A_WORLD)]
        self.held_until_s: dict[str, float] = {}
        self.expected: list[Fired] = []

    def _machine(self, number: int) -> Machine:
        at = self.bench.clock.now()
        return Machine(self.ground.databases[number], self.bench.settings, at, self.draw)

    def _write(self, store: str) -> Told:
        cron, zone = random_cron(self.draw), self.draw.choice(ZONES)
        missed, overlap = self.draw.choice(("SKIP", "RUN_ONCE")), self.draw.choice(("FORBID", "QUEUE"))
        jitter = timedelta(seconds=self.draw.choice((0, 0, 45, 600)))
        fields = {"cron": cron, "time_zone": zone, "missed": missed, "overlap": overlap, "jitter": jitter}
        row = self.bench.write(self.ann, store=store, **fields)
        offset = timedelta(0)
        if row.next_at is not None and row.next_due is not None:
            offset = row.next_at - row.next_due
        assert timedelta(0) <= offset <= jitter
        due_times = fits(cron, zone, self.begin - BACK_MOST - timedelta(hours=2), self.begin + SPAN)
        model = MinuteSchedule(due_times, offset, makes_up=missed == "RUN_ONCE", queues=overlap == "QUEUE")
        model.begin(self.begin)
        return Told(row, model)

    def run(self) -> int:
        """Live through it; returns how many due times were fired."""
        for number in range(LOOKS):
            self._time_goes_on()
            if number == self.revoked_after:
                self.is_refused = True
                self.bench.set_token(self.ann, revoked_at=self.bench.clock.now())
            self._jobs_end()
            if self.draw.random() < 0.3:
                self._hold(self.draw.choice(self.told))
            self._look()
        self._judge()
        self.ground.clear()
        return len(self.expected)

    def _time_goes_on(self) -> None:
        """Somebody waits, sleeps, sets the clock of the metadata, or is a fresh instance."""
        kind, wall = self.draw.random(), self.bench.clock
        waits_s, set_by = self.draw.choice((1, 10, 30, 30, 60, 90, 300)), timedelta(0)
        if kind < 0.12:
            waits_s = 60 * self.draw.randint(20, 300)
        elif kind < 0.25:
            set_by = -timedelta(minutes=self.draw.choice((1, 30, 60, 61, 200)))
        elif kind < 0.35:
            set_by = timedelta(seconds=self.draw.choice((20, 70, 1_800, 3_600, 15_000)))
        elif kind < 0.42:
            number = self.draw.randrange(INSTANCES)
            self.machines[number] = self._machine(number)
        self.passed_s += waits_s
        for machine in self.machines:
            machine.clock.advance(waits_s)
        at = wall.now() + timedelta(seconds=waits_s) + set_by
        wall.set(min(max(at, self.begin - BACK_MOST), self.begin + SPAN))

    def _jobs_end(self) -> None:
        """Those that have taken their time; of its own jobs no schedule has two."""
        ended = [told.row.store for told in self.told if self._until(told) <= self.passed_s]
        query = update(Job).where(col(Job.store).in_(ended), col(Job.finished_at).is_(None))
        with self.bench.database.transaction() as db:
            db.execute(query.values(state=JobState.SUCCEEDED, finished_at=self.bench.clock.now()))

    def _until(self, told: Told) -> float:
        return max(told.busy_until_s, self.held_until_s.get(str(told.row.store), 0.0))

    def _hold(self, told: Told) -> None:
        """A person purges the store of a schedule, unless a job is in his way."""
        store, is_free = str(told.row.store), self._until(told) <= self.passed_s
        with self.bench.database.transaction() as db:
            try:
                locked = get_store(db, store, lock=True)
                submit_looked(
                    db,
                    locked,
                    unseen(db, locked, PURGE),
                    caller=self.ann,
                    reason=None,
                    settings=self.bench.settings,
                    now=self.bench.clock.now(),
                )
            except ConflictingJob:
                assert not is_free, store
                return
        assert is_free, store
        self.held_until_s[store] = self.passed_s + self.draw.choice(JOBS_TAKE_S)

    def _look(self) -> None:
        """One of them looks; the model says what that has fired."""
        machine, now = self.draw.choice(self.machines), self.bench.clock.now()
        there_since = machine.there_since(self.passed_s, now)
        made = machine.scheduler.look()
        machine.left = self.passed_s, now
        submitted = 0
        for told in self.told:
            is_running = told.busy_until_s > self.passed_s
            is_held = self._until(told) > self.passed_s and not self.is_refused
            found = told.model.look(
                now, there_since=there_since, is_busy=is_running or is_held, is_refused=self.is_refused
            )
            if found is None:
                continue
            due, outcome = found
            self.expected.append((told.row.id, due, now, outcome))
            if outcome == "SUBMITTED":
                submitted += 1
                told.busy_until_s = self.passed_s + told.takes_s(self.seed, due)
        assert len(made) == submitted, (self.seed, self._differences())

    def _differences(self) -> list[str]:
        told = {each.row.id: each.row for each in self.told}
        with self.bench.database.reading() as db:
            rows: Sequence[ScheduleFiring] = db.exec(select(ScheduleFiring)).all()
        got = [(row.schedule_id, row.due_at, row.fired_at, row.outcome) for row in rows]
        return [
            f"{told[name].cron} {told[name].time_zone} {told[name].missed} {told[name].overlap}:"
            f" {due:%d. %H:%M} at {at:%d. %H:%M:%S} {outcome}"
            f" {'not fired' if (name, due, at, outcome) in self.expected else 'fired'}"
            for name, due, at, outcome in sorted(set(got) ^ set(self.expected))
        ]

    def _judge(self) -> None:
        assert not (wrong := self._differences()), (self.seed, wrong)
        twice = Counter((name, due) for name, due, _, _ in self.expected)
        assert max(twice.values(), default=1) == 1
        with self.bench.database.reading() as db:
            firings = db.exec(select(ScheduleFiring.job_id)).all()
            reasons = db.exec(select(Job.id).where(col(Job.reason).startswith("schedule "))).all()
        assert sorted(filter(None, firings)) == sorted(reasons), self.seed
        self.ground.outcomes.update(outcome for *_, outcome in self.expected)


def outcomes_of(database: Database, settings: Settings, seeds: Iterable[int]) -> Counter[str]:
    """Live through worlds, one a seed; returns what became of how many due times."""
    ground = Ground.on(database, settings)
    try:
        for seed in seeds:
            World(ground, seed).run()
    finally:
        ground.close()
    return ground.outcomes
