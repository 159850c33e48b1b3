"""Connections to replicas, and what the metadata remembers of them."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.db import Database
from app.replication.replica.connections import ConnectionPool, WriterTurns
from app.replication.replica.refusals import NoReplicaYet
from app.replication.replica.replicas import (
    adopt_replica,
    close_idle_replicas,
    compare_with_memory,
    find_expected,
    note_own_max,
    opened_replica,
    remember,
)
from app.settings import Settings
from app.stores.errors import StoreKindWrong, StoreNotFound, StoreUrlRefused
from app.stores.models import StoreCreate
from app.stores.rows import Store
from app.stores.service import create_store
from spark.replication.records import ReplicaStatus
from spark.targets.connection import Connection, Target, connect
from spark.targets.errors import TargetError, TargetLockTimeout
from tests.app.fake_clock import FakeClock
from tests.app.hooks.outboxes import events_of, make_hook

LATE_S = 10.0


def csn(second: int) -> str:
    return f"{second:08x}000000010000"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "target.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma journal_mode = wal")
        db.execute("create table things (thing text)")
    return path


def opener(target: Target) -> Connection:
    return connect(target, application_name="lethe:test")


@pytest.fixture
def pool() -> Iterator[ConnectionPool]:
    pool = ConnectionPool()
    yield pool
    pool.close_idle()


def test_a_connection_is_lent_again_and_closed_when_it_rests(file: Path) -> None:
    pool = ConnectionPool(idle_max_s={"sqlite": 0.1, "postgresql": 0.1})
    target = Target(f"sqlite:///{file}")
    with pool.lend(target, "a", lambda: opener(target)) as first:
        first.execute("insert into things values ('x')")
    with pool.lend(target, "a", lambda: opener(target)) as second:
        assert second is first
        with pool.lend(target, "a", lambda: opener(target)) as other:
            assert other is not first  # by one caller at a time
    with pool.lend(target, "b", lambda: opener(target)) as third:
        assert third not in (first, other)
    log = file.with_name("target.db-wal")
    deadline = time.monotonic() + LATE_S
    while log.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not log.exists()  # at rest it is one file
    assert [conn.closed for conn in (first, other, third)] == [True] * 3
    with pool.lend(target, "a", lambda: opener(target)) as later:
        assert not later.closed


def test_a_file_that_was_replaced_is_opened_anew(pool: ConnectionPool, file: Path, tmp_path: Path) -> None:
    target = Target(f"sqlite:///{file}")
    with pool.lend(target, "a", lambda: opener(target)) as first:
        first.execute("select * from things")
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(copy)) as db:
        db.execute("create table others (thing text)")
    os.replace(copy, file)
    with pool.lend(target, "a", lambda: opener(target)) as second:
        assert second is not first
        assert first.closed
        second.execute("select * from others")


def test_a_connection_that_failed_is_not_lent_again(pool: ConnectionPool, file: Path) -> None:
    target = Target(f"sqlite:///{file}")
    with pytest.raises(TargetError), pool.lend(target, "a", lambda: opener(target)) as first:
        first.execute("select * from nothing")
    assert first.closed
    with pytest.raises(KeyError), pool.lend(target, "a", lambda: opener(target)) as second:
        raise KeyError
    with pool.lend(target, "a", lambda: opener(target)) as third:
        assert third is second  # what the block raised was no matter of the target


@pytest.mark.postgresql
def test_a_connection_that_the_server_has_ended_is_not_lent(
    pool: ConnectionPool, postgresql_url: str
) -> None:
    target = Target(postgresql_url)
    with pool.lend(target, "a", lambda: opener(target)) as first:
        [(pid,)] = first.execute("select pg_backend_pid()")
    with closing(opener(target)) as other:
        other.execute("select pg_terminate_backend(:pid, 5000)", {"pid": pid})
    with pool.lend(target, "a", lambda: opener(target)) as second:
        assert second is not first
        assert second.execute("select 1") == [(1,)]


def test_writers_of_one_file_take_turns_whatever_it_is_called(file: Path, tmp_path: Path) -> None:
    turns = WriterTurns()
    link = tmp_path / "link.db"
    link.symlink_to(file)
    with turns.turn(Target(f"sqlite:///{file}"), {}):
        with pytest.raises(TargetLockTimeout), turns.turn(Target(f"sqlite:///{link}"), {}, wait_max_s=0.01):
            pass
        with turns.turn(Target(f"sqlite:///{tmp_path / 'other.db'}"), {}, wait_max_s=0.01):
            pass
        with turns.turn(Target("postgresql+psycopg://u@h/d"), {}, wait_max_s=0.01):
            pass
    with turns.turn(Target(f"sqlite:///{link}"), {}, wait_max_s=0.01):
        pass


def made(database: Database, settings: Settings, clock: FakeClock, **fields: object) -> Store:
    request = StoreCreate.model_validate({"id": "r", "kind": "REPLICA", "rid": 1} | fields)
    with database.transaction() as db:
        return create_store(db, request, settings=settings, database=database, now=clock.now())


@pytest.fixture
def store(database: Database, settings: Settings, clock: FakeClock, tmp_path: Path) -> Iterator[Store]:
    yield made(database, settings, clock, url=f"sqlite:///{tmp_path / 'r.db'}")
    close_idle_replicas()


def test_a_replica_is_made_only_where_it_may_be(database: Database, settings: Settings, store: Store) -> None:
    with pytest.raises(NoReplicaYet), opened_replica(database, settings, store, create=False):
        pass
    assert find_expected(database, "r") is None
    with opened_replica(database, settings, store) as conn:
        assert compare_with_memory(database, conn, "r") is ReplicaStatus.EMPTY
    expected = find_expected(database, "r")
    assert expected is not None
    assert (expected.incarnation[:4], expected.own_max) == ("inc_", None)
    with opened_replica(database, settings, store, create=False) as again:
        assert remember(database, again, "r") == expected


def test_what_was_told_only_grows(
    database: Database, settings: Settings, store: Store, clock: FakeClock
) -> None:
    with opened_replica(database, settings, store):
        pass
    for told, kept in ((csn(5), csn(5)), (csn(3), csn(5)), (None, csn(5)), (csn(9), csn(9))):
        with database.transaction() as db:
            note_own_max(db, "r", told, now=clock.now())
        expected = find_expected(database, "r")
        assert expected is not None
        assert expected.own_max == kept


def test_a_target_that_lacks_what_was_told_is_marked_once_for_all(
    database: Database, settings: Settings, store: Store, clock: FakeClock
) -> None:
    make_hook(database)
    with opened_replica(database, settings, store) as conn:
        with database.transaction() as db:
            note_own_max(db, "r", csn(7), now=clock.now())
        for _ in range(2):
            assert compare_with_memory(database, conn, "r") is ReplicaStatus.RESTORED
        [event] = events_of(database)
        assert (event.type, event.data["restored_upto"]) == ("lethe.replica.restored", csn(7))
        adopt_replica(database, conn, "r")
    expected = find_expected(database, "r")
    assert expected is not None
    assert expected.own_max is None  # taken as it is now: nothing is missing any more


def test_stores_that_are_no_replica_or_not_there_are_refused(
    database: Database, settings: Settings, store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    with database.transaction() as db:
        other = StoreCreate.model_validate(
            {"id": "s", "kind": "SYMMETRICDS", "url": f"sqlite:///{tmp_path / 's.db'}"}
        )
        sym = create_store(db, other, settings=settings, database=database, now=clock.now())
    with pytest.raises(StoreKindWrong), opened_replica(database, settings, sym):
        pass
    with pytest.raises(StoreNotFound):
        find_expected(database, "nowhere")


def test_a_link_that_leads_out_of_the_roots_is_refused(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    narrow = Settings(data_dir=tmp_path, allowed_roots=[inside])
    found = made(database, narrow, clock, url=f"sqlite:///{inside / 'r.db'}")
    (inside / "r.db").symlink_to(outside / "r.db")
    with pytest.raises(StoreUrlRefused), opened_replica(database, narrow, found):
        pass
    assert list(outside.iterdir()) == []


def test_many_threads_share_the_pool(database: Database, settings: Settings, store: Store) -> None:
    faults: list[Exception] = []

    def use() -> None:
        try:
            for _ in range(10):
                with opened_replica(database, settings, store, purpose="read") as conn:
                    conn.execute("select 1")
        except Exception as error:  # noqa: BLE001 -- shown by the assertion
            faults.append(error)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
