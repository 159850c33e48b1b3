"""`/v1/webhooks/{id}/deliveries`: what has left, what waits, what was given up; sent again and tried."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import BaseModel
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import DatabaseDep, SettingsDep, database_of
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.service import Caller
from app.hooks.api import ONE, Reader, WebhookId, Writer
from app.hooks.deliveries import (
    get_delivery,
    list_deliveries,
    ping,
    read_detail,
    replay_one,
    replay_since,
)
from app.hooks.models import DeliveryDetail, DeliveryRead, ReplayRead, ReplayRequest
from app.hooks.service import get_hook, store_of
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.outbox.rows import DeliveryState, Webhook, WebhookDelivery

router = new_router(tags=["webhooks"])
DeliveryId = Annotated[str, Path(pattern=r"^dlv_[0-9a-z]{26}$")]
StateFilter = Annotated[DeliveryState | None, Query(description="Only those that stand so.")]


@router.get(
    f"{ONE}/deliveries",
    response_model=Page[DeliveryRead],
    summary="List the deliveries of a webhook",
    operation_id="list_webhook_deliveries",
    responses=problems(404),
)
def get_deliveries(
    webhook_id: WebhookId,
    caller: Reader,
    database: DatabaseDep,
    state: StateFilter = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[DeliveryRead]:
    """The newest first. They stay for `lethe.retention.webhooks` once they have ended."""
    with database.reading() as db:
        get_hook(db, webhook_id, caller)
        return list_deliveries(
            db, webhook_id, caller, state=state, page_size=page_size, page_token=page_token
        )


@router.get(
    f"{ONE}/deliveries/{{delivery_id}}",
    response_model=DeliveryDetail,
    summary="Get a delivery with its event",
    operation_id="get_webhook_delivery",
    responses=problems(404),
)
def get_one_delivery(
    webhook_id: WebhookId,
    delivery_id: DeliveryId,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
) -> DeliveryDetail:
    """How its last attempt ended, and the body that is sent."""
    with database.reading() as db:
        get_hook(db, webhook_id, caller)
        row = get_delivery(db, webhook_id, delivery_id, caller)
        return read_detail(db, row, source=settings.webhook_source)


@router.post(
    f"{ONE}/deliveries/{{delivery_id}}:replay",
    response_model=DeliveryRead,
    summary="Send a delivery again",
    operation_id="replay_webhook_delivery",
    responses=problems(404, 409),
)
def post_replay_one(
    webhook_id: WebhookId,
    delivery_id: DeliveryId,
    request: Request,
    caller: Writer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """With the same ids as before: a receiver that has it may pass it over."""

    def replay(db: Session, hook: Webhook, now: datetime) -> Answer:
        row = get_delivery(db, webhook_id, delivery_id, caller, lock=True)
        return _of_delivery(hook, replay_one(db, hook, row, now=now))

    return _act(request, caller, webhook_id, Action.WEBHOOK_REPLAY, replay)


@router.post(
    f"{ONE}/deliveries:replay",
    response_model=ReplayRead,
    summary="Send all deliveries since an instant again",
    operation_id="replay_webhook_deliveries",
    responses=problems(404, 409),
)
def post_replay_since(
    webhook_id: WebhookId,
    body: ReplayRequest,
    request: Request,
    caller: Writer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Those that have ended, with the same ids as before; at most 10,000 by one request."""

    def replay(db: Session, hook: Webhook, now: datetime) -> Answer:
        found = replay_since(db, hook, body, caller, now=now)
        audit = {"since": body.since, "replayed": found.replayed}
        return Answer(body=found, store=store_of(hook), audit=audit)

    return _act(request, caller, webhook_id, Action.WEBHOOK_REPLAY, replay, body=body)


@router.post(
    f"{ONE}:test",
    response_model=DeliveryRead,
    summary="Send a webhook a ping",
    operation_id="ping_webhook",
    responses=problems(404, 409),
)
def post_test(
    webhook_id: WebhookId,
    request: Request,
    caller: Writer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """An event `lethe.webhook.ping`; what became of it is shown by its delivery."""

    def send_ping(db: Session, hook: Webhook, now: datetime) -> Answer:
        return _of_delivery(hook, ping(db, hook, caller, now=now))

    return _act(request, caller, webhook_id, Action.WEBHOOK_TEST, send_ping)


def _act(
    request: Request,
    caller: Caller,
    webhook_id: str,
    action: Action,
    act: Callable[[Session, Webhook, datetime], Answer],
    *,
    body: BaseModel | None = None,
) -> Response:
    """Do something about a webhook under its lock, at the time of the clock that senders go by."""
    database = database_of(request)

    def effect(db: Session) -> Answer:
        return act(db, get_hook(db, webhook_id, caller, lock=True), database.now(db))

    return mutate(request, caller, effect, action=action, subject=("webhook", webhook_id), body=body)


def _of_delivery(hook: Webhook, row: WebhookDelivery) -> Answer:
    store = row.store or store_of(hook)
    return Answer(body=DeliveryRead.of(row), store=store, audit={"delivery_id": row.id})
