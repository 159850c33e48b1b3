"""Made by `make client` from lethe_client/replication_sessions.py: change that, not this."""

from collections.abc import AsyncIterator

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.jobs import job_of
from lethe_client.paths import resource
from lethe_client.replication_sessions import Comparison, ReplicationSession, SessionRequest, _collection
from lethe_client.results import Job
from lethe_client.transport import Call


class ReplicationSessions:
    """`/v1/stores/{store}/replication-sessions`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        store_id: str,
        agreement_id: str,
        request: SessionRequest | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Job:
        """Start a session; the answer is its job, whose subject is the session.

        Raises: Conflict: a session of this agreement is under way; `.document["job_id"]` names its job.
        """
        asked = (request or SessionRequest()).document()
        call = Call(
            method="POST",
            path=_collection(store_id),
            json={"agreement_id": agreement_id} | asked,
            creates=True,
            idempotency_key=idempotency_key,
        )
        return job_of(await self._transport.request(call))

    def list(self, store_id: str, *, agreement_id: str | None = None) -> AsyncIterator[ReplicationSession]:
        """Yield the sessions of a store as supplier, newest first."""
        params = {"agreement_id": agreement_id}
        return pages.items(self._transport, _collection(store_id), ReplicationSession, params=params)

    async def get(self, store_id: str, session_id: str) -> ReplicationSession:
        """Look at one."""
        path = resource("stores", store_id, "replication-sessions", session_id)
        return decode(
            ReplicationSession,
            (await self._transport.request(Call(method="GET", path=path, repeatable=True))).body,
        )

    async def compare(self, store_id: str, agreement_id: str, *, strategy: str | None = None) -> Comparison:
        """Ask what a session would decide now; nothing is sent."""
        body = {"agreement_id": agreement_id} | ({} if strategy is None else {"strategy": strategy})
        path = f"{_collection(store_id)}:compare"
        call = Call(method="POST", path=path, json=body, repeatable=True)
        return decode(Comparison, (await self._transport.request(call)).body)
