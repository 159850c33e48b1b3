"""Events are written here, in the transaction of their fact, for the hooks that want them then.

Rules:
- nothing is written where no hook wants the event; what is written leaves at least once;
- a hook that is changed or removed at the same moment neither fails the fact nor makes it wait;
- when a delivery is due, and given up, goes by the metadata's clock, as those who send it do, whatever the
  clock of the instance that tells shows;
- the commit rings this process's deliverer; those of other processes look by themselves.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from app.db import RINGS
from app.kit.ids import new_id
from app.outbox.facts import Fact
from app.outbox.rows import Webhook, WebhookDelivery, WebhookEvent, WebhookExpectation
from app.stores.rows import Store

GIVE_UP_AFTER: Final = timedelta(days=5)
"""How long a delivery is tried, from its event or its replay on."""


def tell(
    db: Session,
    fact: Fact,
    *,
    store: str | None,
    subject: str,
    data: Mapping[str, Any],
    now: datetime,
    only: Collection[str] | None = None,
    once: str | None = None,
) -> str | None:
    """Write an event for every hook that wants it; returns its id, or None where nobody does.

    Args:
        subject: what it is about, as a path below /v1: `jobs/job_...`.
        now: when it happened, as the event shows it.
        only: hooks that are asked, whatever else they want.
        once: names the fact: a second event of it is not written.
    """
    hooks = _wanting(db, fact, store) if only is None else sorted(only)
    if not hooks:
        return None
    event_id = new_id("evt")
    if not _insert(db, event_id, fact, store=store, subject=subject, data=data, now=now, once=once):
        return None
    due_at = _now(db, now)
    for webhook_id in hooks:
        db.add(delivery_of(webhook_id, event_id, fact, store=store, now=due_at))
    db.flush()
    db.info[RINGS] = True
    return event_id


def is_to_be_told(db: Session, fact: Fact, *, store: str | None, once: str) -> bool:
    """Whether a hook wants an event of a store, and the fact of this name was not told yet."""
    if not _wanting(db, fact, store):
        return False
    return db.exec(select(WebhookEvent.id).where(WebhookEvent.once == once)).first() is None


def delivery_of(
    webhook_id: str, event_id: str, fact: Fact, *, store: str | None, now: datetime
) -> WebhookDelivery:
    """A delivery that is due now."""
    return WebhookDelivery(
        id=new_id("dlv"),
        webhook_id=webhook_id,
        event_id=event_id,
        type=fact,
        store=store,
        created_at=now,
        next_at=now,
        give_up_at=now + GIVE_UP_AFTER,
    )


def forget_name(db: Session, once: str) -> None:
    """Let a fact of this name be told again: the one that was named so is settled."""
    db.execute(
        update(WebhookEvent)
        .where(col(WebhookEvent.once) == once)
        .values(once=None)
        .execution_options(synchronize_session=False)
    )


def _now(db: Session, now: datetime) -> datetime:
    """By the clock that senders go by; SQLite has none but that of its one machine."""
    if db.get_bind().dialect.name != "postgresql":
        return now
    value: datetime = db.execute(text("select clock_timestamp()")).scalar_one()
    return value.astimezone(UTC)


def note_success(db: Session, *, store: str, kind: str, now: datetime) -> None:
    """A job of this kind has succeeded: whoever waits for that counts from now on."""
    rows = db.exec(
        select(WebhookExpectation)
        .where(WebhookExpectation.store == store, WebhookExpectation.kind == kind)
        .order_by(col(WebhookExpectation.webhook_id))  # one order for all who lock several
        .with_for_update()
    ).all()
    for row in rows:
        row.last_success_at, row.due_at = now, now + row.within
        db.add(row)


def _wanting(db: Session, fact: Fact, store: str | None) -> list[str]:
    """The enabled hooks that want an event of a store."""
    query = select(Webhook.id, col(Webhook.events), col(Webhook.stores), col(Webhook.labels))
    hooks = db.exec(query.where(col(Webhook.is_enabled).is_(True)).order_by(Webhook.id)).all()
    wanting = [each for each in hooks if fact in each[1]]
    if not wanting:
        return []
    row = None if store is None else db.get(Store, store)
    store_labels = {} if row is None else row.labels
    return [
        webhook_id for webhook_id, _, stores, labels in wanting if covers(stores, labels, store, store_labels)
    ]


def hooks_without_a_time(db: Session, store: str | None) -> list[str]:
    """The enabled hooks that want long waits of a store's jobs, and leave to these what is long."""
    named = col(Webhook.waits_longer_than).is_(None)
    found = set(db.exec(select(Webhook.id).where(named, col(Webhook.is_enabled).is_(True))).all())
    return [each for each in _wanting(db, Fact.JOB_WAITS_LONG, store) if each in found]


def covers(
    stores: Collection[str] | None,
    labels: Mapping[str, str],
    store: str | None,
    store_labels: Mapping[str, str],
) -> bool:
    """Whether a hook of these stores and labels gets the events of a store."""
    if stores is None and not labels:
        return True
    if store is None:
        return False
    has_labels = bool(labels) and all(store_labels.get(name) == value for name, value in labels.items())
    return store in (stores or ()) or has_labels


def _insert(
    db: Session,
    event_id: str,
    fact: Fact,
    *,
    store: str | None,
    subject: str,
    data: Mapping[str, Any],
    now: datetime,
    once: str | None,
) -> bool:
    """Whether this event is the first of its fact."""
    insert = sqlite.insert if db.get_bind().dialect.name == "sqlite" else postgresql.insert
    values = {"id": event_id, "type": str(fact), "at": now, "store": store, "subject": subject}
    row = insert(WebhookEvent).values(**values, data=dict(data), once=once)
    written = db.execute(row.on_conflict_do_nothing(index_elements=["once"]).returning(col(WebhookEvent.id)))
    return written.first() is not None
