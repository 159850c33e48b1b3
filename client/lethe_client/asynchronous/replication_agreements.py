"""Made by `make client` from lethe_client/replication_agreements.py: change that, not this."""

from collections.abc import AsyncIterator
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.paths import resource
from lethe_client.replication_agreements import Agreement, _agreement, _path, _said
from lethe_client.transport import Call


class Agreements:
    """`/v1/stores/{store}/agreements`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        store_id: str,
        *,
        url: str,
        consumer_store: str,
        token: str,
        ca_file: str | None = None,
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Agreement:
        """Agree to bring a consumer the changes of a store: an admin's word.

        Args:
            token: `secret:NAME`, registered at the service that supplies for this store and host.
            options: strategy, interval (ISO 8601), max_changes, max_duration, batch_rows, batch_bytes,
                in_flight; keys: which keys are sent, a list of {database, prefix} in base64.
        """
        consumer = {"url": url, "store": consumer_store, "token": token, "ca_file": ca_file}
        body = {"consumer": _said(consumer)} | _said(options)
        call = Call(
            method="POST",
            path=resource("stores", store_id, "agreements"),
            json=body,
            creates=True,
            idempotency_key=idempotency_key,
        )
        return _agreement(await self._transport.request(call))

    def list(self, store_id: str) -> AsyncIterator[Agreement]:
        """Yield the agreements of a store, without their status."""
        return pages.items(self._transport, resource("stores", store_id, "agreements"), Agreement)

    async def get(self, store_id: str, agreement_id: str) -> Agreement:
        """Look at one, with its status."""
        call = Call(method="GET", path=_path(store_id, agreement_id), repeatable=True)
        return _agreement(await self._transport.request(call))

    async def change(self, store_id: str, agreement_id: str, *, etag: str, **changes: Any) -> Agreement:
        """Change what an admin chose; None clears what may be empty.

        Raises: PreconditionFailed: it has changed since it was read.
        """
        call = Call(
            method="PATCH",
            path=_path(store_id, agreement_id),
            json=changes,
            headers={"If-Match": etag},
            creates=True,
        )
        return _agreement(await self._transport.request(call))

    async def remove(self, store_id: str, agreement_id: str, *, etag: str) -> None:
        """Take one away; trimming minds its consumer for 7 days more."""
        path = _path(store_id, agreement_id)
        await self._transport.request(
            Call(method="DELETE", path=path, headers={"If-Match": etag}, creates=True)
        )
