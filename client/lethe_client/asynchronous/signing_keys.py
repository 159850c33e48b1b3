"""Made by `make client` from lethe_client/signing_keys.py: change that, not this."""

from collections.abc import AsyncIterator

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.paths import collection, resource
from lethe_client.signing_keys import NAME, SigningKey
from lethe_client.transport import Call


class SigningKeys:
    """`/v1/signing-keys`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self) -> AsyncIterator[SigningKey]:
        return pages.items(self._transport, collection(NAME), SigningKey)

    async def get(self, key_id: str) -> SigningKey:
        call = Call(method="GET", path=resource(NAME, key_id), repeatable=True)
        return decode(SigningKey, (await self._transport.request(call)).body)

    async def rotate(self, *, idempotency_key: str | None = None) -> SigningKey:
        """Let the service sign with a new key from now on; returns it."""
        path = f"{collection(NAME)}:rotate"
        call = Call(method="POST", path=path, creates=True, idempotency_key=idempotency_key)
        return decode(SigningKey, (await self._transport.request(call)).body)
