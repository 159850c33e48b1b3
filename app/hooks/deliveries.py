"""Deliveries as operators handle them: listed, shown, sent again, and tried by a ping."""

from datetime import datetime
from typing import Final

from sqlalchemy import select as select_columns
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.auth.service import Caller
from app.db import RINGS
from app.hooks.errors import DeliveryNotFound, WebhookDisabled
from app.hooks.models import DeliveryDetail, DeliveryRead, ReplayRead, ReplayRequest, cloud_event
from app.hooks.service import deliveries_seen_by
from app.kit.instants import instant_text
from app.kit.pagination import Page, read_page
from app.outbox.facts import Fact
from app.outbox.rows import DeliveryState, Webhook, WebhookDelivery, WebhookEvent
from app.outbox.writing import GIVE_UP_AFTER, tell

REPLAYED_MAX: Final = 10_000
"""Of one request."""
ENDED: Final = (DeliveryState.DELIVERED, DeliveryState.GIVEN_UP)


def list_deliveries(
    db: Session,
    webhook_id: str,
    caller: Caller,
    *,
    state: DeliveryState | None,
    page_size: int,
    page_token: str,
) -> Page[DeliveryRead]:
    """Deliveries of a webhook, the newest first."""
    query = select(WebhookDelivery).where(
        WebhookDelivery.webhook_id == webhook_id, deliveries_seen_by(caller)
    )
    if state is not None:
        query = query.where(WebhookDelivery.state == state)
    filters = {"list": "deliveries", "webhook": webhook_id, "state": state, "of": caller.visible_stores()}
    return read_page(
        db,
        query,
        col(WebhookDelivery.id),
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=DeliveryRead.of,
    )


def get_delivery(
    db: Session, webhook_id: str, delivery_id: str, caller: Caller, *, lock: bool = False
) -> WebhookDelivery:
    """The row of a delivery.

    Raises: DeliveryNotFound; StoreForbidden: its event is of another store than the token's.
    """
    row = db.get(WebhookDelivery, delivery_id, with_for_update=lock)
    if row is None or row.webhook_id != webhook_id:
        raise DeliveryNotFound("there is no such delivery of this webhook")
    caller.require_store(row.store)
    return row


def read_detail(db: Session, row: WebhookDelivery, *, source: str) -> DeliveryDetail:
    """A delivery with the body that is sent."""
    event = db.get_one(WebhookEvent, row.event_id)
    shown = cloud_event(event, source, instant_text(event.at))
    return DeliveryDetail(**DeliveryRead.of(row).model_dump(), event=shown)


def replay_one(db: Session, hook: Webhook, row: WebhookDelivery, *, now: datetime) -> WebhookDelivery:
    """Let a delivery be sent again now, whatever has become of it; one that is being sent stays as it is.

    Both rows are locked. Raises: WebhookDisabled.
    """
    _require_enabled(hook)
    _end_rest(db, hook)
    if row.lease is None:
        row.state, row.next_at, row.ended_at = DeliveryState.PENDING, now, None
        row.attempts, row.give_up_at = 0, now + GIVE_UP_AFTER
        db.add(row)
        db.flush()
    db.info[RINGS] = True
    return row


def replay_since(
    db: Session, hook: Webhook, request: ReplayRequest, caller: Caller, *, now: datetime
) -> ReplayRead:
    """Let all deliveries since an instant that have ended be sent again, the oldest first.

    The webhook's row is locked. Raises: WebhookDisabled.
    """
    _require_enabled(hook)
    _end_rest(db, hook)
    states = ENDED if request.state is None else (DeliveryState(request.state),)
    chosen = (
        select_columns(col(WebhookDelivery.id))
        .where(
            col(WebhookDelivery.webhook_id) == hook.id,
            col(WebhookDelivery.created_at) >= request.since,
            col(WebhookDelivery.state).in_(states),
            deliveries_seen_by(caller),
        )
        .order_by(col(WebhookDelivery.id))
        .limit(REPLAYED_MAX + 1)
    )
    ids = db.scalars(chosen).all()
    again = {"state": DeliveryState.PENDING, "next_at": now, "ended_at": None, "attempts": 0}
    for begin in range(0, min(len(ids), REPLAYED_MAX), 500):
        part = ids[begin : min(begin + 500, REPLAYED_MAX)]
        db.execute(
            update(WebhookDelivery)
            .where(col(WebhookDelivery.id).in_(part))
            .values(**again, give_up_at=now + GIVE_UP_AFTER)
            .execution_options(synchronize_session=False)
        )
    db.info[RINGS] = True
    return ReplayRead(replayed=min(len(ids), REPLAYED_MAX), more=len(ids) > REPLAYED_MAX)


def ping(db: Session, hook: Webhook, caller: Caller, *, now: datetime) -> WebhookDelivery:
    """Send a webhook an event that tells nothing. Its row is locked.

    Raises: WebhookDisabled.
    """
    _require_enabled(hook)
    _end_rest(db, hook)
    # Of one of its stores, so that whoever is limited to them sees what becomes of it.
    store = min(hook.stores) if hook.stores else None
    data = {"webhook_id": hook.id, "token_id": caller.token_id}
    subject = f"webhooks/{hook.id}"
    event_id = tell(db, Fact.PING, store=store, subject=subject, data=data, now=now, only=[hook.id])
    return db.exec(select(WebhookDelivery).where(WebhookDelivery.event_id == event_id)).one()


def _require_enabled(hook: Webhook) -> None:
    if not hook.is_enabled:
        raise WebhookDisabled("the webhook is disabled: PATCH it with `enabled: true` first")


def _end_rest(db: Session, hook: Webhook) -> None:
    """Somebody says that the receiver is there again."""
    hook.failures, hook.rest_until = 0, None
    db.add(hook)
    db.flush()
