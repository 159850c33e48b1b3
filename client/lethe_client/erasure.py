"""Erasure of JE logs: plan a cycle, begin one, look at cycles, files and statistics."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.erasure_results import ErasureCycle, ErasureFile, ErasurePlan, ErasureStats, LogEntry
from lethe_client.errors import PlanFailed
from lethe_client.jobs import Jobs, job_of
from lethe_client.paths import resource
from lethe_client.results import Job
from lethe_client.transport import Call, Transport

PLAN_WAIT_S: Final = 10
PLAN_MARGIN_S: Final = 20.0
CURRENT: Final = "current"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRequest:
    """What to erase; durations are ISO 8601, None leaves a choice to the service and the store's parameters.

    `period` excludes `min_file_age` and `duration`, which go together; `duration="PT0S"` has no throttle.
    `plan_id` erases entries of that plan and no others, and goes with `duration` alone; `max_drift`, entries
    or a share below 1, goes with it.
    """

    period: str | None = None
    min_file_age: str | None = None
    duration: str | None = None
    kinds: Sequence[str] | None = None
    engine: str | None = None
    bytes_per_s: float | None = None
    intensity: float | None = None
    plan_id: str | None = None
    max_drift: float | None = None
    reason: str | None = None

    def document(self) -> dict[str, Any]:
        """Write the request's body, without what was not said."""
        throttle = {"bytes_per_s": self.bytes_per_s, "intensity": self.intensity}
        throttle = {name: value for name, value in throttle.items() if value is not None}
        body: dict[str, Any] = {
            "period": self.period,
            "min_file_age": self.min_file_age,
            "duration": self.duration,
            "kinds": None if self.kinds is None else list(self.kinds),
            "engine": self.engine,
            "throttle": throttle or None,
            "plan_id": self.plan_id,
            "max_drift": self.max_drift,
            "reason": self.reason,
        }
        return {name: value for name, value in body.items() if value is not None}


class Erasure:
    """`/v1/stores/{store}/erasure-cycles`."""

    def __init__(self, transport: Transport, jobs: Jobs) -> None:
        self._transport = transport
        self._jobs = jobs

    def begin(self, store_id: str, request: CycleRequest, *, idempotency_key: str | None = None) -> Job:
        """Begin a cycle; the answer is its job, whose subject is the cycle."""
        call = Call(
            method="POST",
            path=self._path(store_id),
            json=request.document(),
            creates=True,
            idempotency_key=idempotency_key,
        )
        return job_of(self._transport.request(call))

    def plan(self, store_id: str, request: CycleRequest, *, timeout_s: float | None = None) -> ErasurePlan:
        """Say what a cycle would do now, waiting for it where it takes long; nothing is written.

        Raises:
            PlanFailed: the planning job did not succeed; `.job` says why.
            WaitTimedOut: it is not ready after `timeout_s`; its job goes on.
        """
        wait = PLAN_WAIT_S if timeout_s is None else max(0, min(PLAN_WAIT_S, int(timeout_s)))
        answer = self._transport.request(
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
        job = self._jobs.wait(job_of(answer).id, timeout_s=timeout_s)
        if job.state != "SUCCEEDED":
            raise PlanFailed(job)
        return decode(ErasurePlan, job.result)

    def get(self, store_id: str, cycle_id: str = CURRENT) -> ErasureCycle:
        return decode(ErasureCycle, self._get(self._path(store_id, cycle_id)))

    def list(self, store_id: str) -> Iterator[ErasureCycle]:
        return pages.items(self._transport, self._path(store_id), ErasureCycle)

    def files(self, store_id: str, cycle_id: str = CURRENT) -> Iterator[ErasureFile]:
        return pages.items(self._transport, self._path(store_id, cycle_id, "files"), ErasureFile)

    def stats(self, store_id: str) -> ErasureStats:
        """The eleven statistics, of the newest cycle and of all."""
        return decode(ErasureStats, self._get(self._path(store_id, CURRENT, "stats")))

    def log_entry(self, store_id: str, file: str, offset: int) -> LogEntry:
        """Look at one entry of the log: is it erased?"""
        path = resource("stores", store_id, "log-entries", file, str(offset))
        return decode(LogEntry, self._get(path))

    def certificate(self, store_id: str, cycle_id: str = CURRENT) -> bytes:
        """The certificate of a cycle that has ended, byte for byte; `certificates` checks it."""
        path = self._path(store_id, cycle_id, "certificate")
        return self._transport.request(Call(method="GET", path=path, repeatable=True)).content

    def verify(
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
        return job_of(self._transport.request(call))

    def _get(self, path: str) -> Any:
        return self._transport.request(Call(method="GET", path=path, repeatable=True)).body

    @staticmethod
    def _path(store_id: str, *more: str) -> str:
        return resource("stores", store_id, "erasure-cycles", *more)
