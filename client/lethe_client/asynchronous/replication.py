"""Made by `make client` from lethe_client/replication.py: change that, not this."""

from collections.abc import Mapping
from typing import Any

from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.paths import collection, resource
from lethe_client.replication import Decision, ReplicaVectors, Topology
from lethe_client.transport import Call


class Replication:
    """`/v1/replication`, and where a replica stands."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def decide(self, question: Mapping[str, Any]) -> Decision:
        """Compare a supplier with a consumer.

        Args:
            question: `{strategy?, supplier: {ruv, min?, purged?, generation?}, consumer: {ruv, generation?},
                previous?: {ruv, csn_buffer}}`; a vector is a mapping of RID to CSN or a list of 389's lines,
                the consumer's `ruv` None where it has none.
        Raises: RequestInvalid: `errors` points at every CSN and line that is wrong.
        """
        path = f"{collection('replication')}:decide"
        call = Call(method="POST", path=path, json=dict(question), repeatable=True)
        return decode(Decision, (await self._transport.request(call)).body)

    async def topology(self) -> Topology:
        """All replicas, their agreements, and how far each consumer is behind; consumers are not asked."""
        path = f"{collection('replication')}/topology"
        return decode(
            Topology, (await self._transport.request(Call(method="GET", path=path, repeatable=True))).body
        )

    async def vectors(self, store_id: str) -> ReplicaVectors:
        """The RUV of a replica, and what of its changelog was trimmed; nothing is made or changed.

        Raises: NotFound, Conflict; Forbidden: the token has neither `data:read` nor `replication:peer`.
        """
        call = Call(method="GET", path=resource("replicas", store_id, "ruv"), repeatable=True)
        return decode(ReplicaVectors, (await self._transport.request(call)).body)
