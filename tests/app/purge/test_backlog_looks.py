"""Looks at a backlog as checks make and keep them: once in a period, judged by all of them, told once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlmodel import col, select

from app.db import Database
from app.errors import NotFound
from app.metrics.exposition import render_metrics
from app.outbox.facts import Fact
from app.outbox.rows import Webhook, WebhookEvent
from app.parameters.service import global_values
from app.purge.backlog import keeping
from app.purge.backlog.known import require_known
from app.purge.backlog.models import BacklogRead
from app.purge.backlog.rows import BacklogLook, BacklogSample
from app.purge.backlog.samples import COARSE_S, FINE_S, KEPT, forget_samples
from app.purge.backlog.service import backlog_of, limits_of, look_of
from app.purge.check import check_store
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from spark.purge.reading import backlog as reading
from tests.app.fake_clock import FakeClock
from tests.oracles.symmetricds import Place, create, session

PERIOD = timedelta(minutes=5)
NODES, CHANNELS = ("n1", "n2", "n3"), ("sales", "items")
Make = Callable[..., "Watched"]


class Watched:
    """A store on a SQLite target, and its checks by a clock of their own."""

    def __init__(self, database: Database, settings: Settings, clock: FakeClock, path: Path) -> None:
        self.database, self.settings, self.clock = database, settings, clock
        self.place = Place(f"sqlite:///{path}")
        create(self.place)
        self.next_id = 1
        with database.transaction() as db:
            now = clock.now()
            row = {"id": "shop", "kind": StoreKind.SYMMETRICDS, "url": self.place.url}
            db.add(Store(**row, created_at=now, updated_at=now))
        self.run(
            "insert into sym_node (node_id, node_group_id, external_id, sync_enabled)"
            " values ('n1', 'g', '1', 1), ('n2', 'g', '2', 1), ('n3', 'g', '3', 0)"
        )

    def run(self, sql: str, **values: Any) -> None:
        with session(self.place) as target:
            target.run(sql, values)

    def queue(self, node: str, channel: str, number: int, *, age: timedelta = timedelta()) -> None:
        """New batches, each with one event."""
        made = self.place.encode(datetime.now(UTC).replace(tzinfo=None) - age)
        ids = range(self.next_id, self.next_id + number)
        self.next_id += number
        with session(self.place) as target:
            target.write(
                "insert into sym_outgoing_batch (batch_id, node_id, channel_id, status, create_time)"
                " values (:id, :node, :channel, 'NE', :made)",
                [{"id": each, "node": node, "channel": channel, "made": made} for each in ids],
            )
            target.write(
                "insert into sym_data_event (data_id, batch_id) values (:id, :id)",
                [{"id": each} for each in ids],
            )

    def deliver(self, node: str, channel: str) -> None:
        self.run(
            "update sym_outgoing_batch set status = 'OK' where node_id = :node and channel_id = :channel",
            node=node,
            channel=channel,
        )

    def change(self, **fields: Any) -> None:
        with self.database.transaction() as db:
            db.add(db.get_one(Store, "shop").sqlmodel_update(fields))

    @property
    def store(self) -> Store:
        with self.database.reading() as db:
            return db.get_one(Store, "shop")

    def check(self, after: timedelta = PERIOD) -> dict[str, str]:
        """A check, some time after the last one; its findings of the backlog."""
        self.clock.advance(after.total_seconds())
        found = check_store(self.database, self.store, self.settings, self.clock.now())
        return {each.code: each.detail for each in found.findings if each.code.startswith("BACKLOG")}

    def read(self, **asked: Any) -> BacklogRead:
        with self.database.reading() as db:
            store = db.get_one(Store, "shop")
            limits = limits_of(db, store, global_values(db), self.settings)
            return backlog_of(db, store, limits, now=self.clock.now(), **asked)

    def samples(self, step_s: int = FINE_S) -> int:
        with self.database.reading() as db:
            return len(db.exec(select(BacklogSample).where(BacklogSample.step_s == step_s)).all())

    def gauges(self) -> str:
        return render_metrics(self.database, alive_within_s=90).decode()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 11, 25, 12, tzinfo=UTC))


@pytest.fixture
def make(settings: Settings, clock: FakeClock, tmp_path: Path) -> Make:
    def made(database: Database) -> Watched:
        return Watched(database, settings, clock, tmp_path / "target.db")

    return made


@pytest.fixture
def watched(make: Make, sqlite_database: Database) -> Watched:
    return make(sqlite_database)


def test_backlog_over_a_random_history_is_told_as_a_plain_count_has_it(
    make: Make, database: Database
) -> None:
    watched, rng = make(database), Random("looks")
    watched.change(parameters={"backlog.window": "PT30M"})
    model: list[tuple[datetime, dict[tuple[str, str], int]]] = []
    waiting = {(node, channel): 0 for node in NODES for channel in CHANNELS}
    grew = set()
    for _ in range(14):
        for pair in waiting:
            if rng.random() < 0.3:
                watched.deliver(*pair)
                waiting[pair] = 0
            if pair == ("n2", "items") or rng.random() < 0.5:
                number = rng.randrange(5, 9)
                watched.queue(*pair, number)
                waiting[pair] += number
        watched.check()
        model.append((watched.clock.now(), dict(waiting)))
        node, channel = rng.choice([None, *NODES]), rng.choice([None, *CHANNELS])
        found = watched.read(node=node, channel=channel)
        asked = {
            pair: number
            for pair, number in waiting.items()
            if number and node in (None, pair[0]) and channel in (None, pair[1])
        }
        assert {(each.node, each.channel): each.batches for each in found.pairs} == asked
        assert (found.batches, found.rows, found.errors) == (sum(asked.values()), sum(asked.values()), 0)
        assert [(each.at, each.batches) for each in found.samples] == [
            (
                at,
                sum(
                    number
                    for pair, number in then.items()
                    if node in (None, pair[0]) and channel in (None, pair[1])
                ),
            )
            for at, then in model
        ]
        grew |= {(each.node, each.channel) for each in found.pairs if each.is_growing}
    assert watched.samples() == 14
    assert grew <= {(node, channel) for node in NODES for channel in CHANNELS}


def test_look_is_made_once_in_a_period_whoever_checks(watched: Watched) -> None:
    watched.queue("n1", "sales", 3)
    watched.check()
    watched.queue("n1", "sales", 2)
    watched.check(timedelta(minutes=1))
    assert (watched.read().batches, watched.samples()) == (3, 1)
    watched.check(timedelta(minutes=4))
    assert (watched.read().batches, watched.samples()) == (5, 2)
    watched.change(parameters={"backlog.period": "PT0S"})
    watched.queue("n1", "sales", 2)
    assert watched.check() == {}
    assert watched.samples() == 2


def test_offline_node_is_named_with_what_it_holds_and_told_once(watched: Watched) -> None:
    hook = {"id": "whk_1", "url": "https://x.example/", "description": "", "secret": None}
    now = watched.clock.now()
    with watched.database.transaction() as db:
        more = {"events": [Fact.BACKLOG_GROWS], "created_at": now, "updated_at": now}
        db.add(Webhook(**hook, **more))
    watched.change(parameters={"backlog.window": "PT30M", "purge.retention.minutes": 60})
    watched.queue("n2", "items", 1, age=timedelta(hours=3))
    told: list[set[str]] = []
    for look in range(14):
        watched.queue("n2", "items", 7)  # it fetches nothing any more
        watched.queue("n1", "sales", 90)
        if look % 3 == 2:
            watched.deliver("n1", "sales")  # a saw, far higher than what grows
        found = watched.check()
        told.append(set(found))
    assert told[0] == {"BACKLOG_HOLDS_PURGE"}
    assert told[-1] == {"BACKLOG_HOLDS_PURGE", "BACKLOG_GROWS"}
    assert "node n2 on channel items: 99" in found["BACKLOG_GROWS"]
    assert "node n1" not in found["BACKLOG_GROWS"]
    assert "node n2 on channel items (batch 1, STUCK)" in found["BACKLOG_HOLDS_PURGE"]
    read = watched.read()
    assert (read.status, read.trend.is_growing) == ("CRITICAL", True)
    holder = read.holders[0]
    assert (holder.node, holder.batch, holder.why, holder.holds_purge) == ("n2", 1, "STUCK", True)
    with watched.database.reading() as db:
        [event] = db.exec(select(WebhookEvent)).all()
    assert (event.type, event.store, event.data["pairs_growing"]) == (Fact.BACKLOG_GROWS, "shop", 1)
    assert "n2" not in str(event.data)
    gauges = watched.gauges()
    assert 'lethe_symmetricds_backlog_grows{store="shop"} 1.0' in gauges
    assert 'lethe_symmetricds_backlog_batches{channel="items",node="n2",store="shop"} 99.0' in gauges


def test_growth_is_seen_where_looks_come_more_often_than_they_are_kept(watched: Watched) -> None:
    often = {"store.check.period": "PT1M", "backlog.period": "PT1M", "backlog.window": "PT10M"}
    watched.change(parameters=often)
    for _ in range(40):
        watched.queue("n1", "sales", 5)
        watched.check(timedelta(minutes=1))
    assert watched.read().trend.is_growing is True
    assert watched.read().trend.window == timedelta(minutes=30)


def test_growth_goes_on_where_more_waits_than_is_read(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCHES_MAX", 120)
    monkeypatch.setattr(keeping, "read_backlog", partial(reading.read_backlog, batches_max=120))
    watched.change(parameters={"backlog.window": "PT30M"})
    for _ in range(30):
        watched.queue("n1", "sales", 10)
        found = watched.check()
    assert "BACKLOG_GROWS" in found
    read = watched.read()
    assert (read.batches, read.is_at_least, read.trend.is_growing) == (121, True, True)
    assert read.trend.batches_per_hour is None
    assert watched.read(node="n1").trend.is_growing is None
    assert 'lethe_symmetricds_backlog_grows{store="shop"} 1.0' in watched.gauges()
    watched.deliver("n1", "sales")
    for _ in range(8):
        found = watched.check()
    assert (found, watched.read().trend.is_growing) == ({}, False)


def test_more_than_is_read_from_the_first_look_on_is_no_steady_backlog(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCHES_MAX", 120)
    monkeypatch.setattr(keeping, "read_backlog", partial(reading.read_backlog, batches_max=120))
    watched.change(parameters={"backlog.window": "PT30M"})
    for _ in range(10):
        watched.queue("n1", "sales", 150)
        watched.check()
    assert watched.read().trend.is_growing is None


def test_gauges_of_figures_that_nobody_renews_end(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.change(parameters={"backlog.window": "PT30M"})
    for _ in range(10):
        watched.queue("n1", "sales", 10)
        watched.check()
    grows, when = "lethe_symmetricds_backlog_grows{", "lethe_symmetricds_backlog_timestamp_seconds{"
    oldest = "lethe_symmetricds_backlog_oldest_timestamp_seconds{"
    assert {name in watched.gauges() for name in (grows, oldest, when)} == {True}
    monkeypatch.setattr(reading, "_WAITS", "no_such_column = 1")
    watched.check()
    assert [name in watched.gauges() for name in (grows, oldest, when)] == [False, False, True]
    monkeypatch.undo()
    watched.check()
    assert grows in watched.gauges()
    watched.change(parameters={"backlog.period": "PT0S"})
    watched.clock.advance(3600)
    assert [name in watched.gauges() for name in (grows, oldest, when)] == [False, False, True]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("update sym_node set sync_enabled = 0", "NODE_DISABLED"),
        ("delete from sym_node where node_id = 'n1'", "NODE_UNKNOWN"),
        ("update sym_outgoing_batch set status = 'ER'", "BATCH_IN_ERROR"),
        ("update sym_outgoing_batch set error_flag = 1, status = 'SE'", "BATCH_IN_ERROR"),
        ("insert into sym_node_host values ('n1', '2020-01-01 00:00:00', null)", "NODE_SILENT"),
        ("select 1", "UNDER_WAY"),
    ],
)
def test_why_the_oldest_batch_of_a_node_waits_is_told(watched: Watched, sql: str, why: str) -> None:
    watched.run("drop table if exists sym_node_host")
    watched.run("create table sym_node_host (node_id text, heartbeat_time text, timezone_offset text)")
    watched.queue("n1", "sales", 2)
    watched.run(sql)
    watched.check()
    [holder] = watched.read().holders
    assert (holder.why, holder.batch, holder.holds_purge) == (why, 1, False)


def test_looks_are_thinned_and_forgotten_after_their_time(watched: Watched) -> None:
    watched.change(parameters={"backlog.period": "PT1M"})
    for _ in range(7):
        watched.check(timedelta(minutes=1))
    assert watched.samples() <= 3
    later = watched.clock.now() + KEPT[FINE_S]
    with watched.database.transaction() as db:
        forget_samples(db, now=later + timedelta(minutes=10))
    assert (watched.samples(), watched.samples(COARSE_S)) == (0, 1)
    watched.clock.advance(KEPT[FINE_S].total_seconds() + 600)
    assert len(watched.read(since=watched.clock.now() - timedelta(days=10)).samples) == 1
    with watched.database.transaction() as db:
        forget_samples(db, now=later + KEPT[COARSE_S])
    assert watched.samples(COARSE_S) == 0


def test_another_target_begins_anew(watched: Watched, tmp_path: Path) -> None:
    watched.queue("n1", "sales", 3)
    watched.check()
    other = Place(f"sqlite:///{tmp_path}/other.db")
    create(other)
    watched.change(url=other.url)
    assert (watched.read().status, watched.read().samples) == ("UNKNOWN", [])
    watched.check()
    assert (watched.read().batches, watched.samples()) == (0, 1)


def test_old_looks_and_looks_that_could_not_read_are_unknown(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watched.read().status == "UNKNOWN"
    watched.check()
    assert watched.read().status == "OK"
    watched.clock.advance(3600)
    assert watched.read().status == "UNKNOWN"
    watched.check()
    assert watched.read().status == "OK"
    monkeypatch.setattr(reading, "_WAITS", "no_such_column = 1")
    assert set(watched.check()) == {"BACKLOG_UNREAD"}
    found = watched.read()
    assert found.status == "UNKNOWN"
    assert found.problem is not None
    with watched.database.reading() as db:
        row = db.exec(select(BacklogLook).where(col(BacklogLook.store) == "shop")).one()
    assert row.at == watched.clock.now()


def test_removed_store_leaves_nothing(watched: Watched) -> None:
    watched.check()
    with watched.database.transaction() as db:
        db.delete(db.get_one(Store, "shop"))
    with watched.database.reading() as db:
        assert db.exec(select(BacklogLook)).all() == []
        assert db.exec(select(BacklogSample)).all() == []


def test_look_writes_nothing_to_the_target(watched: Watched) -> None:
    watched.queue("n1", "sales", 3)
    path = watched.place.url.removeprefix("sqlite:///")

    def dump() -> str:
        with closing(sqlite3.connect(path)) as connection:
            return "\n".join(connection.iterdump())

    before = dump()
    watched.check()
    assert dump() == before


def test_name_that_nobody_knows_is_refused_by_a_look_that_is_new_and_could_read(watched: Watched) -> None:
    def ask(node: str) -> None:
        with watched.database.reading() as db:
            look = look_of(db, db.get_one(Store, "shop"))
            require_known(look, node=node, channel=None, prefix="sym_", now=watched.clock.now())

    ask("nobody")  # nobody has looked: the answer is UNKNOWN without it
    watched.queue("gone", "sales", 1)
    watched.check()
    for node in (*NODES, "gone", "-1"):
        ask(node)
    with pytest.raises(NotFound, match=r"node nobody .*; known are gone, n1, n2, n3;") as error:
        ask("nobody")
    assert error.value.code == "NODE_NOT_FOUND"
    watched.deliver("gone", "sales")
    watched.check()
    with pytest.raises(NotFound):
        ask("gone")
    watched.clock.advance(timedelta(days=1).total_seconds())
    ask("nobody")
    assert watched.read(node="nobody").status == "UNKNOWN"
