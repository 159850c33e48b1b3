"""Made by `make client` from lethe_client/extinctions.py: change that, not this."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.jobs import Jobs
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.errors import PlanFailed
from lethe_client.extinction_filter import ExtinctionBundle
from lethe_client.extinctions import (
    PLAN_MARGIN_S,
    PLAN_WAIT_S,
    Availability,
    Extinction,
    ExtinctionPlan,
    ExtinctionRequest,
    KeyStatuses,
)
from lethe_client.feed_records import text64
from lethe_client.jobs import job_of
from lethe_client.paths import resource
from lethe_client.results import Job
from lethe_client.transport import Call


class Extinctions:
    """`/v1/stores/{store}/extinctions`, and what belongs to them."""

    def __init__(self, transport: AsyncTransport, jobs: Jobs) -> None:
        self._transport = transport
        self._jobs = jobs

    async def discard(
        self, store_id: str, request: ExtinctionRequest, *, idempotency_key: str | None = None
    ) -> Job:
        """Discard records; committed when it answers. The answer is the job that does the rest.

        Raises: RequestInvalid: CONFIRMATION_MISSING, UNKNOWN_DATABASE, FILTER_REFUSED, START_AFTER_END,
            EXTINCTION_FILTER_MISSING, PLAN_DIFFERS. Conflict: EXTINCTION_NOT_AVAILABLE.
        """
        call = Call(
            method="POST",
            path=resource("stores", store_id, "extinctions"),
            json=request.document(),
            creates=True,
            idempotency_key=idempotency_key,
        )
        return job_of(await self._transport.request(call))

    async def plan(
        self, store_id: str, request: ExtinctionRequest, *, timeout_s: float | None = None
    ) -> ExtinctionPlan:
        """Count what an extinction would reach; nothing is written.

        Raises: PlanFailed: `.job` says why. WaitTimedOut: not ready in time; its job goes on.
        """
        wait = max(0, min(PLAN_WAIT_S, int(PLAN_WAIT_S if timeout_s is None else timeout_s)))
        answer = await self._transport.request(
            Call(
                method="POST",
                path=resource("stores", store_id, "extinctions"),
                params={"validate_only": True},
                json=request.document(),
                headers={"Prefer": f"wait={wait}"},
                creates=True,
                timeout_s=wait + PLAN_MARGIN_S,
            )
        )
        if answer.status != 202:
            return decode(ExtinctionPlan, answer.body)
        job = await self._jobs.wait(job_of(answer).id, timeout_s=timeout_s)
        if job.state != "SUCCEEDED":
            raise PlanFailed(job)
        return decode(ExtinctionPlan, job.result)

    def list(self, store_id: str) -> AsyncIterator[Extinction]:
        """Yield a store's extinctions, newest first."""
        return pages.items(self._transport, resource("stores", store_id, "extinctions"), Extinction)

    async def get(self, store_id: str, extinction_id: str) -> Extinction:
        """Look at an extinction.

        Raises: NotFound.
        """
        path = resource("stores", store_id, "extinctions", extinction_id)
        return decode(Extinction, await self._read(path))

    async def attest(
        self, store_id: str, extinction_id: str, *, reason: str, idempotency_key: str | None = None
    ) -> Extinction:
        """Attest that the application's extinction filter is installed and says EXTINCT; for JE stores.

        Raises: NotFound. Conflict: FILTER_NOT_INSTALLED, EXTINCTION_NOT_HOLDING, FILTER_UNREADABLE.
        """
        call = Call(
            method="POST",
            path=f"{resource('stores', store_id, 'extinctions', extinction_id)}:attest",
            json={"statement": "FILTER_INSTALLED", "reason": reason},
            creates=True,
            idempotency_key=idempotency_key,
        )
        return decode(Extinction, (await self._transport.request(call)).body)

    async def status(
        self, store_id: str, database: str, keys: Sequence[bytes], *, dups: bool = False
    ) -> KeyStatuses:
        """Judge at most KEYS_MAX keys.

        Args:
            database: of a REPLICA store in base64, of a JE store as it is.
            dups: the database has duplicates; the keys are the primary keys, which are its records' data.
        """
        body = {"database": database, "dups": dups, "keys": [text64(key) for key in keys]}
        path = f"{resource('stores', store_id)}/extinction-status:query"
        answer = await self._transport.request(Call(method="POST", path=path, json=body, repeatable=True))
        return decode(KeyStatuses, answer.body)

    async def filter(self, store_id: str) -> ExtinctionBundle:
        """The whole filter, to be evaluated here; it is as old as its answer."""
        return ExtinctionBundle.parse(await self.filter_document(store_id))

    async def filter_document(self, store_id: str) -> Mapping[str, Any]:
        """The whole filter as the service writes it, to be kept or handed on."""
        found: Mapping[str, Any] = await self._read(resource("stores", store_id, "extinctions", "filter"))
        return found

    async def availability(self, store_id: str) -> Availability:
        """Whether all known peers have announced that they know extinctions."""
        return decode(Availability, await self._read(resource("stores", store_id, "extinction-availability")))

    async def forget_supplier(
        self, store_id: str, supplier: str, *, reason: str, idempotency_key: str | None = None
    ) -> Availability:
        """Forget a supplier that is gone for good; the availability without it. Of REPLICA stores.

        Args:
            supplier: the `peer` of a SUPPLIER in `Availability.lacking`.
        Raises: NotFound: SUPPLIER_NOT_FOUND. Conflict: PEER_IS_CONSUMER, whose agreement is to be removed.
        """
        call = Call(
            method="POST",
            path=f"{resource('stores', store_id, 'extinction-availability')}:forget",
            json={"supplier": supplier, "reason": reason},
            creates=True,
            idempotency_key=idempotency_key,
        )
        return decode(Availability, (await self._transport.request(call)).body)

    async def _read(self, path: str) -> Any:
        return (await self._transport.request(Call(method="GET", path=path, repeatable=True))).body
