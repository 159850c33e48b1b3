"""Made by `make client` from lethe_client/erasure.py: change that, not this."""

from collections.abc import AsyncIterator
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.jobs import Jobs
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.erasure import CURRENT, PLAN_MARGIN_S, PLAN_WAIT_S, CycleRequest
from lethe_client.erasure_results import ErasureCycle, ErasureFile, ErasurePlan, ErasureStats, LogEntry
from lethe_client.errors import PlanFailed
from lethe_client.jobs import job_of
from lethe_client.paths import resource
from lethe_client.results import Job
from lethe_client.transport import Call


class Erasure:
    """`/v1/stores/{store}/erasure-cycles`."""

    def __init__(self, transport: AsyncTransport, jobs: Jobs) -> None:
        self._transport = transport
        self._jobs = jobs

    async def begin(self, store_id: str, request: CycleRequest, *, idempotency_key: str | None = None) -> Job:
        """Begin a cycle; the answer is its job, whose subject is the cycle."""
        call = Call(
            method="POST",
            path=self._path(store_id),
            json=request.document(),
            creates=True,
            idempotency_key=idempotency_key,
        )
        return job_of(await self._transport.request(call))

    async def plan(
        self, store_id: str, request: CycleRequest, *, timeout_s: float | None = None
    ) -> ErasurePlan:
        """Say what a cycle would do now, waiting for it where it takes long; nothing is written.

        Raises:
            PlanFailed: the planning job did not succeed; `.job` says why.
            WaitTimedOut: it is not ready after `timeout_s`; its job goes on.
        """
        wait = PLAN_WAIT_S if timeout_s is None else max(0, min(PLAN_WAIT_S, int(timeout_s)))
        answer = await self._transport.request(
            Call(
                method="POST",
                path=self._path(store_id),
                params={"validate_only": True},
                json=request.document(),
                headers={"Prefer": f"wait={wait}"},
                creates=True,
                timeout_s=wait + PLAN_MARGIN_S,
            )
        )
        if answer.status != 202:
            return decode(ErasurePlan, answer.body)
        job = await self._jobs.wait(job_of(answer).id, timeout_s=timeout_s)
        if job.state != "SUCCEEDED":
            raise PlanFailed(job)
        return decode(ErasurePlan, job.result)

    async def get(self, store_id: str, cycle_id: str = CURRENT) -> ErasureCycle:
        return decode(ErasureCycle, await self._get(self._path(store_id, cycle_id)))

    def list(self, store_id: str) -> AsyncIterator[ErasureCycle]:
        return pages.items(self._transport, self._path(store_id), ErasureCycle)

    def files(self, store_id: str, cycle_id: str = CURRENT) -> AsyncIterator[ErasureFile]:
        return pages.items(self._transport, self._path(store_id, cycle_id, "files"), ErasureFile)

    async def stats(self, store_id: str) -> ErasureStats:
        """The eleven statistics, of the newest cycle and of all."""
        return decode(ErasureStats, await self._get(self._path(store_id, CURRENT, "stats")))

    async def log_entry(self, store_id: str, file: str, offset: int) -> LogEntry:
        """Look at one entry of the log: is it erased?"""
        path = resource("stores", store_id, "log-entries", file, str(offset))
        return decode(LogEntry, await self._get(path))

    async def certificate(self, store_id: str, cycle_id: str = CURRENT) -> bytes:
        """The certificate of a cycle that has ended, byte for byte; `certificates` checks it."""
        path = self._path(store_id, cycle_id, "certificate")
        return (await self._transport.request(Call(method="GET", path=path, repeatable=True))).content

    async def verify(
        self,
        store_id: str,
        cycle_id: str = CURRENT,
        *,
        engine: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Begin to read the environment again; the job fails where something in use leads to an erased entry.

        Args:
            engine: AUTO, INLINE or SPARK; None: the service's default.
        """
        path = resource("stores", store_id, "erasure-cycles", cycle_id, verb="verify")
        call = Call(
            method="POST", path=path, json={"engine": engine}, creates=True, idempotency_key=idempotency_key
        )
        return job_of(await self._transport.request(call))

    async def _get(self, path: str) -> Any:
        return (await self._transport.request(Call(method="GET", path=path, repeatable=True))).body

    @staticmethod
    def _path(store_id: str, *more: str) -> str:
        return resource("stores", store_id, "erasure-cycles", *more)
