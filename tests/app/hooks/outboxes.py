"""Webhooks, stores and jobs as rows, for tests that need no service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session, col, select

from app.db import Database
from app.hooks.signing import new_key
from app.jobs.rows import Job
from app.jobs.service import JobRequest, submit, transition
from app.jobs.states import JobState
from app.kit.ids import new_id
from app.outbox.facts import ASKED_FOR
from app.outbox.rows import Webhook, WebhookDelivery, WebhookEvent
from app.stores.rows import Store, StoreKind


def make_hook(database: Database, url: str = "https://alerts.example/hook", **fields: Any) -> Webhook:
    """An enabled webhook that wants everything."""
    now = datetime.fromisoformat("2026-11-01T00:00:00Z")
    values = {"events": sorted(map(str, ASKED_FOR)), "own_key": new_key(), "clear_text_on_loopback": True}
    row = Webhook(**values | {"id": new_id("whk"), "url": url, "created_at": now, "updated_at": now} | fields)
    with database.transaction() as db:
        db.add(row)
    return row


def make_store(database: Database, name: str, **fields: Any) -> None:
    """A store, of which only the name and labels count."""
    with database.transaction() as db:
        now = database.now(db)
        db.add(Store(id=name, kind=StoreKind.SQL, created_at=now, updated_at=now, **fields))


def make_job(database: Database, store: str | None = "shop", kind: str = "PURGE") -> str:
    """A queued job."""
    with database.transaction() as db:
        request = JobRequest(kind=kind, store=store, params={"secret": "p4ss"}, requested_by="ann")
        return submit(db, request, now=database.now(db), queued_max=10_000).id


def end_job(database: Database, job_id: str, state: JobState = JobState.ABORTED) -> None:
    """Its end, by the way that ends jobs."""
    with database.transaction() as db:
        end_in(db, database, job_id, state)


def end_in(db: Session, database: Database, job_id: str, state: JobState) -> None:
    job = db.get_one(Job, job_id)
    assert transition(db, job, state, now=database.now(db), reason="by hand", actor="ann")


def events_of(database: Database) -> Sequence[WebhookEvent]:
    with database.reading() as db:
        return db.exec(select(WebhookEvent).order_by(col(WebhookEvent.id))).all()


def deliveries_of(database: Database, webhook_id: str | None = None) -> Sequence[WebhookDelivery]:
    query = select(WebhookDelivery).order_by(col(WebhookDelivery.id))
    if webhook_id is not None:
        query = query.where(WebhookDelivery.webhook_id == webhook_id)
    with database.reading() as db:
        return db.exec(query).all()


def hook_of(database: Database, webhook_id: str) -> Webhook:
    with database.reading() as db:
        return db.get_one(Webhook, webhook_id)


def move(database: Database, webhook_id: str, by: timedelta) -> None:
    """Let time pass for a webhook and its deliveries, on a database whose clock is its own."""
    with database.transaction() as db:
        hook = db.get_one(Webhook, webhook_id)
        if hook.rest_until is not None:
            hook.rest_until -= by
        db.add(hook)
        for row in db.exec(select(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook_id)):
            row.give_up_at -= by
            row.next_at = None if row.next_at is None else row.next_at - by
            db.add(row)
