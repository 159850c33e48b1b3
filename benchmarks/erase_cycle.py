"""A throttled cycle of the real service: does it keep to its plan, and what does waiting cost?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.process_tree import tree_cpu_s
from tests.http.metadata_rows import MetadataRows
from tests.http.service_process import ServiceProcess

STORE = "benchmark"
# Of a wait so much is left out before its end, when the service wakes.
WAKING_S = 0.3
WAIT_MIN_S = 1.0
IDLE_S = 10.0
PATIENCE = 3.0
POLL_S = 0.2


@dataclass(frozen=True)
class CycleFound:
    """What was seen of a cycle.

    Attributes:
        worked_s: from the first work that was paid to the last: where its throttle stood then and now. What
            was too slow moves that on.
        planned_s: what its throttle asked for the units that were paid between; for those of a file that were
            not needed nobody waits.
        waited_s, waiting_cpu_s: of the waits that were looked at, the processor time of the service and all
            that it has started.
        idle_cpu_percent: what the service takes when there is no cycle.
    """

    duration_s: float
    worked_s: float
    planned_s: float
    waited_s: float
    waiting_cpu_s: float
    state: str
    idle_cpu_percent: float

    @property
    def off_percent(self) -> float:
        """How far it was from its plan."""
        return 100 * abs(self.worked_s - self.planned_s) / self.planned_s if self.planned_s else 100.0

    @property
    def waiting_cpu_percent(self) -> float:
        """Of one core."""
        return 100 * self.waiting_cpu_s / self.waited_s if self.waited_s else 0.0


def measure(directory: Path, scratch: Path, *, duration_s: int) -> CycleFound:
    """Run one cycle over an environment, which is erased, in a service of its own."""
    settings = {"LETHE_ALLOWED_ROOTS": str(directory.parent)}
    service = ServiceProcess(scratch / "service", settings=settings).start()
    try:
        with service.http() as http:
            return _measure(http, service, directory, duration_s=duration_s)
    finally:
        service.stop()


def _measure(http: httpx.Client, service: ServiceProcess, directory: Path, *, duration_s: int) -> CycleFound:
    pid = service.pid
    body = {"id": STORE, "kind": "JE", "path": str(directory), "accept_medium": True}
    http.post("/v1/stores", json=body).raise_for_status()
    idle_cpu, began = tree_cpu_s(pid), time.monotonic()
    time.sleep(IDLE_S)
    idle_percent = 100 * (tree_cpu_s(pid) - idle_cpu) / (time.monotonic() - began)
    wanted = {"min_file_age": "PT0S", "duration": f"PT{duration_s}S"}
    http.post(f"/v1/stores/{STORE}/erasure-cycles", json=wanted).raise_for_status()
    waited_s = cpu_s = 0.0
    seen: list[tuple[datetime, float]] = []
    deadline = time.monotonic() + PATIENCE * duration_s + 60
    while (cycle := _read(http, "current"))["job_state"] not in ("SUCCEEDED", "FAILED", "ABORTED"):
        assert time.monotonic() < deadline, cycle
        # Read past the service, whose answers cost more than the wait.
        stands = _throttle(service)
        seen += [] if stands is None else [stands]
        wait_s = _wait_s(cycle)
        if wait_s < WAIT_MIN_S:
            time.sleep(POLL_S)
            continue
        cpu, began = tree_cpu_s(pid), time.monotonic()
        time.sleep(wait_s)
        cpu_s += tree_cpu_s(pid) - cpu
        waited_s += time.monotonic() - began
    assert seen, "the throttle was seen at work"
    worked_s = (seen[-1][0] - seen[0][0]).total_seconds()
    planned_s = seen[-1][1] - seen[0][1]
    return CycleFound(duration_s, worked_s, planned_s, waited_s, cpu_s, cycle["state"], idle_percent)


def _throttle(service: ServiceProcess) -> tuple[datetime, float] | None:
    """Where the throttle stands, and the seconds that it has asked for so far; None before the first work."""
    [cycle, paid] = MetadataRows(service).query(
        "select next_at, ms_per_unit from erasure_cycles", "select sum(charged_units) from erasure_files"
    )
    if cycle[0] is None or not paid[0]:
        return None
    return datetime.fromisoformat(str(cycle[0])), paid[0] * cycle[1] / 1000


def _wait_s(cycle: dict[str, Any]) -> float:
    """How long the cycle's job certainly waits from now on."""
    next_at = cycle["throttle"]["next_at"]
    if next_at is None:
        return 0.0
    return (datetime.fromisoformat(next_at) - datetime.now(UTC)).total_seconds() - WAKING_S


def _read(http: httpx.Client, path: str) -> dict[str, Any]:
    answer = http.get(f"/v1/stores/{STORE}/erasure-cycles/{path}")
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found
