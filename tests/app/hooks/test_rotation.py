"""Signing secrets: one that was rotated out signs beside its successor for a while, and no longer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.clock import SystemClock
from app.db import Database
from app.hooks import signing as signing_module
from app.hooks.models import WebhookRotate
from app.hooks.service import get_hook, hooks_naming, rotate_secret
from app.hooks.signing import keys_of, new_key
from app.outbox.rows import Webhook
from app.secrets.rows import Secret
from app.settings import Settings
from tests.app.hooks.delivering import delivering, until
from tests.app.hooks.outboxes import (
    deliveries_of,
    end_job,
    hook_of,
    make_hook,
    make_job,
)
from tests.receivers import receiving

ADMIN = Caller("tok_a", "ann", frozenset({Scope.ADMIN, Scope.WEBHOOKS_WRITE}), None)


def test_both_secrets_sign_until_the_overlap_ends(database: Database, settings: Settings) -> None:
    former, soon = new_key(), SystemClock().now() + timedelta(hours=1)
    with receiving() as receiver, delivering(database, settings):
        hook = make_hook(database, receiver.url, former_key=former, former_until=soon)
        end_job(database, make_job(database))
        receiver.wait_for(1)
        assert len(receiver.verified(str(hook.own_key), former)) == 2
        with database.transaction() as db:
            row = db.get_one(Webhook, hook.id)
            row.former_until = SystemClock().now() - timedelta(hours=1)  # by any clock
            db.add(row)
        second = make_job(database)
        end_job(database, second)
        until(lambda: any(second.encode() in body for _, body in receiver.got))
    [(later, body), *_again] = [each for each in receiver.got if second.encode() in each[1]]
    Verifier(str(hook.own_key)).verify(body, later)
    with pytest.raises(WebhookVerificationError):
        Verifier(former).verify(body, later)


def test_a_secret_that_cannot_be_read_is_told_and_tried_again(database: Database, settings: Settings) -> None:
    with receiving() as receiver, delivering(database, settings):
        hook = make_hook(database, receiver.url, own_key=None, secret="secret:missing")
        end_job(database, make_job(database))
        until(lambda: hook_of(database, hook.id).failures)
    assert receiver.got == []
    assert "secret:missing is not registered" in str(deliveries_of(database)[0].last_error)


def rotate(database: Database, hook: Webhook, **fields: Any) -> str:
    with database.transaction() as db:
        row = get_hook(db, hook.id, ADMIN, lock=True)
        request = WebhookRotate.model_validate(fields)
        _, key = rotate_secret(db, row, request, ADMIN, now=database.now(db))
    assert key is not None
    return key


def signing(database: Database, settings: Settings, hook: Webhook, *, after: timedelta) -> list[str]:
    with database.reading() as db:
        row = db.get_one(Webhook, hook.id)
        return [key.value for key in keys_of(db, row, settings, now=database.now(db) + after)]


def test_the_former_secret_signs_to_the_end_of_its_overlap_and_no_longer(
    database: Database, settings: Settings
) -> None:
    hook = make_hook(database)
    new = rotate(database, hook, overlap="PT1H")
    assert signing(database, settings, hook, after=timedelta(minutes=59)) == [new, hook.own_key]
    assert signing(database, settings, hook, after=timedelta(minutes=61)) == [new]


def test_a_second_rotation_leaves_the_first_secret_behind(database: Database, settings: Settings) -> None:
    """A secret that leaked must not sign beside the one after the next."""
    hook = make_hook(database)
    second = rotate(database, hook, overlap="P30D")
    third = rotate(database, hook, overlap="PT1H")
    assert signing(database, settings, hook, after=timedelta(0)) == [third, second]


def test_without_an_overlap_the_former_secret_signs_nothing_more(
    database: Database, settings: Settings
) -> None:
    hook = make_hook(database)
    new = rotate(database, hook, overlap="PT0S")
    assert signing(database, settings, hook, after=timedelta(0)) == [new]


def test_a_former_named_secret_that_is_gone_stops_nothing(database: Database, settings: Settings) -> None:
    hook = make_hook(database, own_key=None, secret="secret:former")
    new = rotate(database, hook, overlap="P1D")
    with database.reading() as db:
        assert hooks_naming(db, "secret:former", now=database.now(db)) == [f"the webhook {hook.id}"]
        later = database.now(db) + timedelta(days=2)
        assert hooks_naming(db, "secret:former", now=later) == []
    assert signing(database, settings, hook, after=timedelta(0)) == [new]


def test_a_former_secret_of_another_host_does_not_sign_there(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever turns the URL must not get signatures of a secret that is registered for the former host."""
    monkeypatch.setattr(signing_module, "read_reference", lambda *_, **__: former)
    former = new_key()
    fields = {"reference": "env:LETHE_NO_SUCH", "stores": [], "hosts": ["alerts.example:443"]}
    with database.transaction() as db:
        now = database.now(db)
        db.add(Secret(name="former", **fields, created_at=now, updated_at=now))
    hook = make_hook(database, own_key=None, secret="secret:former")
    new = rotate(database, hook, overlap="P1D")
    assert signing(database, settings, hook, after=timedelta(0)) == [new, former]
    with database.transaction() as db:
        row = db.get_one(Webhook, hook.id)
        row.url = "https://other.example/hook"
        db.add(row)
    assert signing(database, settings, hook, after=timedelta(0)) == [new]
