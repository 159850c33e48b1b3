"""Audits: what a replica and a consumer hold, compared by counts and checksums."""

from collections.abc import Iterator, Mapping, Sequence

from lethe_client import pages
from lethe_client.jobs import job_of
from lethe_client.paths import resource
from lethe_client.results import Job
from lethe_client.transport import Call, Transport


class Audits:
    """`/v1/stores/{store}/audits`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        store_id: str,
        agreement_id: str,
        *,
        ranges: Mapping[int, Sequence[str | None]] | None = None,
        entries: bool = True,
        engine: str | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Start an audit; the answer is its job, whose result says `agrees` and what differs.

        Args:
            ranges: RID to (after or None, upto); None: all that both sides hold.
            engine: what reads the store's side, AUTO, INLINE or SPARK; None: the service's default.
        """
        body = {"agreement_id": agreement_id, "entries": entries, "engine": engine, "reason": reason}
        if ranges is not None:
            body["range"] = {str(rid): list(bounds) for rid, bounds in ranges.items()}
        call = Call(
            method="POST",
            path=resource("stores", store_id, "audits"),
            json={name: value for name, value in body.items() if value is not None},
            creates=True,
            idempotency_key=idempotency_key,
        )
        return job_of(self._transport.request(call))

    def list(self, store_id: str) -> Iterator[Job]:
        """Yield the jobs that compared a store with a consumer, newest first."""
        return pages.items(self._transport, resource("stores", store_id, "audits"), Job)
