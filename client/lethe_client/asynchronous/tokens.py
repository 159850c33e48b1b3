"""Made by `make client` from lethe_client/tokens.py: change that, not this."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.paths import collection, resource
from lethe_client.results import Token
from lethe_client.transport import Call


class Tokens:
    """`/v1/tokens`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        *,
        scopes: Sequence[str] = (),
        role: str | None = None,
        stores: Sequence[str] | None = None,
        expires_at: datetime | None = None,
        expires_in: str | None = None,
        idempotency_key: str | None = None,
    ) -> Token:
        """Make a token; its secret is in this answer and never again, a replayed one included.

        Args:
            scopes: or `role`, which bundles them.
            stores: limits it to these stores; None to no store in particular.
            expires_in: ISO 8601 duration.
        """
        optional = {
            "scopes": [*scopes] or None,
            "role": role,
            "stores": None if stores is None else [*stores],
            "expires_at": expires_at.isoformat() if expires_at else None,
            "expires_in": expires_in,
        }
        body: dict[str, Any] = {"name": name}
        body.update({key: value for key, value in optional.items() if value is not None})
        path = collection("tokens")
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=idempotency_key)
        return decode(Token, (await self._transport.request(call)).body)

    def list(self) -> AsyncIterator[Token]:
        return pages.items(self._transport, collection("tokens"), Token)

    async def revoke(self, token_id: str, *, idempotency_key: str | None = None) -> Token | None:
        """End a token at once; None where the service answers without a body."""
        path = resource("tokens", token_id, verb="revoke")
        call = Call(method="POST", path=path, json={}, creates=True, idempotency_key=idempotency_key)
        body = (await self._transport.request(call)).body
        return None if body is None else decode(Token, body)
