"""Retention beside those who settle and replay: nobody waits in a circle, nothing replayed is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.errors import MetadataUnavailable
from app.hooks.deliveries import get_delivery, replay_one, replay_since
from app.hooks.ending import forget_deliveries, give_up
from app.hooks.leases import settle, take
from app.hooks.models import ReplayRequest
from app.hooks.sending import Outcome
from app.hooks.service import get_hook
from app.outbox.rows import DeliveryState, Webhook, WebhookDelivery
from tests.app.fake_clock import FakeClock
from tests.app.hooks.outboxes import deliveries_of, end_job, hook_of, make_hook, make_job

ADMIN = Caller("tok_a", "ann", frozenset({Scope.ADMIN}), None)


def beside(database: Database, act: Callable[[Any], object]) -> tuple[threading.Thread, list[object]]:
    """Begin something in a transaction of its own; with what came of it."""
    found: list[object] = []

    def run() -> None:
        try:
            with database.transaction() as db:
                found.append(act(db))
        except MetadataUnavailable as error:  # a deadlock
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


@pytest.mark.postgresql
def test_a_replay_and_the_giving_up_do_not_wait_for_each_other(postgresql_database: Database) -> None:
    database = postgresql_database
    hooks = [make_hook(database) for _ in range(2)]
    end_job(database, make_job(database))
    row = deliveries_of(database, hooks[0].id)[0]
    with database.transaction() as db:
        late = database.now(db) + timedelta(days=6)
        hook = get_hook(db, hooks[0].id, ADMIN, lock=True)
        thread, found = beside(database, lambda other: give_up(other, now=late))
        time.sleep(0.3)  # it has got as far as it gets
        mine = get_delivery(db, hook.id, row.id, ADMIN, lock=True)
        replay_one(db, hook, mine, now=late)
    thread.join(20)
    assert found == [1]
    assert [each.state for each in deliveries_of(database, hooks[0].id)] == ["PENDING"]
    assert [each.state for each in deliveries_of(database, hooks[1].id)] == ["GIVEN_UP"]
    assert [hook_of(database, each.id).given_up for each in hooks] == [0, 1]


@pytest.mark.parametrize("way", ["one", "since"])
def test_a_replay_begins_anew(database: Database, way: str) -> None:
    """It waited 24 h after its first failure, as if it had been tried for days."""
    hook_id = make_hook(database).id
    end_job(database, make_job(database))
    [row] = deliveries_of(database)
    with database.transaction() as db:
        mine = db.merge(row)
        mine.attempts, mine.state, mine.next_at = 12, DeliveryState.GIVEN_UP, None
        mine.ended_at = database.now(db)
        db.add(mine)
    with database.transaction() as db:
        hook, now = get_hook(db, hook_id, ADMIN, lock=True), database.now(db)
        if way == "one":
            replay_one(db, hook, get_delivery(db, hook_id, row.id, ADMIN, lock=True), now=now)
        else:
            since = ReplayRequest.model_validate({"since": "2026-01-01T00:00:00Z"})
            assert replay_since(db, hook, since, ADMIN, now=now).replayed == 1
    with database.transaction() as db:
        taken = take(db, database, hook_id, source="x")
        assert taken is not None
        assert settle(db, database, taken, Outcome(500, "the receiver answered 500"))
    [row] = deliveries_of(database)
    assert row.attempts == 1
    assert row.next_at is not None
    assert row.last_at is not None
    assert row.next_at - row.last_at < timedelta(seconds=30)


def rests_to_the_end(database: Database) -> WebhookDelivery:
    """A delivery that has failed for almost five days: its webhook rests beyond them."""
    hook_id = make_hook(database).id
    end_job(database, make_job(database))
    [row] = deliveries_of(database)
    with database.transaction() as db:
        hook = db.get_one(Webhook, hook_id)
        hook.failures, hook.rest_until = 9, row.give_up_at + timedelta(minutes=4)
        mine = db.merge(row)
        mine.attempts, mine.next_at = 8, mine.give_up_at
        db.add(hook)
    return deliveries_of(database)[0]


def given_up(database: Database, at: datetime) -> int:
    with database.transaction() as db:
        return give_up(db, now=at)


def test_the_last_attempt_is_made_though_the_webhook_rests_at_the_end(
    sqlite_database: Database, clock: FakeClock
) -> None:
    """Housekeeping gave it up at the end of its time, minutes before the attempt that was promised."""
    row = rests_to_the_end(sqlite_database)
    assert given_up(sqlite_database, row.give_up_at + timedelta(minutes=1)) == 0
    at = row.give_up_at + timedelta(minutes=5)
    clock.advance((at - clock.now()).total_seconds())
    assert given_up(sqlite_database, at) == 0  # awake for a minute
    with sqlite_database.transaction() as db:
        taken = take(db, sqlite_database, row.webhook_id, source="x")
        assert taken is not None
        assert settle(db, sqlite_database, taken, Outcome(500, "the receiver answered 500"))
    [after] = deliveries_of(sqlite_database)
    assert (after.state, after.attempts) == ("GIVEN_UP", 9)
    assert hook_of(sqlite_database, row.webhook_id).given_up == 1


def test_what_nobody_tries_is_given_up_all_the_same(database: Database) -> None:
    row = rests_to_the_end(database)
    end = row.give_up_at
    assert given_up(database, end + timedelta(minutes=13)) == 0
    assert given_up(database, end + timedelta(minutes=15)) == 1  # it was awake, and no sender has come


@pytest.mark.parametrize("fields", [{"is_enabled": False}, {"rest_until": None}])
def test_of_a_webhook_that_is_off_nothing_is_waited_for(database: Database, fields: dict[str, Any]) -> None:
    row = rests_to_the_end(database)
    with database.transaction() as db:
        hook = db.get_one(Webhook, row.webhook_id)
        for name, value in fields.items():
            setattr(hook, name, value)
        db.add(hook)
    is_off = not fields.get("is_enabled", True)
    assert given_up(database, row.give_up_at + timedelta(minutes=1)) == int(is_off)
    assert given_up(database, row.give_up_at + timedelta(minutes=11)) == int(not is_off)


def test_a_webhook_that_rests_for_ever_keeps_nothing_for_ever(database: Database) -> None:
    row = rests_to_the_end(database)
    with database.transaction() as db:
        hook = db.get_one(Webhook, row.webhook_id)
        hook.rest_until = row.give_up_at + timedelta(days=30)
        db.add(hook)
    assert given_up(database, row.give_up_at + timedelta(hours=23)) == 0
    assert given_up(database, row.give_up_at + timedelta(hours=25)) == 1


@pytest.mark.postgresql
def test_what_is_replayed_at_this_moment_is_not_forgotten(postgresql_database: Database) -> None:
    database = postgresql_database
    hook_id = make_hook(database).id
    end_job(database, make_job(database))
    with database.transaction() as db:
        late = database.now(db) + timedelta(days=6)
        assert give_up(db, now=late) == 1
    [row] = deliveries_of(database)
    with database.transaction() as db:
        hook = get_hook(db, hook_id, ADMIN, lock=True)
        replay_one(db, hook, get_delivery(db, hook_id, row.id, ADMIN, lock=True), now=late)
        thread, found = beside(
            database, lambda other: forget_deliveries(other, before=late + timedelta(days=1))
        )
        time.sleep(0.3)
    thread.join(20)
    assert found == [0]
    assert [each.state for each in deliveries_of(database)] == ["PENDING"]
