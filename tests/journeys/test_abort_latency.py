"""How long a backup waits for the eraser: from its request to the answer, in each step of a round."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.journeys.service import Service
from tests.journeys.standing_in import register, standing_in

pytestmark = pytest.mark.journey


@pytest.fixture(scope="module")
def service(standing_service: Service) -> Service:
    """The service that journeys share."""
    return standing_service


@pytest.fixture
def env(service: Service, tmp_path: Path) -> Path:
    return register(service, tmp_path)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(service: Service, env: Path, times: int, steps: tuple[str, ...]) -> None:
    """POST while a file is in a step; from the request to its answer, against a round of the same run."""
    latencies: dict[str, list[float]] = {step: [] for step in steps}
    rounds_ms: list[float] = []
    proofs_ms: list[float] = []
    bearer = {"Authorization": f"Bearer {service.token}"}
    path = f"/v1/stores/{env.name}/backup-sessions"
    with standing_in(env) as eraser, httpx.Client(base_url=service.url, headers=bearer, timeout=60) as http:
        number = eraser.files[0]
        for turn in range(times):
            step = steps[turn % len(steps)]
            eraser.tell(step, number)
            assert eraser.read() == ["held"]
            begun = time.perf_counter()
            answer = http.post(path, json={})
            latencies[step].append((time.perf_counter() - begun) * 1000)
            assert answer.status_code == 201, answer.text
            proofs_ms.append(answer.json()["abort_latency_ms"])
            code, round_ms = eraser.read()
            # A round whose last write is done only has its fsync left.
            assert code in {"READ": ("NONE",), "OVERWRITE": ("NONE", "STOPPED")}.get(step, ("STOPPED",))
            rounds_ms.append(float(round_ms))
            assert http.post(f"{path}/{answer.json()['id']}:end").json()["valid"] is True
    every = [value for values in latencies.values() for value in values]
    print(f"\nabortErase by POST, {times} times; a round lasts {percentile(rounds_ms, 0.5):.1f} ms (p50)")
    for step, values in latencies.items():
        print(f"  {step:9} p50 {percentile(values, 0.5):6.1f} ms  p99 {percentile(values, 0.99):6.1f} ms")
    print(f"  proof     p50 {percentile(proofs_ms, 0.5):6.1f} ms  p99 {percentile(proofs_ms, 0.99):6.1f} ms")
    print(f"  all       p50 {percentile(every, 0.5):6.1f} ms  p99 {percentile(every, 0.99):6.1f} ms")


STEPS = ("READ", "TOUCH", "MARK", "OVERWRITE")


def test_latency_of_an_abort_in_each_step(service: Service, env: Path) -> None:
    measure(service, env, 8, STEPS)


@pytest.mark.long
def test_latency_of_an_abort_in_each_step_many_times(service: Service, env: Path) -> None:
    measure(service, env, 500, STEPS)
