"""What an admin decides for a replica: grants to discard, its CSNs' return to the clock, keys of others."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.literals import GrantState
from lethe_client.paths import resource
from lethe_client.results import Result
from lethe_client.transport import Call, Transport


@dataclass(frozen=True, kw_only=True)
class DiscardGrant(Result):
    """An admin's word that one acquire of a supplier may discard; `consumed_by` is that acquire's session."""

    id: str
    store: str
    supplier_rid: int
    state: GrantState
    reason: str = ""
    granted_by: str = ""
    peer_token_id: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    consumed_at: datetime | None = None
    consumed_by: str | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReplicaKey(Result):
    """A replica id, and its public key: 64 hexadecimal digits."""

    rid: int
    key: str


@dataclass(frozen=True, kw_only=True)
class ReplicaKeys(Result):
    own: ReplicaKey
    known: tuple[ReplicaKey, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClockStanding(Result):
    """Where a replica's CSNs stand; `by_peers` is what only a repair ends."""

    next_at: datetime
    ahead: timedelta
    by_peers: timedelta


@dataclass(frozen=True, kw_only=True)
class ReplicaClock(Result):
    now: datetime
    status: str
    standing: ClockStanding
    ahead_max: timedelta


@dataclass(frozen=True, kw_only=True)
class ClockRepair(Result):
    """What a repair has done; `floor` is the greatest CSN known, and the next one is above it."""

    now: datetime
    before: ClockStanding
    after: ClockStanding
    level_at: datetime
    floor: str | None = None
    consumers_asked: tuple[str, ...] = ()


class DiscardGrants:
    """`/v1/stores/{store}/discard-grants`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
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
        return decode(DiscardGrant, self._transport.request(call).body)

    def list(self, store_id: str) -> Iterator[DiscardGrant]:
        """Yield the grants of a store, newest first, those that are over too."""
        return pages.items(self._transport, resource("stores", store_id, "discard-grants"), DiscardGrant)

    def get(self, store_id: str, grant_id: str) -> DiscardGrant:
        """Look at one."""
        path = resource("stores", store_id, "discard-grants", grant_id)
        return decode(
            DiscardGrant, self._transport.request(Call(method="GET", path=path, repeatable=True)).body
        )

    def revoke(self, store_id: str, grant_id: str) -> DiscardGrant:
        """Take one back that was not used.

        Raises: Conflict: it was used.
        """
        path = f"{resource('stores', store_id, 'discard-grants', grant_id)}:revoke"
        return decode(
            DiscardGrant, self._transport.request(Call(method="POST", path=path, creates=True)).body
        )


class KnownKeys:
    """`/v1/stores/{store}/known-keys`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, store_id: str) -> ReplicaKeys:
        """The key of a replica, and those that it knows of others."""
        call = Call(method="GET", path=resource("stores", store_id, "known-keys"), repeatable=True)
        return decode(ReplicaKeys, self._transport.request(call).body)

    def pin(
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
        return decode(ReplicaKey, self._transport.request(call).body)

    def forget(
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
        return decode(ReplicaKey, self._transport.request(call).body)


class ReplicaClocks:
    """`/v1/stores/{store}/clock`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, store_id: str) -> ReplicaClock:
        """Whether a replica makes CSNs ahead of its service's clock."""
        call = Call(method="GET", path=resource("stores", store_id, "clock"), repeatable=True)
        return decode(ReplicaClock, self._transport.request(call).body)

    def repair(
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
        return decode(ClockRepair, self._transport.request(call).body)
