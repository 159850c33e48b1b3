"""The commit of an extinction, killed at each of its steps: never NOT_EXTINCT for a key once discarded.

The service is what its rows and its target's rows say: a kill between two steps leaves exactly those, and a
restart forgets what was in memory. So a kill here is that the next step does not happen, and that nothing of
the process's memory is kept.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import select

from app.db import Database
from app.extinction.records import insert_row, note_logged, note_progress, submit_job
from app.extinction.rows import ENDED, HOLDING, ExtinctionRow, ExtinctionState
from app.extinction.scan.settling import RESERVED_MAX, Settling
from app.extinction.service import commit_at_target
from app.extinction.verdicts import View, view_of
from app.jobs.rows import Job
from app.kit.ids import new_id
from app.replication.replica.replicas import close_idle_replicas, opened_replica, writer_turn
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import get_store
from spark.formats.extinction import Extinction
from spark.formats.replica import tables_of
from spark.replication.consumer.extinctions import read_extinctions
from tests.app.extinction.kept_views import forget_views
from tests.app.fake_clock import FakeClock
from tests.spark.extinction.cases import DATABASES, World, naive_status, near, random_extinction, random_key

RUNS = 5
RUNS_LONG = 300
LONG = (pytest.mark.long, pytest.mark.timeout(3_600))
ACTIONS = 18


def add_store(database: Database, settings: Settings, clock: FakeClock) -> Store:
    now = clock.now()
    store = Store(
        id="orders",
        kind=StoreKind.REPLICA,
        rid=1,
        url=f"sqlite:///{Path(settings.data_dir) / 'replica.db'}",
        table_prefix="replica_",
        created_at=now,
        updated_at=now,
    )
    with database.transaction() as db:
        db.add(store)
    return store


@pytest.fixture
def store(sqlite_database: Database, settings: Settings, clock: FakeClock) -> Iterator[Store]:
    yield add_store(sqlite_database, settings, clock)
    close_idle_replicas()


@dataclass
class Service:
    """A service that may be killed at each step, and what the test knows of it.

    Attributes:
        reserved: step 1 was done; discarded: step 2 was done, so that these are extinct for ever.
    """

    database: Database
    settings: Settings
    store: Store
    clock: FakeClock
    dice: random.Random
    keys: list[bytes]
    reserved: dict[str, Extinction] = field(default_factory=dict)
    discarded: dict[str, Extinction] = field(default_factory=dict)
    version: int = 0

    def reserve(self) -> Extinction:
        """Step 1."""
        extinction = random_extinction(self.dice, self.keys, 0)
        fields = (extinction.databases, extinction.start_key, extinction.end_key, extinction.filter, "t")
        made = Extinction(new_id("ext"), *fields)
        with self.database.transaction() as db:
            insert_row(db, self.store.id, made, state=ExtinctionState.RESERVED, now=self.clock.now())
        self.reserved[made.id] = made
        return made

    def commit(self, extinction: Extinction) -> str:
        """Step 2."""
        csn = commit_at_target(self.database, self.settings, self.store, extinction, now=self.clock.now())
        self.discarded[extinction.id] = extinction
        return csn

    def conclude(self, extinction: Extinction, csn: str) -> None:
        """Step 3."""
        with self.database.transaction() as db:
            store = get_store(db, self.store.id, lock=True)
            row = db.get_one(ExtinctionRow, (store.id, extinction.id))
            note_logged(db, row, now=self.clock.now(), csn=csn)
            if row.job_id is None:
                submit_job(
                    db,
                    store,
                    row,
                    settings=self.settings,
                    now=self.clock.now(),
                    requested_by="t",
                    token_id=None,
                )

    def discard(self, *, steps: int) -> None:
        """A request that is killed behind so many steps."""
        extinction = self.reserve()
        self.check()
        if steps >= 2:
            csn = self.commit(extinction)
            self.check()
            if steps >= 3:
                self.conclude(extinction, csn)

    def repeat(self) -> None:
        """The client sends a request of before again, with its key: it goes on where it was."""
        if self.reserved:
            extinction = self.dice.choice(list(self.reserved.values()))
            self.conclude(extinction, self.commit(extinction))

    def finish_one(self) -> None:
        """A job comes to its end, at the target first."""
        with self.database.reading() as db:
            rows = db.exec(select(ExtinctionRow)).all()
        working = [row for row in rows if row.state in HOLDING - ENDED and row.job_id is not None]
        if not working:
            return
        done = self.dice.choice(working)
        with opened_replica(self.database, self.settings, self.store) as conn, writer_turn(conn):
            table = tables_of(conn).extinctions
            conn.execute(f"update {table} set state = 'DONE' where id = :id", {"id": done.id})
        with self.database.transaction() as db:
            row = db.get_one(ExtinctionRow, (self.store.id, done.id))
            assert row.job_id is not None
            now = self.clock.now()
            note_progress(db, row, job_id=row.job_id, records=1, byte_count=1, done_at=now)

    def restart(self) -> None:
        """A kill, and a new process: nothing that was in memory is there."""
        forget_views()
        close_idle_replicas()
        self.check(starting=True)

    def settle(self) -> None:
        Settling(self.database, self.settings, self.clock.now()).run()

    def age(self) -> None:
        self.clock.advance(RESERVED_MAX.total_seconds() + 1)

    def view(self, *, starting: bool = False) -> View:
        now = self.clock.now()
        return view_of(self.database, self.settings, self.store, starting=starting, now=now)

    def check(self, *, starting: bool = False) -> None:
        """Never NOT_EXTINCT once discarded; MAYBE while it is reserved; the version only grows."""
        view = self.view(starting=starting)
        assert view.version >= self.version
        self.version = view.version
        with self.database.reading() as db:
            rows = db.exec(select(ExtinctionRow)).all()
        reserved = [self.reserved[row.id] for row in rows if row.state == ExtinctionState.RESERVED]
        known = World(tuple(self.discarded.values()), tuple(reserved))
        for key in self.keys:
            for database in DATABASES:
                found = str(view.index.status(database, key))
                least = naive_status(known, database, key)
                if starting:
                    assert found == "MAYBE_EXTINCT"
                else:
                    assert found == least, (key, database)

    def check_settled(self) -> None:
        """All that was discarded is EXTINCT, all else is not; each has one job, and a row at the target."""
        self.age()
        self.settle()
        world = World(tuple(self.discarded.values()), ())
        index = self.view().index
        places = [(database, key) for database in DATABASES for key in self.keys]
        assert [index.status(*place) for place in places] == [naive_status(world, *place) for place in places]
        with self.database.reading() as db:
            rows = db.exec(select(ExtinctionRow)).all()
            jobs = db.exec(select(Job)).all()
        assert {row.id for row in rows if row.state in HOLDING} == set(self.discarded)
        assert {row.id for row in rows if row.state == ExtinctionState.DROPPED} == {*self.reserved} - {
            *self.discarded
        }
        assert all(row.job_id is not None for row in rows if row.state in HOLDING)
        subjects = [job.subject["id"] for job in jobs if job.subject is not None]
        assert len(subjects) == len(set(subjects))
        with opened_replica(self.database, self.settings, self.store) as conn:
            there = {each.extinction.id: each.extinction for each in read_extinctions(conn)}
        assert there == self.discarded


@pytest.mark.parametrize("runs", [RUNS, pytest.param(RUNS_LONG, marks=LONG)])
def test_kill_at_any_step_never_makes_a_discarded_key_not_extinct(
    sqlite_database: Database, settings: Settings, clock: FakeClock, store: Store, runs: int
) -> None:
    for run in range(runs):
        dice = random.Random(1_000 + run)
        keys = [random_key(dice, least=1, most=6) for _ in range(8)]
        keys += [near(dice, key) or b"k" for key in keys]
        service = Service(sqlite_database, settings, store, clock, dice, keys)
        for _ in range(ACTIONS):
            action = dice.randrange(8)
            if action < 3:
                service.discard(steps=dice.randint(1, 3))
            else:
                actions = (service.repeat, service.restart, service.settle, service.age, service.finish_one)
                actions[action - 3]()
            service.check()
        service.check_settled()
        _empty(sqlite_database, settings, store)


def _empty(database: Database, settings: Settings, store: Store) -> None:
    """The next run begins with another target and no rows."""
    with database.transaction() as db:
        for row in db.exec(select(ExtinctionRow)).all():
            db.delete(row)
    close_idle_replicas()
    with database.transaction() as db:
        row = get_store(db, store.id)
        name = new_id("rep")
        row.url = f"sqlite:///{Path(settings.data_dir) / name}.db"
        row.version += 1
        db.add(row)
        store.url, store.version = row.url, row.version
        db.connection().exec_driver_sql("delete from replicas")
        db.connection().exec_driver_sql("delete from job_events")
        db.connection().exec_driver_sql("delete from jobs")


def test_request_that_was_dropped_too_early_is_logged_again(
    sqlite_database: Database, settings: Settings, clock: FakeClock, store: Store
) -> None:
    dice = random.Random(5)
    service = Service(sqlite_database, settings, store, clock, dice, [b"a", b"b", b"c"])
    extinction = service.reserve()
    service.age()
    service.settle()
    with sqlite_database.reading() as db:
        assert db.get_one(ExtinctionRow, (store.id, extinction.id)).state == ExtinctionState.DROPPED
    service.commit(extinction)  # a request that hung for longer than anybody thought
    service.check()
    service.check_settled()


def test_target_that_cannot_be_read_leaves_what_is_reserved_maybe(
    sqlite_database: Database, settings: Settings, clock: FakeClock, store: Store
) -> None:
    service = Service(sqlite_database, settings, store, clock, random.Random(6), [b"a"])
    with opened_replica(sqlite_database, settings, store) as conn:
        assert read_extinctions(conn) == []
    whole = Extinction(new_id("ext"), frozenset({b"orders"}))
    with sqlite_database.transaction() as db:
        insert_row(db, store.id, whole, state=ExtinctionState.RESERVED, now=clock.now())
    close_idle_replicas()
    path = Path(settings.data_dir) / "replica.db"
    aside = path.rename(path.with_suffix(".aside"))
    path.mkdir()
    clock.advance(timedelta(hours=1).total_seconds())
    service.settle()
    view = service.view()
    assert view.index.status(b"anything", b"k") == "MAYBE_EXTINCT"
    assert [each.code for each in view.bundle.maybe_because] == ["TARGET", "RESERVED"]
    path.rmdir()
    aside.rename(path)
    service.settle()
    assert service.view().index.status(b"orders", b"k") == "NOT_EXTINCT"


def test_looking_at_a_store_that_nobody_has_used_makes_nothing(
    sqlite_database: Database, settings: Settings, clock: FakeClock, store: Store
) -> None:
    service = Service(sqlite_database, settings, store, clock, random.Random(7), [b"a"])
    service.settle()
    assert service.view().index.status(b"orders", b"a") == "NOT_EXTINCT"
    assert not (Path(settings.data_dir) / "replica.db").exists()


def test_target_that_is_gone_makes_every_key_maybe(
    sqlite_database: Database, settings: Settings, clock: FakeClock, store: Store
) -> None:
    service = Service(sqlite_database, settings, store, clock, random.Random(8), [b"a"])
    with opened_replica(sqlite_database, settings, store) as conn:
        assert read_extinctions(conn) == []
    close_idle_replicas()
    (Path(settings.data_dir) / "replica.db").unlink()
    service.settle()
    assert service.view().index.status(b"orders", b"a") == "MAYBE_EXTINCT"
