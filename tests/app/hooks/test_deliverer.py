"""What the outbox holds leaves: at least once, never twice at the same moment, whatever receivers do."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
import sqlmodel

from app.auth.rows import AuditEvent
from app.clock import SystemClock
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable
from app.hooks import deliverer as deliverers
from app.hooks import turns
from app.hooks.leases import LEASE, settle, take
from app.hooks.sending import Outcome
from app.outbox.rows import Webhook
from app.settings import Settings
from tests.app.hooks.delivering import delivering, ended, until
from tests.app.hooks.outboxes import (
    deliveries_of,
    end_job,
    events_of,
    hook_of,
    make_hook,
    make_job,
    move,
)
from tests.receivers import listening, read_request, receiving


def test_events_leave_signed_as_cloud_events(database: Database, settings: Settings) -> None:
    with receiving() as receiver, delivering(database, settings):
        hook = make_hook(database, receiver.url)
        job_id = make_job(database)
        end_job(database, job_id)
        [body] = receiver.wait_for(1)
        until(lambda: ended(database))
    assert receiver.verified(str(hook.own_key)) == [body]
    [event] = events_of(database)
    assert (body["specversion"], body["id"], body["source"]) == ("1.0", event.id, "lethe")
    assert (body["type"], body["subject"]) == ("lethe.job.ended", f"jobs/{job_id}")
    assert body["data"]["job_id"] == job_id
    assert receiver.got[0][0]["webhook-id"] == event.id
    [row] = deliveries_of(database)
    assert (row.state, row.attempts, row.last_status, row.last_error) == ("DELIVERED", 1, 204, None)
    assert hook_of(database, hook.id).delivered == 1


def test_two_deliverers_never_send_one_delivery_at_once(database: Database, settings: Settings) -> None:
    with receiving(pause_s=0.01) as receiver:
        make_hook(database, receiver.url)
        make_hook(database, receiver.url)
        for _ in range(15):
            end_job(database, make_job(database))
        with delivering(database, settings, count=2):
            receiver.wait_for(30)
            until(lambda: ended(database))
    ids = [body["id"] for body in receiver.events]
    assert sorted(ids) == sorted(2 * [event.id for event in events_of(database)])
    assert [row.attempts for row in deliveries_of(database)] == [1] * 30


def test_whoever_died_under_its_lease_is_followed_with_the_same_id(
    database: Database, settings: Settings
) -> None:
    with receiving() as receiver:
        hook = make_hook(database, receiver.url)
        end_job(database, make_job(database))
        with database.transaction() as db:
            taken = take(db, database, hook.id, source="x")
            assert taken is not None
            assert take(db, database, hook.id, source="x") is None  # it is being sent
        move(database, hook.id, LEASE + timedelta(seconds=1))
        with delivering(database, settings):
            receiver.wait_for(1)
            until(lambda: ended(database))
        with database.transaction() as db:  # the dead one wakes, and has nothing to say any more
            assert not settle(db, database, taken, Outcome(error="late"))
    assert receiver.events[0]["id"] == taken.event["id"]
    [row] = deliveries_of(database)
    assert (row.state, row.attempts) == ("DELIVERED", 1)  # of the dead one nobody knows whether it was made


def test_the_same_instance_goes_on_at_once(database: Database, settings: Settings) -> None:
    with receiving() as receiver:
        hooks = [make_hook(database, receiver.url) for _ in range(2)]
        end_job(database, make_job(database))
        with database.transaction() as db:
            for number, hook in enumerate(hooks):
                assert take(db, database, hook.id, source="x", instance_id=f"ins_{number}")
        with delivering(database, settings):
            receiver.wait_for(1)
            until(lambda: hook_of(database, hooks[0].id).delivered)
    # The other one is of an instance that may live.
    assert [row.state for row in deliveries_of(database)] == ["DELIVERED", "PENDING"]


def test_a_receiver_that_is_gone_disables_its_webhook(database: Database, settings: Settings) -> None:
    with receiving(status="410 Gone") as receiver, delivering(database, settings):
        hook = make_hook(database, receiver.url)
        end_job(database, make_job(database))
        until(lambda: not hook_of(database, hook.id).is_enabled)
        end_job(database, make_job(database))
    assert len(receiver.got) == 1
    assert hook_of(database, hook.id).disabled_because == "GONE"
    [row] = deliveries_of(database)  # nothing is written for one that is disabled
    assert (row.state, row.last_status) == ("PENDING", 410)
    with database.reading() as db:
        [audit] = db.exec(sqlmodel.select(AuditEvent)).all()
    assert (audit.action, audit.actor, audit.subject_id) == ("webhook.change", "lethe", hook.id)
    assert audit.detail == {"is_enabled": False, "because": "GONE"}


def test_a_slow_or_dead_receiver_keeps_nobody_else_waiting(database: Database, settings: Settings) -> None:
    def hang(conn: Any) -> None:
        read_request(conn)
        conn.recv(1)

    settings.webhook_timeout_s = 1.0
    with listening(hang) as sick, receiving() as receiver, delivering(database, settings):
        hung = [make_hook(database, sick) for _ in range(3)]
        make_hook(database, receiver.url)
        for _ in range(10):
            end_job(database, make_job(database))
        began = time.monotonic()
        receiver.wait_for(10)
        assert time.monotonic() - began < 5
        until(lambda: all(hook_of(database, hook.id).failures for hook in hung))
        # One attempt has failed of each: the other nine rest with their webhook.
        assert [sum(row.attempts for row in deliveries_of(database, hook.id)) for hook in hung] == [1, 1, 1]


def test_five_slow_receivers_leave_a_good_one_its_turn(
    sqlite_database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes what it gets, slowly: none of them rests."""
    monkeypatch.setattr(turns, "BURST_MAX_S", 0.3)
    monkeypatch.setattr(turns, "SLOW_S", 0.1)
    with receiving(pause_s=0.3) as slow, receiving() as receiver:
        for _ in range(5):
            make_hook(sqlite_database, slow.url, created_at=SystemClock().now())
        for _ in range(20):
            end_job(sqlite_database, make_job(sqlite_database))
        with delivering(sqlite_database, settings):
            until(lambda: len(slow.got) >= 4)
            good = make_hook(sqlite_database, receiver.url)
            for _ in range(3):
                end_job(sqlite_database, make_job(sqlite_database))
            began = time.monotonic()
            receiver.wait_for(3)
            assert time.monotonic() - began < 2.5
            shares = Counter(row.webhook_id for row in deliveries_of(sqlite_database) if row.attempts)
        shares.pop(good.id)
        assert len(shares) == 5  # each of the slow ones had a turn
        assert max(shares.values()) - min(shares.values()) <= 4


def test_an_idle_deliverer_asks_seldom(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    make_hook(database)
    assert deliverers.POLL_S >= 5
    monkeypatch.setattr(deliverers, "POLL_S", 0.2)
    with delivering(database, settings):
        time.sleep(0.5)
        statements.clear()
        time.sleep(1.0)
        # One question at each look: at POLL_S six a minute.
        asked = [each for each in statements if each.lower().startswith("select")]
        assert 1 <= len(asked) <= 6
        assert not any(each.lower().startswith(("update", "insert")) for each in statements)


@pytest.mark.parametrize("error", [MetadataUnavailable, MetadataBusy])
def test_metadata_that_cannot_be_written_is_not_asked_without_an_end(
    error: type[Exception], sqlite_database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or a standby: what is due can be read."""
    asked: list[float] = []

    def full(*args: object, **named: object) -> None:
        asked.append(time.monotonic())
        raise error()

    monkeypatch.setattr(deliverers, "take", full)
    make_hook(sqlite_database)
    end_job(sqlite_database, make_job(sqlite_database))
    with delivering(sqlite_database, settings):
        until(lambda: asked)
        time.sleep(0.3)
        assert len(asked) == 1
        began = time.monotonic()
    assert time.monotonic() - began < 3  # a stop waits for nobody


def test_a_bug_in_an_attempt_fails_it_and_does_not_keep_its_lease(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **named: object) -> Outcome:
        raise RecursionError("words of somebody else")

    monkeypatch.setattr(deliverers, "send", broken)
    hook = make_hook(database)
    end_job(database, make_job(database))
    with delivering(database, settings):
        until(lambda: hook_of(database, hook.id).failures)
    [row] = deliveries_of(database)
    assert (row.state, row.lease) == ("PENDING", None)
    assert "RecursionError" in str(row.last_error)
    assert "somebody else" not in str(row.last_error)


def test_a_webhook_that_was_narrowed_gets_nothing_of_the_former_stores(
    database: Database, settings: Settings
) -> None:
    """Whoever may touch one of two stores could turn the URL, and have the events of both."""
    hook = make_hook(database, stores=["shop", "other"])
    for name in ("other", "shop", "other"):
        end_job(database, make_job(database, name))
    with receiving() as receiver:
        with database.transaction() as db:
            row = db.get_one(Webhook, hook.id)
            row.stores, row.url = ["shop"], receiver.url
            db.add(row)
        with delivering(database, settings):
            until(lambda: ended(database))
    assert [body["data"]["store"] for body in receiver.events] == ["shop"]
    assert sorted(each.state for each in deliveries_of(database)) == ["DELIVERED", "GIVEN_UP", "GIVEN_UP"]
    assert hook_of(database, hook.id).given_up == 2
