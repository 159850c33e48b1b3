"""The end of deliveries: given up when their time is over, forgotten when their retention is.

Rules:
- a delivery's last attempt comes at the end of its time, or once its webhook has rested: whoever makes it
  ends it (leases.settle). Here ends what nobody will try any more, and what nobody has tried for A_CHANCE
  though its webhook was awake;
- however often a webhook rests, nothing stays for longer than LONGEST after its time.
"""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, exists, or_
from sqlmodel import Session, col, select

from app.outbox.rows import DeliveryState, Webhook, WebhookDelivery, WebhookEvent

ROWS_PER_PASS: Final = 1_000
A_CHANCE: Final = timedelta(minutes=10)
"""For the last attempt, once the webhook is awake."""
LONGEST: Final = timedelta(days=1)
"""As a receiver's Retry-After at most."""


def give_up(db: Session, *, now: datetime) -> int:
    """End what was tried for long enough, also of webhooks that are disabled or gone."""
    is_over = (
        col(WebhookDelivery.state) == DeliveryState.PENDING,
        col(WebhookDelivery.give_up_at) <= now,
        col(WebhookDelivery.lease).is_(None) | (col(WebhookDelivery.next_at) <= now),
        or_(col(WebhookDelivery.give_up_at) <= now - LONGEST, ~_may_be_tried(now)),
    )
    found = db.exec(
        select(WebhookDelivery.id, WebhookDelivery.webhook_id)
        .where(*is_over)
        .order_by(col(WebhookDelivery.id))
        .limit(ROWS_PER_PASS)
    ).all()
    if not found:
        return 0
    hooks = _locked(db, {webhook_id for _, webhook_id in found})
    rows = db.exec(
        select(WebhookDelivery)
        .where(col(WebhookDelivery.id).in_([delivery_id for delivery_id, _ in found]), *is_over)
        .order_by(col(WebhookDelivery.id))
        .with_for_update(skip_locked=True)
        .execution_options(populate_existing=True)
    ).all()
    for row in rows:
        row.state, row.next_at, row.ended_at = DeliveryState.GIVEN_UP, None, now
        row.lease, row.lease_instance = None, None
        db.add(row)
        if (hook := hooks.get(row.webhook_id)) is not None:
            hook.given_up += 1
            db.add(hook)
    db.flush()
    return len(rows)


def _may_be_tried(now: datetime) -> ColumnElement[bool]:
    """Whether the last attempt of a delivery has not had its chance."""
    since = now - A_CHANCE
    had_none = or_(col(Webhook.rest_until) > since, col(WebhookDelivery.give_up_at) > since)
    of_hook = col(Webhook.id) == col(WebhookDelivery.webhook_id)
    return exists().where(and_(of_hook, col(Webhook.is_enabled).is_(True), had_none))


def _locked(db: Session, webhook_ids: set[str]) -> dict[str, Webhook]:
    """Those that are there still: locked before their deliveries, in one order, as by all who lock both."""
    query = select(Webhook).where(col(Webhook.id).in_(sorted(webhook_ids))).order_by(col(Webhook.id))
    locked = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    return {hook.id: hook for hook in db.exec(locked).all()}


def forget_deliveries(db: Session, *, before: datetime) -> int:
    """Forget a piece of what has ended, then events that nothing is left of; how many deliveries went."""
    has_ended = col(WebhookDelivery.ended_at) < before
    found = db.exec(select(WebhookDelivery.id).where(has_ended).limit(ROWS_PER_PASS)).all()
    # Asked again as each row is locked: one that is replayed at this moment has not ended any more.
    gone = db.execute(
        delete(WebhookDelivery)
        .where(col(WebhookDelivery.id).in_(found), has_ended)
        .returning(col(WebhookDelivery.id))
        .execution_options(synchronize_session=False)
    ).all()
    left = exists().where(col(WebhookDelivery.event_id) == col(WebhookEvent.id))
    events = db.exec(
        select(WebhookEvent.id).where(col(WebhookEvent.at) < before, ~left).limit(ROWS_PER_PASS)
    ).all()
    db.execute(delete(WebhookEvent).where(col(WebhookEvent.id).in_(events)))
    return len(gone)
