"""Made by `make client` from lethe_client/webhooks.py: change that, not this."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.paths import collection, resource
from lethe_client.transport import Call
from lethe_client.webhooks import Replayed, Webhook, WebhookDelivery, _webhook


class Webhooks:
    """`/v1/webhooks`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, url: str, events: Sequence[str], *, idempotency_key: str | None = None, **fields: Any
    ) -> Webhook:
        """Make a webhook; its `signing_secret` is shown this once.

        Args:
            fields: further members of the body: `stores`, `labels`, `secret`, `waits_longer_than`, ...
        """
        body = {"url": url, "events": [*events]} | fields
        path = collection("webhooks")
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=idempotency_key)
        return _webhook(await self._transport.request(call))

    async def get(self, webhook_id: str) -> Webhook:
        path = resource("webhooks", webhook_id)
        return _webhook(await self._transport.request(Call(method="GET", path=path, repeatable=True)))

    def list(self) -> AsyncIterator[Webhook]:
        return pages.items(self._transport, collection("webhooks"), Webhook)

    async def update(self, webhook: Webhook, changes: Mapping[str, Any]) -> Webhook:
        """Change the webhook as it was read by `get`.

        Raises: PreconditionFailed: somebody changed it since.
        """
        path, headers = (resource("webhooks", webhook.id), {"If-Match": webhook.etag})
        call = Call(method="PATCH", path=path, json=dict(changes), headers=headers)
        return _webhook(await self._transport.request(call))

    async def remove(self, webhook: Webhook) -> None:
        """Forget the webhook as it was read by `get`, with all that was to be sent to it.

        Raises: PreconditionFailed: somebody changed it since.
        """
        path, headers = (resource("webhooks", webhook.id), {"If-Match": webhook.etag})
        await self._transport.request(Call(method="DELETE", path=path, headers=headers))

    async def rotate(self, webhook_id: str, *, secret: str | None = None, overlap: str = "P1D") -> Webhook:
        """Sign by another secret; the former one signs too for a while."""
        path = resource("webhooks", webhook_id, verb="rotate")
        body = {"secret": secret, "overlap": overlap}
        return _webhook(
            await self._transport.request(Call(method="POST", path=path, json=body, creates=True))
        )

    async def test(self, webhook_id: str) -> WebhookDelivery:
        """Send a ping; what became of it is told by `delivery`."""
        path = resource("webhooks", webhook_id, verb="test")
        answer = await self._transport.request(Call(method="POST", path=path, creates=True))
        return decode(WebhookDelivery, answer.body)

    def deliveries(self, webhook_id: str, *, state: str | None = None) -> AsyncIterator[WebhookDelivery]:
        """The newest first."""
        path = resource("webhooks", webhook_id, "deliveries")
        return pages.items(self._transport, path, WebhookDelivery, params={"state": state})

    async def delivery(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        path = resource("webhooks", webhook_id, "deliveries", delivery_id)
        answer = await self._transport.request(Call(method="GET", path=path, repeatable=True))
        return decode(WebhookDelivery, answer.body)

    async def replay(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        """Send a delivery again, with the same ids."""
        path = resource("webhooks", webhook_id, "deliveries", delivery_id, verb="replay")
        answer = await self._transport.request(Call(method="POST", path=path, creates=True))
        return decode(WebhookDelivery, answer.body)

    async def replay_since(self, webhook_id: str, since: datetime, *, state: str | None = None) -> Replayed:
        """Send all deliveries since an instant again that have ended, or have ended so."""
        path = f"{resource('webhooks', webhook_id, 'deliveries')}:replay"
        body = {"since": since.isoformat(), "state": state}
        answer = await self._transport.request(Call(method="POST", path=path, json=body, creates=True))
        return decode(Replayed, answer.body)
