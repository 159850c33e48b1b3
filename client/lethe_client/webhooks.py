"""Webhooks: who is told of what happens, what has left, and what is sent again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.literals import DeliveryState
from lethe_client.paths import collection, resource
from lethe_client.results import Result
from lethe_client.transport import Answer, Call, Transport


@dataclass(frozen=True, kw_only=True)
class WebhookExpectation(Result):
    """A kind of job that should succeed at a store every so often; `overdue`: the webhook was told."""

    store: str
    kind: str
    within: timedelta
    last_success_at: datetime | None = None
    overdue: bool = False


@dataclass(frozen=True, kw_only=True)
class Webhook(Result):
    """A receiver of events. `signing_secret` is there once: when it was made here. `etag` is what update and
    remove send.
    """

    id: str
    url: str
    description: str = ""
    events: tuple[str, ...] = ()
    stores: tuple[str, ...] | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    waits_longer_than: timedelta | None = None
    expected: tuple[WebhookExpectation, ...] = ()
    secret: str | None = None
    former_secret_until: datetime | None = None
    clear_text_on_loopback: bool = False
    ca_file: str | None = None
    enabled: bool = True
    disabled_because: str | None = None
    failures: int = 0
    rests_until: datetime | None = None
    delivered: int = 0
    failed: int = 0
    given_up: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    signing_secret: str | None = field(default=None, repr=False)
    etag: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class WebhookDelivery(Result):
    """An event on its way to a webhook; `event`, its body, only where one delivery is asked for."""

    id: str
    webhook_id: str
    event_id: str
    type: str
    state: DeliveryState
    store: str | None = None
    attempts: int = 0
    created_at: datetime | None = None
    next_attempt_at: datetime | None = None
    gives_up_at: datetime | None = None
    last_attempt_at: datetime | None = None
    last_status: int | None = None
    last_error: str | None = None
    ended_at: datetime | None = None
    event: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Replayed(Result):
    """How many deliveries are due again; `more`: ask again for the others."""

    replayed: int
    more: bool = False


def _webhook(answer: Answer) -> Webhook:
    return replace(decode(Webhook, answer.body), etag=answer.etag)


class Webhooks:
    """`/v1/webhooks`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        url: str,
        events: Sequence[str],
        *,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Webhook:
        """Make a webhook; its `signing_secret` is shown this once.

        Args:
            fields: further members of the body: `stores`, `labels`, `secret`, `waits_longer_than`, ...
        """
        body = {"url": url, "events": [*events]} | fields
        path = collection("webhooks")
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=idempotency_key)
        return _webhook(self._transport.request(call))

    def get(self, webhook_id: str) -> Webhook:
        path = resource("webhooks", webhook_id)
        return _webhook(self._transport.request(Call(method="GET", path=path, repeatable=True)))

    def list(self) -> Iterator[Webhook]:
        return pages.items(self._transport, collection("webhooks"), Webhook)

    def update(self, webhook: Webhook, changes: Mapping[str, Any]) -> Webhook:
        """Change the webhook as it was read by `get`.

        Raises: PreconditionFailed: somebody changed it since.
        """
        path, headers = resource("webhooks", webhook.id), {"If-Match": webhook.etag}
        call = Call(method="PATCH", path=path, json=dict(changes), headers=headers)
        return _webhook(self._transport.request(call))

    def remove(self, webhook: Webhook) -> None:
        """Forget the webhook as it was read by `get`, with all that was to be sent to it.

        Raises: PreconditionFailed: somebody changed it since.
        """
        path, headers = resource("webhooks", webhook.id), {"If-Match": webhook.etag}
        self._transport.request(Call(method="DELETE", path=path, headers=headers))

    def rotate(self, webhook_id: str, *, secret: str | None = None, overlap: str = "P1D") -> Webhook:
        """Sign by another secret; the former one signs too for a while."""
        path = resource("webhooks", webhook_id, verb="rotate")
        body = {"secret": secret, "overlap": overlap}
        return _webhook(self._transport.request(Call(method="POST", path=path, json=body, creates=True)))

    def test(self, webhook_id: str) -> WebhookDelivery:
        """Send a ping; what became of it is told by `delivery`."""
        path = resource("webhooks", webhook_id, verb="test")
        answer = self._transport.request(Call(method="POST", path=path, creates=True))
        return decode(WebhookDelivery, answer.body)

    def deliveries(self, webhook_id: str, *, state: str | None = None) -> Iterator[WebhookDelivery]:
        """The newest first."""
        path = resource("webhooks", webhook_id, "deliveries")
        return pages.items(self._transport, path, WebhookDelivery, params={"state": state})

    def delivery(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        path = resource("webhooks", webhook_id, "deliveries", delivery_id)
        answer = self._transport.request(Call(method="GET", path=path, repeatable=True))
        return decode(WebhookDelivery, answer.body)

    def replay(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        """Send a delivery again, with the same ids."""
        path = resource("webhooks", webhook_id, "deliveries", delivery_id, verb="replay")
        answer = self._transport.request(Call(method="POST", path=path, creates=True))
        return decode(WebhookDelivery, answer.body)

    def replay_since(self, webhook_id: str, since: datetime, *, state: str | None = None) -> Replayed:
        """Send all deliveries since an instant again that have ended, or have ended so."""
        path = f"{resource('webhooks', webhook_id, 'deliveries')}:replay"
        body = {"since": since.isoformat(), "state": state}
        answer = self._transport.request(Call(method="POST", path=path, json=body, creates=True))
        return decode(Replayed, answer.body)
