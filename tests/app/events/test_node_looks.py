"""What a check keeps of a node is of the node that the store names, and never in the way of the check."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.db import Database
from app.events import check
from app.events.check import check_node
from app.events.looks import keep_look, read_look
from app.events.models import NodeStateRead
from app.events.rows import NodeLook
from app.settings import Settings
from app.stores.rows import Store
from spark.events.records import Catalog, Confirmed
from tests.spark.events.catalogs import Catalogs

NOW = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)


def add(database: Database, url: str, cluster: str) -> Store:
    row = Store(id="node", kind="SLONY", url=url, cluster=cluster, created_at=NOW, updated_at=NOW)
    with database.transaction() as db:
        db.add(row)
    return row


def pair(seqno: int) -> Confirmed:
    lag = timedelta(0)
    return Confirmed(
        origin=1, receiver=2, seqno=seqno, timestamp=NOW, last_seqno=seqno, lag_events=0, lag=lag
    )


def keep(database: Database, store: Store, seqno: int, *, local_node: int = 1) -> None:
    catalog = Catalog("c", "_c", "2.2.11", local_node, (), (), frozenset())
    keep_look(database, store, catalog, [pair(seqno)], None, as_of=NOW, now=NOW)


def seen(database: Database) -> NodeStateRead:
    with database.reading() as db:
        store = db.get(Store, "node")
        assert store is not None
        return read_look(db, store)


def lead_to(database: Database, url: str) -> Store:
    with database.transaction() as db:
        store = db.get(Store, "node")
        assert store is not None
        store.url = url
        db.add(store)
    return store


def test_a_store_that_was_led_to_another_node_shows_nothing_of_the_former(database: Database) -> None:
    store = add(database, "postgresql+psycopg://x@one/x", "c")
    keep(database, store, 7)
    assert [each.confirmed_seqno for each in seen(database).confirmations] == [7]
    lead_to(database, "postgresql+psycopg://x@two/x")
    assert (seen(database).checked_at, seen(database).confirmations) == (None, [])


def test_a_check_that_ends_after_the_store_was_led_elsewhere_keeps_nothing(database: Database) -> None:
    before = add(database, "postgresql+psycopg://x@one/x", "c")
    after = lead_to(database, "postgresql+psycopg://x@two/x")
    keep(database, after, 9, local_node=2)
    keep(database, before, 7)
    assert (seen(database).local_node, [each.confirmed_seqno for each in seen(database).confirmations]) == (
        2,
        [9],
    )
    with database.transaction() as db:
        db.delete(db.get_one(NodeLook, "node"))
        db.delete(db.get_one(Store, "node"))
    keep(database, after, 10)  # removed meanwhile


def test_metadata_that_is_busy_takes_no_finding_away(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = add(sqlite_database, "postgresql+psycopg://x@one/x", "c")
    monkeypatch.setattr("app.db.WRITER_QUEUE_TIMEOUT_S", 0.05)
    assert sqlite_database._writers.acquire(1)
    try:
        keep(sqlite_database, store, 7)
    finally:
        sqlite_database._writers.release()
    assert seen(sqlite_database).checked_at is None


def test_a_matrix_that_takes_too_long_is_left_out_of_the_check(
    database: Database, settings: Settings, catalogs: Catalogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = catalogs.load("fxa", 1, cluster="slow")
    store = add(database, loaded.url, "slow")
    whole = check_node(database, store, settings, datetime.now(UTC))
    assert whole.reachable
    before = seen(database)
    assert before.confirmations

    def slow(conn, catalog):  # type: ignore[no-untyped-def]
        return conn.execute("select pg_sleep(60)")

    monkeypatch.setattr(check, "read_matrix", slow)
    monkeypatch.setattr(check, "MATRIX_MS", 50)
    found = check_node(database, store, settings, datetime.now(UTC))
    assert found.reachable
    assert [each.code for each in found.findings] == [each.code for each in whole.findings]
    assert seen(database) == before
