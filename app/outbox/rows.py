"""Webhooks and their outbox as tables: who wants which events, what has happened, and what has left."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Column, ForeignKey, Index, String, Text
from sqlmodel import Field, SQLModel

from app.db import JSON_TYPE, DurationSeconds, UtcDateTime


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    GIVEN_UP = "GIVEN_UP"


class Webhook(SQLModel, table=True):
    """A receiver of events.

    Attributes:
        stores, labels: the stores whose events it gets: those named, and those with all of the labels.
            Neither: all events, also those of no store.
        secret: `secret:NAME` of its signing secret; null: `own_key`, which was made here.
        former_secret, former_key: signs too until `former_until`.
        failures: attempts that failed in a row; nothing is sent before `rest_until`.
        delivered, failed, given_up: attempts and deliveries that ended so; they only grow.
    """

    __tablename__ = "webhooks"

    id: str = Field(primary_key=True, max_length=40)
    url: str = Field(max_length=1000)
    description: str = Field(default="", max_length=200)
    events: list[str] = Field(sa_type=JSON_TYPE)
    stores: list[str] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    labels: dict[str, str] = Field(default_factory=dict, sa_type=JSON_TYPE)
    waits_longer_than: timedelta | None = Field(default=None, sa_type=DurationSeconds)
    clear_text_on_loopback: bool = False
    ca_file: str | None = Field(default=None, max_length=1000)
    secret: str | None = Field(default=None, max_length=1010)
    own_key: str | None = Field(default=None, max_length=200, repr=False)
    former_secret: str | None = Field(default=None, max_length=1010)
    former_key: str | None = Field(default=None, max_length=200, repr=False)
    former_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    is_enabled: bool = True
    disabled_because: str | None = Field(default=None, max_length=200)
    version: int = 1
    failures: int = 0
    rest_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    delivered: int = 0
    failed: int = 0
    given_up: int = 0
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)


class WebhookEvent(SQLModel, table=True):
    """One event, written in the transaction of its fact; its id is the same in every attempt.

    Attributes:
        once: of a fact that is found again and again: it is written once.
    """

    __tablename__ = "webhook_events"
    __table_args__ = (Index("ix_webhook_events_at", "at"),)

    id: str = Field(primary_key=True, max_length=40)
    type: str = Field(max_length=60)
    at: datetime = Field(sa_type=UtcDateTime)
    store: str | None = Field(default=None, max_length=63)
    subject: str = Field(max_length=300)
    data: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    once: str | None = Field(default=None, max_length=300, unique=True)


class WebhookDelivery(SQLModel, table=True):
    """An event on its way to one hook. Its hook may be gone before it: nothing that happens waits for a hook.

    Attributes:
        next_at: when it is due; while it is being sent, when others may take it.
        lease: of whoever is sending it, and its instance.
        give_up_at: after it nothing more is tried.
    """

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        Index("ix_webhook_deliveries_due", "webhook_id", "state", "next_at"),
        Index("ix_webhook_deliveries_hook", "webhook_id", "id"),
        Index("ix_webhook_deliveries_state", "state", "give_up_at"),
        Index("ix_webhook_deliveries_ended", "ended_at"),
        Index("ix_webhook_deliveries_event", "event_id"),
    )

    id: str = Field(primary_key=True, max_length=40)
    webhook_id: str = Field(max_length=40)
    event_id: str = Field(
        sa_column=Column(String(40), ForeignKey("webhook_events.id", ondelete="CASCADE"), nullable=False)
    )
    type: str = Field(max_length=60)
    store: str | None = Field(default=None, max_length=63)
    state: DeliveryState = Field(default=DeliveryState.PENDING, sa_type=String(10))
    attempts: int = 0
    created_at: datetime = Field(sa_type=UtcDateTime)
    next_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    give_up_at: datetime = Field(sa_type=UtcDateTime)
    lease: str | None = Field(default=None, max_length=40)
    lease_instance: str | None = Field(default=None, max_length=40)
    last_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_status: int | None = None
    last_error: str | None = Field(default=None, sa_type=Text)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class WebhookExpectation(SQLModel, table=True):
    """A hook's word that a kind of job succeeds at a store at least every so often.

    Attributes:
        due_at: when the last success is too long ago; null: the hook was told, until the next success.
    """

    __tablename__ = "webhook_expectations"
    __table_args__ = (
        Index("ix_webhook_expectations_due", "due_at"),
        Index("ix_webhook_expectations_store", "store", "kind"),
    )

    webhook_id: str = Field(
        sa_column=Column(String(40), ForeignKey("webhooks.id", ondelete="CASCADE"), primary_key=True)
    )
    store: str = Field(primary_key=True, max_length=63)
    kind: str = Field(primary_key=True, max_length=40)
    within: timedelta = Field(sa_type=DurationSeconds)
    last_success_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    due_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class WebhookWait(SQLModel, table=True):
    """A wait of a job that was told.

    Attributes:
        since: `waiting_since` of the job.
        seen_at: the last look at waits.
        told: the hooks that know of it.
    """

    __tablename__ = "webhook_waits"

    job_id: str = Field(primary_key=True, max_length=40)
    cause: str = Field(max_length=200)
    since: datetime = Field(sa_type=UtcDateTime)
    seen_at: datetime = Field(sa_type=UtcDateTime)
    told: list[str] = Field(default_factory=list, sa_type=JSON_TYPE)
