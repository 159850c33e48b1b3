"""Purges: plan one, run one, see what is left."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.errors import PlanFailed
from lethe_client.jobs import Jobs, job_of
from lethe_client.paths import resource
from lethe_client.purge_results import Plan, PurgeStats
from lethe_client.results import Job
from lethe_client.transport import Call, Transport

PLAN_WAIT_S: Final = 10
PLAN_MARGIN_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequest:
    """What to purge; None leaves a choice to the service (see api.md for its defaults).

    `retention_minutes` and `cutoff` exclude each other; `channel_retention_minutes`, channel to
    minutes, is for OUTGOING alone, `max_entries` for CHANGELOG alone, `gone_rids` for TOMBSTONES alone;
    `archive` keeps the removed rows as Parquet; `max_drift`, rows or a share below 1, goes with `plan_id`;
    `engine` is AUTO, INLINE or SPARK; `rows_per_s` and `bytes_per_s` are the throttle.
    """

    kind: str = "OUTGOING"
    retention_minutes: int | None = None
    cutoff: datetime | None = None
    channel_retention_minutes: dict[str, int] | None = None
    stranded: str | None = None
    strict: bool | None = None
    max_rows_in_tx: int | None = None
    max_entries: int | None = None
    gone_rids: list[int] | None = None
    strategy: str | None = None
    archive: bool = False
    engine: str | None = None
    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    force: bool | None = None
    overlap: str | None = None
    plan_id: str | None = None
    max_drift: float | None = None
    reason: str | None = None

    def document(self) -> dict[str, Any]:
        """Write the request's body, without what was not said."""
        throttle = {"rows_per_s": self.rows_per_s, "bytes_per_s": self.bytes_per_s}
        throttle = {name: value for name, value in throttle.items() if value is not None}
        body: dict[str, Any] = {
            "kind": self.kind,
            "retention_minutes": self.retention_minutes,
            "cutoff": self.cutoff.isoformat() if self.cutoff else None,
            "channel_retention_minutes": self.channel_retention_minutes,
            "stranded": self.stranded,
            "strict": self.strict,
            "max_rows_in_tx": self.max_rows_in_tx,
            "max_entries": self.max_entries,
            "gone_rids": self.gone_rids,
            "strategy": self.strategy,
            "archive": {"format": "PARQUET"} if self.archive else None,
            "engine": self.engine,
            "throttle": throttle or None,
            "force": self.force,
            "overlap": self.overlap,
            "plan_id": self.plan_id,
            "max_drift": self.max_drift,
            "reason": self.reason,
        }
        return {name: value for name, value in body.items() if value is not None}


class Purges:
    """`/v1/stores/{store}/purges`."""

    def __init__(self, transport: Transport, jobs: Jobs) -> None:
        self._transport = transport
        self._jobs = jobs

    def create(self, store_id: str, request: PurgeRequest, *, idempotency_key: str | None = None) -> Job:
        """Start a purge; the answer is its job, which goes on by itself."""
        call = Call(
            method="POST",
            path=resource("stores", store_id, "purges"),
            json=request.document(),
            creates=True,
            idempotency_key=idempotency_key,
        )
        return job_of(self._transport.request(call))

    def plan(self, store_id: str, request: PurgeRequest, *, timeout_s: float | None = None) -> Plan:
        """Count what a purge would do, waiting for it where it takes long; nothing is written to the target.

        Raises:
            PlanFailed: the planning job did not succeed; `.job` says why.
            WaitTimedOut: it is not ready after `timeout_s`; its job goes on.
        """
        asked = self.start_plan(store_id, request, wait_s=PLAN_WAIT_S if timeout_s is None else timeout_s)
        if isinstance(asked, Plan):
            return asked
        job = self._jobs.wait(asked.id, timeout_s=timeout_s)
        if job.state != "SUCCEEDED":
            raise PlanFailed(job)
        return decode(Plan, job.result)

    def start_plan(self, store_id: str, request: PurgeRequest, *, wait_s: float = PLAN_WAIT_S) -> Plan | Job:
        """Ask for a plan; the answer is the plan where it is ready in time, else the PLAN job."""
        wait = max(0, min(PLAN_WAIT_S, int(wait_s)))
        answer = self._transport.request(
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

    def list(self, store_id: str) -> Iterator[Job]:
        return pages.items(self._transport, resource("stores", store_id, "purges"), Job)

    def stats(self, store_id: str) -> PurgeStats:
        """Measure what lies beyond the retention, per table."""
        call = Call(method="GET", path=resource("stores", store_id, "purge-stats"), repeatable=True)
        return decode(PurgeStats, self._transport.request(call).body)
