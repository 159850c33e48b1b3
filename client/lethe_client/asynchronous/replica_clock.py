"""Made by `make client` from lethe_client/replica_clock.py: change that, not this."""

from collections.abc import AsyncIterator

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.paths import resource
from lethe_client.replica_clock import ClockRepair, DiscardGrant, ReplicaClock, ReplicaKey, ReplicaKeys
from lethe_client.transport import Call


class DiscardGrants:
    """`/v1/stores/{store}/discard-grants`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        store_id: str,
        *,
        supplier_rid: int,
        reason: str,
        expires_in: str | None = None,
        peer_token_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> DiscardGrant:
        """Grant a supplier to discard, once, what only this replica has: an admin's word.

        Args:
            expires_in: ISO 8601, an hour by default, seven days at most.
            peer_token_id: only to a supplier with this token.
        """
        body = {
            "supplier_rid": supplier_rid,
            "reason": reason,
            "expires_in": expires_in,
            "peer_token_id": peer_token_id,
        }
        call = Call(
            method="POST",
            path=resource("stores", store_id, "discard-grants"),
            json={name: value for name, value in body.items() if value is not None},
            creates=True,
            idempotency_key=idempotency_key,
        )
        return decode(DiscardGrant, (await self._transport.request(call)).body)

    def list(self, store_id: str) -> AsyncIterator[DiscardGrant]:
        """Yield the grants of a store, newest first, those that are over too."""
        return pages.items(self._transport, resource("stores", store_id, "discard-grants"), DiscardGrant)

    async def get(self, store_id: str, grant_id: str) -> DiscardGrant:
        """Look at one."""
        path = resource("stores", store_id, "discard-grants", grant_id)
        return decode(
            DiscardGrant, (await self._transport.request(Call(method="GET", path=path, repeatable=True))).body
        )

    async def revoke(self, store_id: str, grant_id: str) -> DiscardGrant:
        """Take one back that was not used.

        Raises: Conflict: it was used.
        """
        path = f"{resource('stores', store_id, 'discard-grants', grant_id)}:revoke"
        return decode(
            DiscardGrant, (await self._transport.request(Call(method="POST", path=path, creates=True))).body
        )


class KnownKeys:
    """`/v1/stores/{store}/known-keys`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self, store_id: str) -> ReplicaKeys:
        """The key of a replica, and those that it knows of others."""
        call = Call(method="GET", path=resource("stores", store_id, "known-keys"), repeatable=True)
        return decode(ReplicaKeys, (await self._transport.request(call)).body)

    async def pin(
        self,
        store_id: str,
        *,
        rid: int,
        key: str,
        reason: str,
        instead_of: str | None = None,
        idempotency_key: str | None = None,
    ) -> ReplicaKey:
        """Say which key another replica id has: a peer that shows another one is refused. An admin's word.

        Args:
            key: 64 hexadecimal digits.
            instead_of: the one that is known, where it is the wrong one.
        """
        body = {"rid": rid, "key": key, "reason": reason, "instead_of": instead_of}
        call = Call(
            method="POST",
            path=resource("stores", store_id, "known-keys"),
            json=body,
            creates=True,
            idempotency_key=idempotency_key,
        )
        return decode(ReplicaKey, (await self._transport.request(call)).body)

    async def forget(
        self, store_id: str, rid: int, *, reason: str, idempotency_key: str | None = None
    ) -> ReplicaKey:
        """Forget the key of another replica id, and what it has signed: an admin's word. What it was."""
        call = Call(
            method="POST",
            path=f"{resource('stores', store_id, 'known-keys', str(rid))}:forget",
            json={"reason": reason},
            creates=True,
            idempotency_key=idempotency_key,
        )
        return decode(ReplicaKey, (await self._transport.request(call)).body)


class ReplicaClocks:
    """`/v1/stores/{store}/clock`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self, store_id: str) -> ReplicaClock:
        """Whether a replica makes CSNs ahead of its service's clock."""
        call = Call(method="GET", path=resource("stores", store_id, "clock"), repeatable=True)
        return decode(ReplicaClock, (await self._transport.request(call)).body)

    async def repair(
        self,
        store_id: str,
        *,
        reason: str,
        without_consumers: bool = False,
        idempotency_key: str | None = None,
    ) -> ClockRepair:
        """Bring a replica's CSNs back to the clock, above all that were given: an admin's word.

        Args:
            without_consumers: do not ask them what they have of this replica.
        """
        call = Call(
            method="POST",
            path=f"{resource('stores', store_id, 'clock')}:repair",
            json={"reason": reason, "without_consumers": without_consumers},
            creates=True,
            idempotency_key=idempotency_key,
        )
        return decode(ClockRepair, (await self._transport.request(call)).body)
