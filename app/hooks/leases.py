"""Who sends which delivery: taken under a lease, settled by whoever holds it.

Rules:
- a lease is judged by the metadata database's clock; it lasts longer than a request's deadline, so that
  nobody sends what another one is still sending;
- whoever has died under its lease has perhaps sent: it is sent again, with the same id, by the same instance
  as soon as it is there again, by others when the lease is over;
- an attempt that died with its sender is no failure of the receiver: the next one goes on in its place, and
  the pauses get no longer;
- rows are locked in one order, the webhook before its delivery.
"""

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import and_, case, exists, or_, update
from sqlmodel import Session, col, select

from app.auth.actions import Action
from app.auth.rows import AuditEvent, audited
from app.db import Database
from app.hooks.models import cloud_event
from app.hooks.sending import Outcome
from app.hooks.service import store_of
from app.kit.ids import new_id
from app.kit.instants import instant_text
from app.outbox.facts import Fact
from app.outbox.rows import DeliveryState, Webhook, WebhookDelivery, WebhookEvent
from app.outbox.writing import covers
from app.stores.rows import Store

LEASE: Final = timedelta(seconds=90)
"""Longer than the longest deadline of a request (settings: 30 s)."""
PAUSES_S: Final = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Before the next attempt, as Standard Webhooks advises; the last one again until it is given up."""
JITTER: Final = 0.2
REST_FIRST_S: Final = 2.0
REST_MAX_S: Final = 300.0
"""Of the whole webhook: one that fails does not keep a sender busy with all that waits for it."""
RETRY_AFTER_MAX_S: Final = 86_400.0
GONE: Final = 410
GONE_BECAUSE: Final = "GONE"
ACTOR: Final = "lethe"
HOOKS_MAX: Final = 200
PASSED_OVER_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery that is ours to send."""

    id: str
    lease: str
    hook: Webhook
    event: dict[str, Any]


def due_hooks(db: Session, *, now: datetime, but: Collection[str]) -> list[tuple[str, int]]:
    """Webhooks that something is due for, each with its failures in a row."""
    due = exists().where(
        col(WebhookDelivery.webhook_id) == col(Webhook.id),
        col(WebhookDelivery.state) == DeliveryState.PENDING,
        col(WebhookDelivery.next_at) <= now,
    )
    query = select(Webhook.id, Webhook.failures).where(_is_awake(now), due)
    rows = db.exec(query.where(col(Webhook.id).not_in(sorted(but))).limit(HOOKS_MAX)).all()
    return [(webhook_id, failures) for webhook_id, failures in rows]


def is_anything_pending(db: Session) -> bool:
    """Whether something will be due for a webhook that is enabled."""
    waits = exists().where(
        col(WebhookDelivery.webhook_id) == col(Webhook.id),
        col(WebhookDelivery.state) == DeliveryState.PENDING,
    )
    query = select(Webhook.id).where(col(Webhook.is_enabled).is_(True), waits)
    return db.exec(query.limit(1)).first() is not None


def _is_awake(now: datetime) -> Any:
    rested = or_(col(Webhook.rest_until).is_(None), col(Webhook.rest_until) <= now)
    return and_(col(Webhook.is_enabled).is_(True), rested)


def take_back(db: Session, instance_id: str, *, now: datetime) -> None:
    """Let what this very instance was sending when it died be sent again now: nobody else does."""
    attempts = col(WebhookDelivery.attempts)
    db.execute(
        update(WebhookDelivery)
        .where(
            col(WebhookDelivery.state) == DeliveryState.PENDING,
            col(WebhookDelivery.lease_instance) == instance_id,
        )
        .values(
            next_at=now, lease=None, lease_instance=None, attempts=case((attempts > 0, attempts - 1), else_=0)
        )
        .execution_options(synchronize_session=False)
    )


def take(
    db: Session, database: Database, webhook_id: str, *, source: str, instance_id: str = ""
) -> Taken | None:
    """Take the delivery of a webhook that is due for longest."""
    now = database.now(db)
    awake = select(Webhook).where(Webhook.id == webhook_id, _is_awake(now))
    hook = db.exec(awake.with_for_update(key_share=True)).first()
    if hook is None:
        return None
    row = next((row for row in _due(db, webhook_id, now) if _is_of(db, hook, row, now)), None)
    if row is None:
        return None
    row.attempts += row.lease is None  # else its sender has died: this goes on in the place of that attempt
    row.lease, row.lease_instance, row.next_at = new_id("lea"), instance_id, now + LEASE
    row.last_at = now
    db.add(row)
    db.flush()
    event = db.get_one(WebhookEvent, row.event_id)
    return Taken(row.id, row.lease, hook, cloud_event(event, source, instant_text(event.at)))


def _due(db: Session, webhook_id: str, now: datetime) -> Iterator[WebhookDelivery]:
    """What is due, one row after the other, each locked."""
    query = (
        select(WebhookDelivery)
        .where(
            WebhookDelivery.webhook_id == webhook_id,
            WebhookDelivery.state == DeliveryState.PENDING,
            col(WebhookDelivery.next_at) <= now,
        )
        .order_by(col(WebhookDelivery.next_at), col(WebhookDelivery.id))
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    for _ in range(PASSED_OVER_MAX):
        row = db.exec(query).first()
        if row is None:
            return
        yield row


def _is_of(db: Session, hook: Webhook, row: WebhookDelivery, now: datetime) -> bool:
    """Whether a webhook may still have a delivery; else it is given up.

    It was narrowed to other stores since: whoever may change it now must not get events of the former ones. A
    store that lost its label or is gone since takes nothing away: labels are for unlimited tokens alone.
    """
    if hook.labels and hook.updated_at <= row.created_at:
        return True
    store = None if row.store is None else db.get(Store, row.store)
    labels = {} if store is None else store.labels
    if row.type == Fact.PING or covers(hook.stores, hook.labels, row.store, labels):
        return True
    row.last_error = "its store is none of the webhook's any more"
    _end(row, DeliveryState.GIVEN_UP, now)
    hook.given_up += 1
    db.add(row)
    db.add(hook)
    db.flush()
    return False


def settle(db: Session, database: Database, taken: Taken, outcome: Outcome) -> bool:
    """Note how an attempt ended; False where the lease has gone to somebody else, or the delivery is gone."""
    hook = db.get(Webhook, taken.hook.id, with_for_update={"key_share": True}, populate_existing=True)
    row = db.get(WebhookDelivery, taken.id, with_for_update=True, populate_existing=True)
    if hook is None or row is None or row.lease != taken.lease:
        return False
    now = database.now(db)
    row.lease, row.lease_instance = None, None
    row.last_status, row.last_error = outcome.status, outcome.error
    if outcome.is_delivered:
        _end(row, DeliveryState.DELIVERED, now)
        hook.delivered += 1
        hook.failures, hook.rest_until = 0, None
    else:
        _note_failure(hook, row, outcome, now)
        if outcome.status == GONE and hook.is_enabled:
            db.add(_disabled(hook, now))
    db.add(row)
    db.add(hook)
    db.flush()
    return True


def _note_failure(hook: Webhook, row: WebhookDelivery, outcome: Outcome, now: datetime) -> None:
    hook.failed += 1
    hook.failures += 1
    rest_s = min(REST_MAX_S, REST_FIRST_S * 2.0 ** min(hook.failures - 1, 20))
    asked_s = min(outcome.retry_after_s or 0.0, RETRY_AFTER_MAX_S)
    hook.rest_until = now + timedelta(seconds=max(rest_s, asked_s))
    again_at = now + timedelta(seconds=max(pause_s(row.attempts), asked_s))
    row.next_at = min(again_at, row.give_up_at)  # the last attempt is at the end of the time, not before it
    if now >= row.give_up_at:
        _end(row, DeliveryState.GIVEN_UP, now)
        hook.given_up += 1


def _disabled(hook: Webhook, now: datetime) -> AuditEvent:
    """Call a receiver no more that has said it is gone; returns the audit row of that."""
    hook.is_enabled, hook.disabled_because = False, GONE_BECAUSE
    hook.version += 1
    hook.updated_at = now
    return audited(
        Action.WEBHOOK_CHANGE,
        ("webhook", hook.id),
        at=now,
        actor=ACTOR,
        store=store_of(hook),
        detail={"is_enabled": False, "because": GONE_BECAUSE},
    )


def _end(row: WebhookDelivery, state: DeliveryState, now: datetime) -> None:
    row.state, row.next_at, row.ended_at = state, None, now
    row.lease, row.lease_instance = None, None


def pause_s(attempts: int) -> float:
    """Seconds before the next attempt after so many; a fifth more or less: receivers are not stormed."""
    pause = PAUSES_S[min(max(attempts, 1), len(PAUSES_S)) - 1]
    spread = 1.0 + JITTER * (2.0 * random.random() - 1.0)  # noqa: S311 -- a jitter is no secret
    return min(pause * spread, PAUSES_S[-1])
