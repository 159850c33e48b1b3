"""Made by `make client` from lethe_client/purges.py: change that, not this."""

from collections.abc import AsyncIterator

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.jobs import Jobs
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.errors import PlanFailed
from lethe_client.jobs import job_of
from lethe_client.paths import resource
from lethe_client.purge_results import Plan, PurgeStats
from lethe_client.purges import PLAN_MARGIN_S, PLAN_WAIT_S, PurgeRequest
from lethe_client.results import Job
from lethe_client.transport import Call


class Purges:
    """`/v1/stores/{store}/purges`."""

    def __init__(self, transport: AsyncTransport, jobs: Jobs) -> None:
        self._transport = transport
        self._jobs = jobs

    async def create(
        self, store_id: str, request: PurgeRequest, *, idempotency_key: str | None = None
    ) -> Job:
        """Start a purge; the answer is its job, which goes on by itself."""
        call = Call(
            method="POST",
            path=resource("stores", store_id, "purges"),
            json=request.document(),
            creates=True,
            idempotency_key=idempotency_key,
        )
        return job_of(await self._transport.request(call))

    async def plan(self, store_id: str, request: PurgeRequest, *, timeout_s: float | None = None) -> Plan:
        """Count what a purge would do, waiting for it where it takes long; nothing is written to the target.

        Raises:
            PlanFailed: the planning job did not succeed; `.job` says why.
            WaitTimedOut: it is not ready after `timeout_s`; its job goes on.
        """
        asked = await self.start_plan(
            store_id, request, wait_s=PLAN_WAIT_S if timeout_s is None else timeout_s
        )
        if isinstance(asked, Plan):
            return asked
        job = await self._jobs.wait(asked.id, timeout_s=timeout_s)
        if job.state != "SUCCEEDED":
            raise PlanFailed(job)
        return decode(Plan, job.result)

    async def start_plan(
        self, store_id: str, request: PurgeRequest, *, wait_s: float = PLAN_WAIT_S
    ) -> Plan | Job:
        """Ask for a plan; the answer is the plan where it is ready in time, else the PLAN job."""
        wait = max(0, min(PLAN_WAIT_S, int(wait_s)))
        answer = await self._transport.request(
            Call(
                method="POST",
                path=resource("stores", store_id, "purges"),
                params={"validate_only": True},
                json=request.document(),
                headers={"Prefer": f"wait={wait}"},
                creates=True,
                timeout_s=wait + PLAN_MARGIN_S,
            )
        )
        return job_of(answer) if answer.status == 202 else decode(Plan, answer.body)

    def list(self, store_id: str) -> AsyncIterator[Job]:
        return pages.items(self._transport, resource("stores", store_id, "purges"), Job)

    async def stats(self, store_id: str) -> PurgeStats:
        """Measure what lies beyond the retention, per table."""
        call = Call(method="GET", path=resource("stores", store_id, "purge-stats"), repeatable=True)
        return decode(PurgeStats, (await self._transport.request(call)).body)
