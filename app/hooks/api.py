"""`/v1/webhooks`: who is told of what happens, and by which secret they know that it was us."""

from typing import Annotated

from fastapi import Depends, Path, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import Condition, DatabaseDep, SettingsDep, requires
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.hooks.models import WebhookCreate, WebhookCreated, WebhookPatch, WebhookRead, WebhookRotate
from app.hooks.service import (
    change_hook,
    create_hook,
    get_hook,
    list_hooks,
    read_hook,
    remove_hook,
    rotate_secret,
    store_of,
)
from app.kit.conditional import IfMatch, IfNoneMatch, conditional_answer, etag
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.outbox.rows import Webhook
from app.outgoing.hosts import place_of_url

router = new_router(tags=["webhooks"])
WebhookId = Annotated[str, Path(pattern=r"^whk_[0-9a-z]{26}$")]
_LOOPBACK = Condition(Scope.ADMIN, "the receiver is named as this machine itself")
Reader = Annotated[Caller, Depends(requires(Scope.WEBHOOKS_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.WEBHOOKS_WRITE))]
Placer = Annotated[Caller, Depends(requires(Scope.WEBHOOKS_WRITE, _LOOPBACK))]
ALL = "/v1/webhooks"
ONE = f"{ALL}/{{webhook_id}}"


def _answer(db: Session, row: Webhook, *, status: int = 200) -> Answer:
    # A receiver's URL is often a secret by itself: the audit names its host alone.
    facts = row.model_dump(include={"events", "stores", "labels", "is_enabled"}, warnings=False)
    facts["host"] = "{}:{}".format(*place_of_url(row.url))
    return Answer(
        body=read_hook(db, row),
        status=status,
        headers={"ETag": etag(row.version)},
        subject_id=row.id,
        store=store_of(row),
        audit=facts,
    )


def _with_key(db: Session, row: Webhook, key: str | None, *, status: int) -> Answer:
    answer = _answer(db, row, status=status)
    shown = read_hook(db, row).model_dump()
    headers = dict(answer.headers) | ({"Cache-Control": "no-store"} if key is not None else {})
    if status == 201:
        headers["Location"] = f"{ALL}/{row.id}"
    return Answer(
        body=WebhookCreated(**shown, signing_secret=key),
        replay_body=WebhookCreated(**shown, signing_secret=None),
        status=status,
        headers=headers,
        subject_id=row.id,
        store=answer.store,
        audit=answer.audit,
    )


@router.post(
    ALL,
    status_code=201,
    response_model=WebhookCreated,
    summary="Make a webhook",
    operation_id="create_webhook",
    responses=problems(404, 409),
)
def post_webhook(
    body: WebhookCreate,
    request: Request,
    caller: Placer,
    database: DatabaseDep,
    settings: SettingsDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Events that it wants are sent from now on, at least once each. Its signing secret is shown only now.

    A token that is limited to stores names some of them in `stores`.
    """

    def effect(db: Session) -> Answer:
        row, key = create_hook(db, body, caller, settings=settings, now=database.now(db))
        return _with_key(db, row, key, status=201)

    return mutate(request, caller, effect, action=Action.WEBHOOK_CREATE, subject=("webhook", ""), body=body)


@router.get(
    ALL,
    response_model=Page[WebhookRead],
    summary="List webhooks",
    operation_id="list_webhooks",
    responses=problems(),
)
def get_webhooks(
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[WebhookRead]:
    """By id. A token that is limited to stores sees those that are for its stores alone."""
    with database.reading() as db:
        return list_hooks(db, caller, page_size=page_size, page_token=page_token)


@router.get(
    ONE,
    response_model=WebhookRead,
    summary="Get a webhook",
    operation_id="get_webhook",
    responses=problems(404) | {304: {"description": "Still the version of If-None-Match"}},
)
def get_webhook(
    webhook_id: WebhookId, caller: Reader, database: DatabaseDep, if_none_match: IfNoneMatch = None
) -> Response:
    """Its counters move without its version. The ETag is what PATCH and DELETE want."""
    with database.reading() as db:
        row = get_hook(db, webhook_id, caller)
        shown = read_hook(db, row)
    return conditional_answer(shown, row.version, if_none_match)


@router.patch(
    ONE,
    response_model=WebhookRead,
    summary="Change a webhook",
    operation_id="change_webhook",
    responses=problems(404, 412, 428),
)
def patch_webhook(
    webhook_id: WebhookId,
    body: WebhookPatch,
    request: Request,
    caller: Placer,
    database: DatabaseDep,
    settings: SettingsDep,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """What is left out stays. A change ends a rest after failures; what waits is sent where it leads now."""

    def effect(db: Session) -> Answer:
        row = get_hook(db, webhook_id, caller, lock=True)
        changed = change_hook(
            db, row, body, caller, if_match=if_match, settings=settings, now=database.now(db)
        )
        return _answer(db, changed)

    subject = ("webhook", webhook_id)
    return mutate(request, caller, effect, action=Action.WEBHOOK_CHANGE, subject=subject, body=body)


@router.delete(
    ONE,
    status_code=204,
    response_class=Response,
    summary="Remove a webhook",
    operation_id="remove_webhook",
    responses=problems(404, 412, 428),
)
def delete_webhook(
    webhook_id: WebhookId,
    request: Request,
    caller: Writer,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """With all that was to be sent to it."""

    def effect(db: Session) -> Answer:
        row = get_hook(db, webhook_id, caller, lock=True)
        store = store_of(row)
        remove_hook(db, row, if_match=if_match)
        return Answer(status=204, store=store)

    subject = ("webhook", webhook_id)
    return mutate(request, caller, effect, action=Action.WEBHOOK_REMOVE, subject=subject)


@router.post(
    f"{ONE}:rotate",
    response_model=WebhookCreated,
    summary="Give a webhook another signing secret",
    operation_id="rotate_webhook_secret",
    responses=problems(404),
)
def post_rotate(
    webhook_id: WebhookId,
    body: WebhookRotate,
    request: Request,
    caller: Writer,
    database: DatabaseDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """For a while both sign: a receiver changes to the new one meanwhile. A new one is shown only now."""

    def effect(db: Session) -> Answer:
        row = get_hook(db, webhook_id, caller, lock=True)
        row, key = rotate_secret(db, row, body, caller, now=database.now(db))
        return _with_key(db, row, key, status=200)

    subject = ("webhook", webhook_id)
    return mutate(request, caller, effect, action=Action.WEBHOOK_ROTATE, subject=subject, body=body)
