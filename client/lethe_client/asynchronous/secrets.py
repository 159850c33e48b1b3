"""Made by `make client` from lethe_client/secrets.py: change that, not this."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.paths import collection, resource
from lethe_client.secrets import Secret, _secret
from lethe_client.transport import Call


class Secrets:
    """`/v1/secrets`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        reference: str,
        *,
        hosts: Sequence[str],
        stores: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        clear_text_on_loopback: bool = False,
        idempotency_key: str | None = None,
    ) -> Secret:
        """Register where a secret lies; stores and agreements name it `secret:NAME`.

        Args:
            reference: `env:LETHE_SECRET_NAME`, `file:PATH` below the service's LETHE_SECRETS_DIR, `exec:NAME`
                of its LETHE_EXEC_SECRETS, or `vault:MOUNT/PATH#FIELD` of its Vault.
            hosts: who it may be shown to: `db.example:5432`, an address, a network, a socket's directory.
            stores, labels: who may use it.
            clear_text_on_loopback: it may be told as it is on the service's own machine.
        """
        body: dict[str, Any] = {
            "name": name,
            "reference": reference,
            "hosts": [*hosts],
            "stores": [*stores],
            "labels": dict(labels or {}),
            "clear_text_on_loopback": clear_text_on_loopback,
        }
        path = collection("secrets")
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=idempotency_key)
        return _secret(await self._transport.request(call))

    async def get(self, name: str) -> Secret:
        path = resource("secrets", name)
        return _secret(await self._transport.request(Call(method="GET", path=path, repeatable=True)))

    def list(self) -> AsyncIterator[Secret]:
        return pages.items(self._transport, collection("secrets"), Secret)

    async def update(self, secret: Secret, changes: Mapping[str, Any]) -> Secret:
        """Change the secret as it was read by `get`.

        Raises: PreconditionFailed: somebody changed it since.
        """
        headers = {"If-Match": secret.etag}
        call = Call(
            method="PATCH", path=resource("secrets", secret.name), json=dict(changes), headers=headers
        )
        return _secret(await self._transport.request(call))

    async def remove(self, secret: Secret) -> None:
        """Forget the secret as it was read by `get`; its file or variable stays.

        Raises: PreconditionFailed: somebody changed it since. Conflict: SECRET_IN_USE.
        """
        path = resource("secrets", secret.name)
        await self._transport.request(Call(method="DELETE", path=path, headers={"If-Match": secret.etag}))
