"""A webhook can be changed, and disabled above all, whatever has become of what it names."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import delete

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.errors import ServiceError
from app.hooks.errors import TooManyWebhooks
from app.hooks.models import WebhookCreate, WebhookPatch
from app.hooks.service import LIMITED_MAX, change_hook, create_hook, expectations_of, get_hook
from app.outbox.rows import Webhook, WebhookExpectation
from app.settings import Settings
from app.stores.rows import Store
from tests.app.hooks.outboxes import hook_of, make_hook, make_store

ADMIN = Caller("tok_a", "ann", frozenset({Scope.ADMIN, Scope.WEBHOOKS_WRITE}), None)
OVERDUE = "lethe.success.overdue"


def change(database: Database, hook: Webhook, settings: Settings, **fields: Any) -> None:
    with database.transaction() as db:
        row = get_hook(db, hook.id, ADMIN, lock=True)
        patch = WebhookPatch.model_validate(fields)
        change_hook(db, row, patch, ADMIN, if_match="*", settings=settings, now=database.now(db))


def refused(database: Database, hook: Webhook, settings: Settings, **fields: Any) -> str:
    with pytest.raises(ServiceError) as caught:
        change(database, hook, settings, **fields)
    return str(caught.value.code)


def expecting(database: Database, *stores: str, **fields: Any) -> Webhook:
    hook = make_hook(database, events=["lethe.job.ended", OVERDUE], **fields)
    with database.transaction() as db:
        for store in stores:
            within = timedelta(days=1)
            db.add(WebhookExpectation(webhook_id=hook.id, store=store, kind="PURGE", within=within))
    return hook


def expected(database: Database, hook: Webhook) -> list[str]:
    with database.reading() as db:
        return [row.store for row in expectations_of(db, hook.id)]


def test_a_webhook_is_disabled_though_its_expected_store_is_gone(
    database: Database, settings: Settings
) -> None:
    make_store(database, "shop")
    make_store(database, "other", labels={"a": "b"})
    hook = expecting(database, "shop", "other", labels={"a": "c"}, stores=["shop"])  # other lost its label
    with database.transaction() as db:
        db.execute(delete(Store).where(Store.id == "shop"))  # type: ignore[arg-type]
    change(database, hook, settings, enabled=False)
    assert not hook_of(database, hook.id).is_enabled
    change(database, hook, settings, description="x", events=["lethe.job.ended", OVERDUE])
    assert expected(database, hook) == ["other", "shop"]
    assert refused(database, hook, settings, stores=["shop"]) == "EXPECTED_ELSEWHERE"  # other is there
    change(database, hook, settings, stores=["other"])
    assert expected(database, hook) == ["other"]  # who is gone is expected no more
    assert refused(database, hook, settings, events=["lethe.job.ended"]) == "EVENTS_INCOMPLETE"
    assert refused(database, hook, settings, expected=[]) == "EVENTS_INCOMPLETE"


def test_a_limited_token_cannot_take_the_senders_of_all(
    sqlite_database: Database, settings: Settings
) -> None:
    limited = Caller("tok_b", "bob", frozenset({Scope.WEBHOOKS_WRITE}), frozenset({"shop"}))
    request = WebhookCreate.model_validate(
        {"url": "https://alerts.example/hook", "events": ["lethe.job.ended"], "stores": ["shop"]}
    )
    with sqlite_database.transaction() as db:
        now = sqlite_database.now(db)
        for _ in range(LIMITED_MAX):
            create_hook(db, request, limited, settings=settings, now=now)
        with pytest.raises(TooManyWebhooks, match="remove one, or ask an admin"):
            create_hook(db, request, limited, settings=settings, now=now)
        create_hook(db, request, ADMIN, settings=settings, now=now)


def test_a_webhook_is_disabled_though_its_host_or_secret_is_not_allowed_any_more(
    database: Database, settings: Settings
) -> None:
    hook = make_hook(database, secret="secret:gone")
    settings.allowed_hosts = ["elsewhere.example"]
    change(database, hook, settings, enabled=False)
    change(database, hook, settings, description="of the former host")
    assert refused(database, hook, settings, enabled=True) == "HOST_NOT_ALLOWED"
    assert refused(database, hook, settings, ca_file=None) == "HOST_NOT_ALLOWED"
    settings.allowed_hosts = []
    for fields in ({"enabled": True}, {"stores": ["shop"]}, {"url": "https://other.example/"}):
        assert refused(database, hook, settings, **fields) == "SECRET_NOT_ALLOWED"
