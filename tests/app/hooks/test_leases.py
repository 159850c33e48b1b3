"""What fails waits, is given up and forgotten; whose delivery it is, whatever becomes of its store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.db import Database
from app.hooks.ending import A_CHANCE, forget_deliveries, give_up
from app.hooks.leases import LEASE, PAUSES_S, pause_s, settle, take, take_back
from app.hooks.sending import Outcome
from app.outbox.rows import DeliveryState, Webhook
from app.stores.rows import Store
from tests.app.fake_clock import FakeClock
from tests.app.hooks.outboxes import (
    deliveries_of,
    end_job,
    events_of,
    hook_of,
    make_hook,
    make_job,
    make_store,
    move,
)

SENDERS_THAT_DIE = 7


def test_what_fails_waits_ever_longer_and_is_given_up(database: Database) -> None:
    hook = make_hook(database)
    end_job(database, make_job(database))
    pauses = []
    for attempt in range(1, 30):
        with database.transaction() as db:
            taken = take(db, database, hook.id, source="x")
            assert taken is not None, attempt
            assert settle(db, database, taken, Outcome(500, "the receiver answered 500"))
        [row] = deliveries_of(database)
        if row.state == DeliveryState.GIVEN_UP:
            break
        assert row.next_at is not None
        assert row.last_at is not None
        pauses.append((row.next_at - row.last_at).total_seconds())
        rest_until = hook_of(database, hook.id).rest_until
        assert rest_until is not None
        move(
            database, hook.id, max(row.next_at, rest_until) - row.last_at
        )  # the last pause may be the shorter one
    assert 10 <= len(pauses) <= 14
    assert timedelta(days=4, hours=23) <= timedelta(seconds=sum(pauses)) <= timedelta(days=5)
    for found, wanted in zip(pauses[:-1], (*PAUSES_S, *[PAUSES_S[-1]] * 9), strict=False):
        assert wanted * 0.79 <= found <= min(wanted * 1.21, 86_401)
    [row] = deliveries_of(database)
    assert (row.state, row.last_status, row.next_at) == ("GIVEN_UP", 500, None)
    shown = hook_of(database, hook.id)
    assert (shown.failed, shown.given_up, shown.delivered) == (len(pauses) + 1, 1, 0)


def test_pauses_have_their_jitter_and_their_maximum() -> None:
    found = [pause_s(3) for _ in range(200)]
    assert min(found) < 1_800 < max(found)
    assert max(pause_s(50) for _ in range(200)) <= 86_400


def test_retry_after_is_kept(database: Database) -> None:
    hook = make_hook(database)
    end_job(database, make_job(database))
    with database.transaction() as db:
        taken = take(db, database, hook.id, source="x")
        assert taken is not None
        settle(db, database, taken, Outcome(429, "slow down", retry_after_s=3_600.0))
    [row] = deliveries_of(database)
    shown = hook_of(database, hook.id)
    assert row.next_at is not None
    assert row.last_at is not None
    assert shown.rest_until is not None
    assert row.next_at - row.last_at >= timedelta(seconds=3_599)
    assert shown.rest_until - row.last_at >= timedelta(seconds=3_599)


@pytest.mark.parametrize("fate", ["relabelled", "removed"])
def test_what_happened_to_a_store_is_told_whatever_becomes_of_it(fate: str, database: Database) -> None:
    """The alert that waits is often of the very store that somebody then takes away."""
    make_store(database, "shop", labels={"region": "eu"})
    hook = make_hook(database, labels={"region": "eu"})
    end_job(database, make_job(database))
    with database.transaction() as db:
        store = db.get_one(Store, "shop")
        if fate == "removed":
            db.delete(store)
        else:
            store.labels = {"region": "us"}
            db.add(store)
    with database.transaction() as db:
        taken = take(db, database, hook.id, source="x")
    assert taken is not None
    assert taken.event["data"]["store"] == "shop"


def test_labels_that_changed_since_take_away_what_waits(database: Database) -> None:
    make_store(database, "shop", labels={"region": "eu"})
    hook = make_hook(database, labels={"region": "eu"})
    end_job(database, make_job(database))
    with database.transaction() as db:
        row = db.get_one(Webhook, hook.id)
        row.labels, row.updated_at = {"region": "us"}, database.now(db) + timedelta(seconds=1)
        db.add(row)
    with database.transaction() as db:
        assert take(db, database, hook.id, source="x") is None
    assert deliveries_of(database)[0].state == "GIVEN_UP"
    assert hook_of(database, hook.id).given_up == 1


def test_retention_gives_up_and_forgets(sqlite_database: Database, clock: FakeClock) -> None:
    database = sqlite_database
    hook = make_hook(database)
    end_job(database, make_job(database))
    make_hook(database, is_enabled=False)
    with database.transaction() as db:
        assert give_up(db, now=clock.now()) == 0
        assert give_up(db, now=clock.now() + timedelta(days=5)) == 0  # its last attempt may still come
        assert give_up(db, now=clock.now() + timedelta(days=5) + A_CHANCE) == 1
        assert forget_deliveries(db, before=clock.now()) == 0
    assert deliveries_of(database)[0].state == "GIVEN_UP"
    assert hook_of(database, hook.id).given_up == 1
    with database.transaction() as db:
        assert forget_deliveries(db, before=clock.now() + timedelta(days=19)) == 1
    assert list(events_of(database)) == []


@pytest.mark.parametrize("is_back", [True, False])
def test_senders_that_die_do_not_lengthen_the_pause_after_the_first_failure(
    sqlite_database: Database, clock: FakeClock, is_back: bool
) -> None:
    """Killed often enough under one delivery, its first failure would have kept it for a day."""
    database, hook_id = sqlite_database, make_hook(sqlite_database).id
    end_job(database, make_job(database))
    for number in range(SENDERS_THAT_DIE):
        with database.transaction() as db:
            assert take(db, database, hook_id, source="x", instance_id=f"ins_{number}") is not None
        if is_back:
            with database.transaction() as db:
                take_back(db, f"ins_{number}", now=database.now(db))
        else:
            clock.advance(LEASE.total_seconds() + 1)
    with database.transaction() as db:
        taken = take(db, database, hook_id, source="x")
        assert taken is not None
        assert settle(db, database, taken, Outcome(500, "the receiver answered 500"))
    [row] = deliveries_of(database)
    assert row.attempts == 1
    assert row.next_at is not None
    assert row.last_at is not None
    assert row.next_at - row.last_at < timedelta(seconds=30)
