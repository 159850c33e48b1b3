"""Rules of webhooks: who may have which, where they may lead, and what signs them.

Rules:
- a token that is limited to stores sees and makes webhooks of these stores alone, and of their deliveries
  only those of its stores, whatever the webhook was for before;
- https, or http to this machine itself by an admin's word; the address is judged at each connection;
- a webhook that failed may be called again at once when it is changed.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sqlalchemy import ColumnElement, delete, func, true
from sqlmodel import Session, col, select

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import StoreForbidden, Unprocessable
from app.hooks.errors import TooManyWebhooks, WebhookNotFound, WebhookRefused
from app.hooks.models import Expectation, WebhookCreate, WebhookPatch, WebhookRead, WebhookRotate
from app.hooks.signing import new_key
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.conditional import require_match
from app.kit.ids import new_id
from app.kit.pagination import Page, read_page
from app.outbox.facts import Fact
from app.outbox.rows import Webhook, WebhookDelivery, WebhookExpectation
from app.outbox.writing import covers
from app.outgoing.hosts import place_of_url
from app.secrets.errors import SecretNotAllowed
from app.secrets.models import SCHEME
from app.secrets.rows import Secret
from app.settings import Settings
from app.stores.rows import Store
from app.stores.service import get_store
from app.stores.targets import check_root
from spark.targets.hosts import HostList, address_behind, is_local_name, may_connect, normal_name

WEBHOOKS_MAX: Final = 200
LIMITED_MAX: Final = 50
"""That a token which is limited to stores may see, before it makes another one."""
LOOPBACK: Final[HostList] = ("127.0.0.0/8", "::1/128")
PLAIN: Final = "http"


def hosts_of(url: str, settings: Settings, named: Sequence[HostList] = ()) -> tuple[HostList, ...]:
    """The lists of hosts that each must allow a connection to a receiver.

    Its own name is one: what it is looked up as is no address of this machine, unless it is named so.
    """
    host, port = place_of_url(url)
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    own: HostList = LOOPBACK if is_plain(url) else (shown,)
    lists = [own, tuple(settings.allowed_hosts), *named]
    return tuple(listed for listed in lists if listed)


def is_plain(url: str) -> bool:
    """Whether a receiver is called in clear text, however its scheme is written."""
    return urlsplit(url).scheme == PLAIN


def is_on_loopback(url: str) -> bool:
    """Whether a receiver is named as this machine itself."""
    host, _ = place_of_url(url)
    literal = _literal(host)
    return is_local_name(normal_name(host)) or (literal is not None and literal.is_loopback)


def store_of(row: Webhook) -> str | None:
    """The store that an audit row of a webhook names: the one where there is but one."""
    return row.stores[0] if row.stores is not None and len(row.stores) == 1 and not row.labels else None


def check_receiver(row: Webhook, *, settings: Settings) -> None:
    """Refuse a receiver that may not be called.

    Raises: WebhookRefused; StoreUrlRefused: the file.
    """
    host, port = place_of_url(row.url)
    literal, ca_file = _literal(host), row.ca_file
    if is_plain(row.url) and not (is_on_loopback(row.url) and row.clear_text_on_loopback):
        detail = "http only to this machine's loopback, with clear_text_on_loopback; https everywhere else"
        raise WebhookRefused(detail, code="CLEAR_TEXT_REFUSED")
    if literal is not None and (literal.is_link_local or literal.is_unspecified or literal.is_multicast):
        raise WebhookRefused(f"{host} is an address of no receiver", code="HOST_NOT_ALLOWED")
    if settings.allowed_hosts and not may_connect([tuple(settings.allowed_hosts)], host, port):
        raise WebhookRefused(f"the host {host!r} is not among LETHE_ALLOWED_HOSTS", code="HOST_NOT_ALLOWED")
    if ca_file is not None:
        check_root(Path(ca_file), settings)


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return address_behind(ipaddress.ip_address(host))
    except ValueError:
        return None


def seen_by(caller: Caller, hook: Webhook) -> bool:
    """Whether a token may know of a webhook: it may touch all of its stores."""
    if caller.stores is None:
        return True
    return hook.stores is not None and not hook.labels and caller.stores.issuperset(hook.stores)


def get_hook(db: Session, webhook_id: str, caller: Caller, *, lock: bool = False) -> Webhook:
    """The row of a webhook.

    Raises: WebhookNotFound; StoreForbidden: it is not of the token's stores alone.
    """
    row = db.get(Webhook, webhook_id, with_for_update=lock)
    if row is None:
        raise WebhookNotFound("there is no such webhook")
    if not seen_by(caller, row):
        raise StoreForbidden("this token is limited to other stores")
    return row


def list_hooks(db: Session, caller: Caller, *, page_size: int, page_token: str) -> Page[WebhookRead]:
    """Webhooks by id. There are few: what a token may see of them is told in Python."""
    seen = _seen_ids(db, caller)
    return read_page(
        db,
        select(Webhook).where(col(Webhook.id).in_(seen)),
        col(Webhook.id),
        ascending=True,
        filters={"list": "webhooks", "visible": caller.visible_stores()},
        page_size=page_size,
        page_token=page_token,
        item=lambda row: read_hook(db, row),
    )


def _seen_ids(db: Session, caller: Caller) -> list[str]:
    return [row.id for row in db.exec(select(Webhook).limit(WEBHOOKS_MAX)).all() if seen_by(caller, row)]


def read_hook(db: Session, row: Webhook) -> WebhookRead:
    """As clients see it."""
    return WebhookRead.of(row, expectations_of(db, row.id))


def expectations_of(db: Session, webhook_id: str) -> list[WebhookExpectation]:
    """What a webhook expects, by store and kind."""
    query = select(WebhookExpectation).where(WebhookExpectation.webhook_id == webhook_id)
    return list(db.exec(query.order_by(col(WebhookExpectation.store), col(WebhookExpectation.kind))).all())


def create_hook(
    db: Session, request: WebhookCreate, caller: Caller, *, settings: Settings, now: datetime
) -> tuple[Webhook, str | None]:
    """Make a webhook; with the signing secret that was made for it.

    Raises: WebhookRefused, StoreForbidden, SecretNotAllowed, TooManyWebhooks, StoreNotFound, Unprocessable.
    """
    if db.exec(select(func.count()).select_from(Webhook)).one() >= WEBHOOKS_MAX:
        raise TooManyWebhooks(f"there are {WEBHOOKS_MAX} webhooks already")
    if caller.stores is not None and len(_seen_ids(db, caller)) >= LIMITED_MAX:
        raise TooManyWebhooks(
            f"there are {LIMITED_MAX} webhooks of this token's stores already: remove one, or ask an admin"
        )
    fields = request.model_dump(exclude={"expected", "enabled"})
    fields["events"] = sorted({str(each) for each in request.events})
    key = new_key() if request.secret is None else None
    row = Webhook(
        **fields, id=new_id("whk"), own_key=key, is_enabled=request.enabled, created_at=now, updated_at=now
    )
    _check(db, row, request.expected, caller, settings=settings)
    _permit_secret(db, row, row.secret, caller)
    db.add(row)
    db.flush()
    _expect(db, row, request.expected, now=now)
    return row, key


def change_hook(
    db: Session,
    row: Webhook,
    patch: WebhookPatch,
    caller: Caller,
    *,
    if_match: str | None,
    settings: Settings,
    now: datetime,
) -> Webhook:
    """Change a webhook; the row is locked. What is under way goes by it from its next attempt on.

    Raises: EtagMismatch, PreconditionMissing; as `create_hook`.
    """
    require_match(if_match, row.version)
    changes = patch.model_dump(exclude_unset=True, exclude={"expected", "enabled"})
    if "events" in changes:
        changes["events"] = sorted({str(each) for each in changes["events"]})
    row.sqlmodel_update(changes)
    _check_change(db, row, patch, caller, settings=settings, now=now)
    if patch.enabled is not None:
        row.is_enabled, row.disabled_because = patch.enabled, None
    row.failures, row.rest_until = 0, None
    return _saved(db, row, now=now)


def rotate_secret(
    db: Session, row: Webhook, request: WebhookRotate, caller: Caller, *, now: datetime
) -> tuple[Webhook, str | None]:
    """Sign with another secret from now on, and for a while with the former one too. The row is locked.

    Raises: SecretNotAllowed.
    """
    _permit_secret(db, row, request.secret, caller)
    row.former_secret, row.former_key = row.secret, row.own_key
    row.former_until = now + request.overlap
    row.secret = request.secret
    row.own_key = new_key() if request.secret is None else None
    return _saved(db, row, now=now), row.own_key


def remove_hook(db: Session, row: Webhook, *, if_match: str | None) -> None:
    """Forget a webhook and all that was to be sent to it. The row is locked.

    Raises: EtagMismatch, PreconditionMissing.
    """
    require_match(if_match, row.version)
    db.execute(delete(WebhookDelivery).where(col(WebhookDelivery.webhook_id) == row.id))
    db.execute(delete(WebhookExpectation).where(col(WebhookExpectation.webhook_id) == row.id))
    db.delete(row)
    db.flush()


def hooks_naming(db: Session, reference: str, *, now: datetime) -> list[str]:
    """The webhooks that a secret signs, or has signed and may still."""
    may_still = (col(Webhook.former_secret) == reference) & (col(Webhook.former_until) > now)
    named = (col(Webhook.secret) == reference) | may_still
    return [f"the webhook {row}" for row in db.exec(select(Webhook.id).where(named).order_by(Webhook.id))]


def deliveries_seen_by(caller: Caller) -> ColumnElement[bool]:
    """Narrows a query to the deliveries that a token may know of."""
    visible = caller.visible_stores()
    return true() if visible is None else col(WebhookDelivery.store).in_(visible)


def _saved(db: Session, row: Webhook, *, now: datetime) -> Webhook:
    row.version += 1
    row.updated_at = now
    db.add(row)
    db.flush()
    return row


def _check(
    db: Session, row: Webhook, expected: Sequence[Expectation], caller: Caller, *, settings: Settings
) -> None:
    """Refuse a new webhook that may not be."""
    _check_place(row, caller)
    check_receiver(row, settings=settings)
    _check_events(row, has_expected=bool(expected))
    _check_expected(db, row, expected, caller)


def _check_change(
    db: Session, row: Webhook, patch: WebhookPatch, caller: Caller, *, settings: Settings, now: datetime
) -> None:
    """Refuse what a change brings, and that alone: whatever is wrong since, it can be disabled."""
    named, is_enabled = patch.model_fields_set, patch.enabled is True
    _check_place(row, caller)
    if is_enabled or named & {"url", "ca_file", "clear_text_on_loopback"}:
        check_receiver(row, settings=settings)
    if is_enabled or named & {"url", "stores", "labels"}:
        _permit_secret(db, row, row.secret, caller)
    kept = expectations_of(db, row.id)
    if named & {"events", "waits_longer_than", "expected"}:
        has_expected = bool(kept) if patch.expected is None else bool(patch.expected)
        _check_events(row, has_expected=has_expected)
    if named & {"stores", "labels", "expected"}:
        expected = patch.expected
        if expected is None:
            expected = [
                Expectation.model_construct(store=each.store, kind=each.kind, within=each.within)
                for each in kept
                if db.get(Store, each.store) is not None  # who is gone is expected no more
            ]
        _check_expected(db, row, expected, caller)
        _expect(db, row, expected, now=now)


def _check_place(row: Webhook, caller: Caller) -> None:
    if is_on_loopback(row.url):
        caller.require(Scope.ADMIN)
    if not seen_by(caller, row):
        raise StoreForbidden("this token is limited to stores: name some of them in `stores`, and no labels")


def _check_events(row: Webhook, *, has_expected: bool) -> None:
    if has_expected != (Fact.SUCCESS_OVERDUE in row.events):
        detail = f"{Fact.SUCCESS_OVERDUE} in `events` and `expected` go together"
        raise Unprocessable(detail, code="EVENTS_INCOMPLETE")
    if row.waits_longer_than is not None and Fact.JOB_WAITS_LONG not in row.events:
        detail = f"`waits_longer_than` is for {Fact.JOB_WAITS_LONG} in `events`"
        raise Unprocessable(detail, code="EVENTS_INCOMPLETE")


def _check_expected(db: Session, row: Webhook, expected: Sequence[Expectation], caller: Caller) -> None:
    for each in expected:
        caller.require_store(each.store)
        if not covers(row.stores, row.labels, each.store, get_store(db, each.store).labels):
            detail = f"`expected` names {each.store}, which is none of the webhook's stores"
            raise Unprocessable(detail, code="EXPECTED_ELSEWHERE")
    if len({(each.store, each.kind) for each in expected}) != len(expected):
        raise Unprocessable("`expected` names a store and kind twice", code="EXPECTED_TWICE")


def _permit_secret(db: Session, row: Webhook, reference: str | None, caller: Caller) -> None:
    """Refuse a named secret that is not for this receiver; a limited token's is one of each of its stores.

    Raises: SecretNotAllowed.
    """
    if reference is None:
        return
    name = reference.removeprefix(SCHEME)
    secret = db.get(Secret, name, with_for_update=True)
    host, port = place_of_url(row.url)
    is_named = secret is not None and (caller.stores is None or set(row.stores or ()) <= set(secret.stores))
    if secret is None or not is_named or not may_connect([tuple(secret.hosts)], host, port):
        raise SecretNotAllowed(
            f"{reference} is not registered for this webhook; an admin does that: lethe secret add {name} (or"
            f" update) --store STORE --host {host}:{port}"
        )


def _expect(db: Session, row: Webhook, expected: Sequence[Expectation], *, now: datetime) -> None:
    """Replace what a webhook expects; what stays keeps its time, what is new counts from its last success."""
    known = {(each.store, each.kind): each for each in expectations_of(db, row.id)}
    for each in expected:
        former = known.pop((each.store, each.kind), None)
        last = former.last_success_at if former is not None else last_success(db, each.store, each.kind)
        if former is None:
            former = _expectation(row.id, each)
        former.within, former.last_success_at = each.within, last
        former.due_at = (last or now) + each.within
        db.add(former)
    for gone in known.values():
        db.delete(gone)
    db.flush()


def _expectation(webhook_id: str, wanted: Expectation) -> WebhookExpectation:
    return WebhookExpectation(
        webhook_id=webhook_id, store=wanted.store, kind=wanted.kind, within=wanted.within
    )


def last_success(db: Session, store: str, kind: str) -> datetime | None:
    """When a job of a kind last succeeded at a store, of those that are remembered."""
    query = select(func.max(Job.finished_at)).where(
        Job.store == store, Job.state == JobState.SUCCEEDED, Job.kind == kind
    )
    return db.exec(query).one()
