"""Webhooks and their deliveries over HTTP."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from app.auth.rows import StoreName
from app.kit.durations import Duration, between, read_duration
from app.kit.model import Model
from app.kit.texts.web_urls import split_web_url
from app.kit.values import Instant, Text
from app.outbox.facts import ASKED_FOR, Fact
from app.outbox.rows import DeliveryState, Webhook, WebhookDelivery, WebhookEvent, WebhookExpectation
from app.secrets.models import SecretReference
from app.secrets.rows import LabelName
from app.stores.fields import EnvironmentPath

EXPECTATIONS_MAX: Final = 100
SPAN_MIN: Final = timedelta(minutes=1)
SPAN_MAX: Final = timedelta(days=366)
OVERLAP_MAX: Final = timedelta(days=30)


def _receiver(text: str) -> str:
    """A URL that can be posted to as it stands."""
    parts = split_web_url(text, form="https://host/path; http only to this machine itself")
    if parts.username is not None or parts.password is not None or parts.fragment or "#" in text:
        raise ValueError("no user, no password and no fragment in it")
    return parts.scheme + text[len(parts.scheme) :]  # HTTP:// is http://, also for whoever reads the text


def _asked(value: Fact) -> Fact:
    if value not in ASKED_FOR:
        raise ValueError("a ping is asked for by POST ...:test")
    return value


Span = Annotated[Duration, BeforeValidator(read_duration), AfterValidator(between(SPAN_MIN, SPAN_MAX))]
Overlap = Annotated[
    Duration, BeforeValidator(read_duration), AfterValidator(between(timedelta(0), OVERLAP_MAX))
]
ReceiverUrl = Annotated[str, StringConstraints(min_length=8, max_length=1000), AfterValidator(_receiver)]
Wanted = Annotated[Fact, AfterValidator(_asked)]
Events = Annotated[list[Wanted], Field(min_length=1, max_length=len(Fact))]
Stores = Annotated[list[StoreName], Field(min_length=1, max_length=1_000)]
JobKind = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z_]{0,39}$")]
Description = Annotated[Text, StringConstraints(max_length=200)]

_STORES = "Only events of these stores; with `labels` also of stores that have all of them. Neither: all."
_LABELS = "Events of stores that have all of these labels. Not for a token that is limited to stores."
_WAITS = (
    "Of `lethe.job.waits_long`: how long a job must have waited for one cause. Sent once per wait. Null: the"
    " `job.wait.max` of its store."
)
_EXPECTED = (
    "Of `lethe.success.overdue`: which job should succeed where, how often. Sent once until a success."
)
_SECRET = "`secret:NAME` of a signing secret (`whsec_` and base64). Null: one is made, and shown once."
_LOOPBACK = "An admin allows that it is called by http, on this machine's own loopback."
_CA_FILE = "PEM file of the authority that the receiver's certificate is checked by; null: this machine's."
_STRICT = ConfigDict(extra="forbid")
_EXAMPLE: dict[str, Any] = {
    "url": "https://alerts.example/lethe",
    "events": ["lethe.job.ended", "lethe.success.overdue"],
    "stores": ["shop"],
    "expected": [{"store": "shop", "kind": "PURGE", "within": "P2D"}],
}


class Expectation(Model):
    """A kind of job that should succeed at a store at least every so often."""

    model_config = _STRICT

    store: StoreName
    kind: JobKind = Field(description="As in `kind` of the jobs: PURGE, ERASURE, EVENT_CLEANUP, ...")
    within: Span


Expected = Annotated[list[Expectation], Field(max_length=EXPECTATIONS_MAX)]


class WebhookCreate(Model):
    """A new receiver of events."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    url: ReceiverUrl = Field(description="https; it is posted to as it stands, and no redirect is followed.")
    description: Description = ""
    events: Events
    stores: Stores | None = Field(default=None, description=_STORES)
    labels: dict[LabelName, Text] = Field(default_factory=dict, description=_LABELS)
    waits_longer_than: Span | None = Field(default=None, description=_WAITS)
    expected: Expected = Field(default_factory=list, description=_EXPECTED)
    secret: SecretReference | None = Field(default=None, description=_SECRET)
    clear_text_on_loopback: bool = Field(default=False, description=_LOOPBACK)
    ca_file: EnvironmentPath | None = Field(default=None, description=_CA_FILE)
    enabled: bool = True


class WebhookPatch(Model):
    """Changes of a webhook; what is left out stays. Its secret changes by `:rotate`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"enabled": False}]})

    url: ReceiverUrl | None = None
    description: Description | None = None
    events: Events | None = None
    stores: Stores | None = Field(default=None, description=_STORES)
    labels: dict[LabelName, Text] | None = Field(default=None, description=_LABELS)
    waits_longer_than: Span | None = Field(default=None, description=_WAITS)
    expected: Expected | None = Field(default=None, description=_EXPECTED)
    clear_text_on_loopback: bool | None = Field(default=None, description=_LOOPBACK)
    ca_file: EnvironmentPath | None = Field(default=None, description=_CA_FILE)
    enabled: bool | None = Field(default=None, description="True also ends a rest after failures.")

    @model_validator(mode="after")
    def _not_null(self) -> Self:
        may_be_null = {"stores", "waits_longer_than", "ca_file"}
        wrong = sorted(name for name in self.model_fields_set - may_be_null if getattr(self, name) is None)
        if wrong:
            raise ValueError(f"{', '.join(wrong)} cannot be null")
        return self


class ExpectationRead(Model):
    """What is expected, and when it was so last."""

    store: str
    kind: str
    within: Duration
    last_success_at: datetime | None = Field(description="Null: none since it is expected.")
    overdue: bool = Field(description="The webhook has got the event; the next success ends it.")


class WebhookRead(Model):
    """A receiver of events. Its signing secret is never shown again."""

    id: str
    url: str
    description: str
    events: list[str]
    stores: list[str] | None
    labels: dict[str, str]
    waits_longer_than: Duration | None
    expected: list[ExpectationRead]
    secret: str | None = Field(description="`secret:NAME`; null: one that was made here.")
    former_secret_until: datetime | None = Field(description="Until then the former secret signs too.")
    clear_text_on_loopback: bool
    ca_file: str | None
    enabled: bool
    disabled_because: str | None = Field(description="GONE: it answered 410. Null: enabled, or by request.")
    failures: int = Field(description="Attempts that failed in a row.")
    rests_until: datetime | None = Field(description="After failures nothing is sent to it before.")
    delivered: int
    failed: int = Field(description="Attempts.")
    given_up: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, row: Webhook, expected: list[WebhookExpectation]) -> Self:
        """As clients see it."""
        fields = {name: getattr(row, name) for name in cls.model_fields if hasattr(row, name)}
        return cls(
            **fields
            | {
                "enabled": row.is_enabled,
                "rests_until": row.rest_until,
                "former_secret_until": row.former_until,
                "expected": [expectation_read(each) for each in expected],
            }
        )


def expectation_read(row: WebhookExpectation) -> ExpectationRead:
    """As clients see it."""
    return ExpectationRead(
        store=row.store,
        kind=row.kind,
        within=row.within,
        last_success_at=row.last_success_at,
        overdue=row.due_at is None,
    )


class WebhookCreated(WebhookRead):
    """A webhook, with the signing secret that was made for it."""

    signing_secret: str | None = Field(description="`whsec_...`, shown only now; null: a named secret signs.")


class WebhookRotate(Model):
    """Another signing secret; the former one signs too for a while."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"overlap": "P1D"}]})

    secret: SecretReference | None = Field(default=None, description=_SECRET)
    overlap: Overlap = Field(default=timedelta(days=1), description="How long both sign.")


class DeliveryRead(Model):
    """An event on its way to a webhook, or there."""

    id: str
    webhook_id: str
    event_id: str = Field(description="`webhook-id` of every attempt, and the CloudEvent's `id`.")
    type: str
    store: str | None
    state: DeliveryState
    attempts: int
    created_at: datetime
    next_attempt_at: datetime | None = Field(description="PENDING: when it is tried next.")
    gives_up_at: datetime
    last_attempt_at: datetime | None
    last_status: int | None = Field(description="HTTP status of the last answer; null: there was none.")
    last_error: str | None = Field(description="Why the last attempt failed.")
    ended_at: datetime | None

    @classmethod
    def of(cls, row: WebhookDelivery) -> Self:
        """As clients see it."""
        fields = {name: getattr(row, name) for name in cls.model_fields if hasattr(row, name)}
        shown = {
            "next_attempt_at": row.next_at,
            "gives_up_at": row.give_up_at,
            "last_attempt_at": row.last_at,
        }
        return cls(**fields | shown)


class DeliveryDetail(DeliveryRead):
    """A delivery with the body that is sent."""

    event: dict[str, Any] = Field(description="CloudEvents 1.0.")


class ReplayRequest(Model):
    """Which deliveries are sent again."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"since": "2026-11-20T10:00:00Z"}]}
    )

    since: Instant = Field(description="Deliveries of events from then on.")
    state: Literal["DELIVERED", "GIVEN_UP"] | None = Field(
        default=None, description="Only those that ended so; null: both."
    )


class ReplayRead(Model):
    """How many deliveries are due again."""

    replayed: int
    more: bool = Field(description="Others are left: ask again.")


def cloud_event(event: WebhookEvent, source: str, at: str) -> dict[str, Any]:
    """An event as CloudEvents 1.0 has it."""
    return {
        "specversion": "1.0",
        "id": event.id,
        "source": source,
        "type": event.type,
        "subject": event.subject,
        "time": at,
        "datacontenttype": "application/json",
        "data": event.data,
    }
