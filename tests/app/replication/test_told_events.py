"""Events of what a target holds: told once, whenever the service dies between the two commits."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db import Database
from app.outbox.facts import Fact
from app.replication.check import check_replica
from app.replication.consumer.service import Consumer
from app.replication.replica.replicas import (
    adopt_replica,
    close_idle_replicas,
    compare_with_memory,
    note_own_max,
    opened_replica,
)
from app.settings import Settings
from app.stores.models import StoreCreate
from app.stores.rows import Store
from app.stores.service import create_store
from spark.formats.csn import Csn
from spark.replication.dead_letters import Direction, Refused, put_dead_letters, resolve_dead_letters
from spark.targets.connection import Connection
from tests.app.fake_clock import FakeClock
from tests.app.forged import ended
from tests.app.hooks.outboxes import events_of, make_hook
from tests.app.replication.dying_reader import use, use_until

COMMITS_MAX = 4
"""The event, the mark at the target, the name of the event; then nothing is left to be killed at."""


def csn(second: int, rid: int = 1) -> Csn:
    return Csn.of(second, 0, rid)


@pytest.fixture
def store(sqlite_database: Database, settings: Settings, clock: FakeClock, tmp_path: Path) -> Iterator[Store]:
    fields = {"id": "r", "kind": "REPLICA", "rid": 1, "url": f"sqlite:///{tmp_path / 'r.db'}"}
    request = StoreCreate.model_validate(fields)
    with sqlite_database.transaction() as db:
        made = create_store(db, request, settings=settings, database=sqlite_database, now=clock.now())
    yield made
    close_idle_replicas()


def is_killed_at(database: Database, settings: Settings, commit: int) -> bool:
    url = database.url.render_as_string(hide_password=False)
    code, said = ended(use_until, url, str(settings.data_dir), str(commit))
    assert code in (0, -signal.SIGKILL), said
    return code != 0


@pytest.mark.parametrize("commit", range(1, COMMITS_MAX + 1))
def test_a_target_that_was_put_back_is_told_once_whenever_the_service_dies(
    sqlite_database: Database, settings: Settings, store: Store, clock: FakeClock, commit: int
) -> None:
    make_hook(sqlite_database)
    with opened_replica(sqlite_database, settings, store):
        pass
    with sqlite_database.transaction() as db:
        note_own_max(db, "r", str(csn(7)), now=clock.now())

    close_idle_replicas()
    assert is_killed_at(sqlite_database, settings, commit) == (commit < COMMITS_MAX)
    for _ in range(2):
        use(sqlite_database, settings)
        close_idle_replicas()
    assert [found.type for found in events_of(sqlite_database)] == [Fact.REPLICA_RESTORED]


def test_another_loss_that_looks_the_same_is_another_event(
    sqlite_database: Database, settings: Settings, store: Store, clock: FakeClock
) -> None:
    make_hook(sqlite_database)
    for _ in range(2):
        with opened_replica(sqlite_database, settings, store) as conn:
            adopt_replica(sqlite_database, conn, "r")
            conn.execute("update replica_replica set status = 'EMPTY', restored_upto = null")
            with sqlite_database.transaction() as db:
                note_own_max(db, "r", str(csn(7)), now=clock.now())
            compare_with_memory(sqlite_database, conn, "r")
    assert len(events_of(sqlite_database)) == 2


def test_a_dead_letter_whose_teller_died_is_told_as_the_next_session_begins(
    sqlite_database: Database, settings: Settings, store: Store, clock: FakeClock
) -> None:
    make_hook(sqlite_database)
    consumer = Consumer(sqlite_database, settings, clock, store)
    letter = Refused(csn(5, 3), "NOVELTY", b"db", b"k", None, "KIND_UNKNOWN", "it is a novelty")

    def refuse(conn: Connection) -> None:
        with conn.transaction():
            put_dead_letters(conn, Direction.RECEIVED, "supplier-3", [letter], now_s=consumer.now_s)

    consumer.write(refuse)  # and the service dies here
    for number in range(3):
        consumer.begin(f"rs_{number}", lambda _: None)
    consumer.tell_refused("rs_3", [letter.csn])  # its batch comes again
    [found] = events_of(sqlite_database)
    assert (found.type, found.data["rids"], found.data["direction"]) == (Fact.DEAD_LETTER, [3], "RECEIVED")
    assert "novelty" not in str(found.data)

    def resolve(conn: Connection) -> None:
        resolve_dead_letters(conn, Direction.RECEIVED, {3: csn(5, 3)}, now_s=consumer.now_s)

    consumer.write(resolve)
    consumer.begin("rs_4", lambda _: None)
    assert len(events_of(sqlite_database)) == 1


def test_a_dead_letter_after_which_no_session_ever_comes_is_told_by_a_check(
    sqlite_database: Database, settings: Settings, store: Store, clock: FakeClock
) -> None:
    make_hook(sqlite_database)
    consumer = Consumer(sqlite_database, settings, clock, store)
    letters = [Refused(csn(5, rid), "NOVELTY", b"db", b"k", None, "KIND_UNKNOWN", "novel") for rid in (3, 4)]

    def refuse(conn: Connection) -> None:
        with conn.transaction():
            put_dead_letters(conn, Direction.RECEIVED, "supplier-3", letters, now_s=consumer.now_s)

    def check() -> list[str]:
        found = check_replica(sqlite_database, store, settings, clock.now())
        return [each.detail for each in found.findings if each.code == "DEAD_LETTER"]

    assert check() == []
    consumer.write(refuse)  # and the service dies here
    for _ in range(2):
        assert check() == ["2 change(s) of replica 3, 4 were refused, and wait: dead letters"]
    consumer.begin("rs_1", lambda _: None)
    assert [each.data["rids"] for each in events_of(sqlite_database)] == [[3], [4]]
    consumer.write(lambda conn: resolve_dead_letters(conn, Direction.RECEIVED, {3: csn(5, 3)}, now_s=9))
    assert check() == ["1 change(s) of replica 4 were refused, and wait: dead letters"]
