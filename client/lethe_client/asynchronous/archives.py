"""Made by `make client` from lethe_client/archives.py: change that, not this."""

from collections.abc import AsyncIterator
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.jobs import job_of
from lethe_client.paths import collection, resource
from lethe_client.results import Archive, Job
from lethe_client.transport import Call


class Archives:
    """`/v1/archives`; an archive goes by the id of the job that wrote it."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, store: str | None = None) -> AsyncIterator[Archive]:
        return pages.items(self._transport, collection("archives"), Archive, params={"store": store})

    async def get(self, job_id: str) -> Archive:
        call = Call(method="GET", path=resource("archives", job_id), repeatable=True)
        return decode(Archive, (await self._transport.request(call)).body)

    async def verify(
        self, job_id: str, *, engine: str | None = None, idempotency_key: str | None = None
    ) -> Job:
        """Start reading every file again and comparing it with the manifest.

        Args:
            engine: AUTO, INLINE or SPARK; None: the service's default.
        """
        return await self._start(job_id, "verify", {"engine": engine}, key=idempotency_key)

    async def restore_into_file(self, job_id: str, file: str, *, idempotency_key: str | None = None) -> Job:
        """Start writing the rows into a new SQLite file on the service's machine."""
        return await self._start(job_id, "restore", {"into": {"file": file}}, key=idempotency_key)

    async def restore_into_schema(
        self, job_id: str, schema: str, *, idempotency_key: str | None = None
    ) -> Job:
        """Start writing the rows into a schema of their own beside the live tables."""
        return await self._start(job_id, "restore", {"into": {"schema": schema}}, key=idempotency_key)

    async def restore_live(self, job_id: str, *, idempotency_key: str | None = None) -> Job:
        """Start putting the rows back into the live tables; any key conflict refuses that unit."""
        return await self._start(job_id, "restore", {"into": {"live": True}}, key=idempotency_key)

    async def _start(self, job_id: str, verb: str, body: dict[str, Any], *, key: str | None) -> Job:
        path = resource("archives", job_id, verb=verb)
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=key)
        return job_of(await self._transport.request(call))
