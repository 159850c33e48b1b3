"""The end of deliveries: given up when their time is over, forgotten when their retention is."""

from datetime import datetime
from typing import Final

from sqlalchemy import delete, exists, update
from sqlmodel import Session, col, select

from app.outbox.rows import DeliveryState, Webhook, WebhookDelivery, WebhookEvent

ROWS_PER_PASS: Final = 1_000


def give_up(db: Session, *, now: datetime) -> int:
    """End what was tried for long enough, also of webhooks that are disabled or gone."""
    rows = db.exec(
        select(WebhookDelivery)
        .where(
            WebhookDelivery.state == DeliveryState.PENDING,
            col(WebhookDelivery.give_up_at) <= now,
            col(WebhookDelivery.lease).is_(None) | (col(WebhookDelivery.next_at) <= now),
        )
        .order_by(col(WebhookDelivery.id))
        .limit(ROWS_PER_PASS)
        .with_for_update(skip_locked=True)
    ).all()
    of_hook: dict[str, int] = {}
    for row in rows:
        row.state, row.next_at, row.ended_at = DeliveryState.GIVEN_UP, None, now
        row.lease, row.lease_instance = None, None
        of_hook[row.webhook_id] = of_hook.get(row.webhook_id, 0) + 1
        db.add(row)
    db.flush()
    for webhook_id, count in sorted(of_hook.items()):
        mine = col(Webhook.id) == webhook_id
        db.execute(update(Webhook).where(mine).values(given_up=Webhook.given_up + count))
    return len(rows)


def forget_deliveries(db: Session, *, before: datetime) -> int:
    """Forget a piece of what has ended, then events that nothing is left of; how many deliveries went."""
    gone = db.exec(
        select(WebhookDelivery.id).where(col(WebhookDelivery.ended_at) < before).limit(ROWS_PER_PASS)
    ).all()
    db.execute(delete(WebhookDelivery).where(col(WebhookDelivery.id).in_(gone)))
    left = exists().where(col(WebhookDelivery.event_id) == col(WebhookEvent.id))
    events = db.exec(
        select(WebhookEvent.id).where(col(WebhookEvent.at) < before, ~left).limit(ROWS_PER_PASS)
    ).all()
    db.execute(delete(WebhookEvent).where(col(WebhookEvent.id).in_(events)))
    return len(gone)
