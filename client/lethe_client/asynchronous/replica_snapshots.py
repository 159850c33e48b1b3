"""Made by `make client` from lethe_client/replica_snapshots.py: change that, not this."""

from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.jobs import job_of
from lethe_client.paths import resource
from lethe_client.results import Job
from lethe_client.transport import Call


class ReplicaSnapshots:
    """`/v1/stores/{store}/replica-exports` and `/replica-imports`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def export(
        self, store_id: str, path: str, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> Job:
        """Start an export; the answer is its job, whose result tells RUV, SHA-256 and who has signed.

        Args:
            path: a new file on the machine of the worker.
        """
        return await self._start(
            store_id, "replica-exports", {"path": path, "reason": reason}, idempotency_key
        )

    async def put_in(
        self,
        store_id: str,
        path: str,
        *,
        signed_by: str | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Start an import into a blank replica; all of the file is in place at the job's end, or nothing.

        Args:
            path: the file on the machine of the worker.
            signed_by: public key of the replica that must have signed it, in hexadecimal digits.
        """
        body = {"path": path, "signed_by": signed_by, "reason": reason}
        return await self._start(store_id, "replica-imports", body, idempotency_key)

    async def _start(self, store_id: str, what: str, body: dict[str, str | None], key: str | None) -> Job:
        call = Call(
            method="POST",
            path=resource("stores", store_id, what),
            json={name: value for name, value in body.items() if value is not None},
            creates=True,
            idempotency_key=key,
        )
        return job_of(await self._transport.request(call))
