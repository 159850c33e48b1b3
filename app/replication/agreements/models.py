"""Agreements over HTTP: which consumer a store brings its changes to, and how it stands with it."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Final

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
from app.replication.agreements.examples import AGREEMENT
from app.replication.decide.models import StrategyName
from app.replication.replica.models import KeyPrefix, KeyPrefixes
from app.replication.rows import AgreementState
from app.secrets.models import SecretReference
from app.stores.fields import EnvironmentPath

BATCH_ROWS_DEFAULT: Final = 10_000
BATCH_ROWS_MAX: Final = 100_000
BATCH_BYTES_DEFAULT: Final = 4 * 1024 * 1024
BATCH_BYTES_MIN: Final = 65_536
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
IN_FLIGHT_MAX: Final = 4
CHANGES_MAX: Final = 10**15
INTERVAL_MIN: Final = timedelta(seconds=1)
SPAN_MAX: Final = timedelta(days=30)


def _callable_url(text: str) -> str:
    """A base URL that can be called as it stands: no secret in it, nothing that would swallow a path."""
    parts = split_web_url(text, form="http://host:port or https://host:port")
    if parts.username is not None or parts.password is not None:
        raise ValueError("no user and no password in it: `token` names where the token is")
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise ValueError("neither a query nor a fragment")
    if ".." in parts.path.split("/"):
        raise ValueError("a path without '..'")
    return text.rstrip("/")


Span = Annotated[Duration, BeforeValidator(read_duration), AfterValidator(between(INTERVAL_MIN, SPAN_MAX))]
ConsumerUrl = Annotated[str, StringConstraints(min_length=8, max_length=1000), AfterValidator(_callable_url)]
MaxChanges = Annotated[int, Field(ge=1, le=CHANGES_MAX)]
BatchRows = Annotated[int, Field(ge=1, le=BATCH_ROWS_MAX)]
BatchBytes = Annotated[int, Field(ge=BATCH_BYTES_MIN, le=BATCH_BYTES_MAX)]
InFlight = Annotated[int, Field(ge=1, le=IN_FLIGHT_MAX)]

_STRICT = ConfigDict(extra="forbid")
_TOKEN = "`secret:NAME`, of a secret that is registered for this store and the consumer's host."
_CA_FILE = "PEM file of the authority that the consumer's certificate is checked by."
_KEYS = "Which keys are sent; null: all. Only a new consumer takes a part. They never change."
_INTERVAL = "A session begins by itself when something is unsent, at most this often; null: on request."


class AgreementConsumer(Model):
    """Where the consumer is, and what is shown to it."""

    model_config = _STRICT

    url: ConsumerUrl = Field(description="Of the other service; http or https, within LETHE_ALLOWED_HOSTS.")
    store: StoreName = Field(description="Its store of kind REPLICA.")
    token: SecretReference = Field(description=_TOKEN)
    ca_file: EnvironmentPath | None = Field(default=None, description=_CA_FILE)


class ConsumerPatch(Model):
    """What of a consumer's address can change; another store is another agreement."""

    model_config = _STRICT

    url: ConsumerUrl | None = None
    token: SecretReference | None = None
    ca_file: EnvironmentPath | None = None


_EXAMPLE: dict[str, Any] = {
    "consumer": {
        "url": "https://east.example:8765",
        "store": "orders",
        "token": "secret:east",
    },
    "interval": "PT10S",
}


class AgreementCreate(Model):
    """A consumer that the store brings its changes to."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    consumer: AgreementConsumer
    strategy: StrategyName = "WINDOW"
    interval: Span | None = Field(default=None, description=_INTERVAL)
    max_changes: MaxChanges | None = Field(default=None, description="A session yields after so many.")
    max_duration: Span | None = Field(default=None, description="A session yields after so long.")
    batch_rows: BatchRows = BATCH_ROWS_DEFAULT
    batch_bytes: BatchBytes = BATCH_BYTES_DEFAULT
    in_flight: InFlight = Field(default=IN_FLIGHT_MAX, description="Batches sent and not yet acknowledged.")
    keys: KeyPrefixes | None = Field(default=None, description=_KEYS)


class AgreementPatch(Model):
    """Changes of an agreement; what is left out stays."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"interval": "PT1M"}]})

    consumer: ConsumerPatch | None = None
    strategy: StrategyName | None = None
    interval: Span | None = None
    max_changes: MaxChanges | None = None
    max_duration: Span | None = None
    batch_rows: BatchRows | None = None
    batch_bytes: BatchBytes | None = None
    in_flight: InFlight | None = None

    @model_validator(mode="after")
    def _not_null(self) -> "AgreementPatch":
        nullable = {"interval", "max_changes", "max_duration"}
        wrong = [name for name in self.model_fields_set - nullable if getattr(self, name) is None]
        if self.consumer is not None:
            names = self.consumer.model_fields_set - {"ca_file"}
            wrong += [f"consumer.{name}" for name in names if getattr(self.consumer, name) is None]
        if wrong:
            raise ValueError(f"{', '.join(sorted(wrong))} cannot be null")
        return self


class ConsumerRead(Model):
    """A consumer's address; the token's reference is not shown."""

    url: str
    store: str
    ca_file: str | None
    rid: int | None = Field(description="As its last answer said.")


class UnsentRead(Model):
    """A change that the consumer has not acknowledged."""

    csn: str
    at: datetime = Field(description="The time of its CSN.")


class LastUpdateRead(Model):
    """When the last session ran."""

    start: datetime | None
    end: datetime | None = Field(description="null: it runs, or none ever did.")


class AgreementStatusRead(Model):
    """How a consumer stands, by what it has acknowledged; it is not asked."""

    lag_changes: int | None = Field(
        description="Unacknowledged changes; null: the target cannot be read now."
    )
    lag: Duration | None = Field(description="How long ago the oldest of them was logged.")
    oldest_unsent: UnsentRead | None
    purge_headroom: Duration | None = Field(
        description="How far, in time of CSNs, trimming is from what the consumer still needs; null: nothing "
        "was trimmed."
    )
    needs_total: bool | None = Field(
        description="Whether what it lacks has left the changelog, or its last session ended as NEEDS_TOTAL."
    )
    acknowledged: dict[str, str] = Field(description="CSN by RID.")
    changes_sent: str = Field(description="389's `rid:replayed/skipped ` for each RID, with its last blank.")
    last_update: LastUpdateRead
    last_update_status: str
    last_update_status_json: dict[str, str] = Field(
        description="389's: state (green, amber, red), ldap_rc, ldap_rc_text, repl_rc, repl_rc_text, date, "
        "message; of a total update conn_rc and conn_rc_text too."
    )
    update_in_progress: bool
    target_code: str | None = Field(default=None, description="Why the target could not be read.")


class AgreementRead(Model):
    """An agreement as clients see it."""

    model_config = ConfigDict(json_schema_extra={"examples": [AGREEMENT]})

    id: str
    store: str
    state: AgreementState
    consumer: ConsumerRead
    strategy: StrategyName
    interval: Duration | None
    max_changes: int | None
    max_duration: Duration | None
    batch_rows: int
    batch_bytes: int
    in_flight: int
    keys: list[KeyPrefix] | None = Field(description="Which keys are sent; null: all.")
    last_session_id: str | None
    created_at: datetime
    updated_at: datetime
    status: AgreementStatusRead | None = Field(description="null in lists: `GET` of one computes it.")
