"""Measures what a start of `lethe serve` costs: processor time, seconds to /readyz, memory when it is idle.

Each round starts a service on a fresh data directory, and once more on the same one, which has no migrations
to run, and beside them a Python that only imports the libraries that every service needs. Byte code is kept,
as wherever Lethe is installed: a start that is not counted comes first. Medians; memory is that of the second
start. Exit status 1: it was missed. Run it on a quiet machine.

    python -m benchmarks.start --rounds 5
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.gates import Gate
from benchmarks.process_tree import KIB, tree_cpu_s
from tests.http.service_process import LETHE
from tests.ports import free_port

ROUNDS = 5
READY_MAX_S = 1.5
BARE_MAX = 2.5
LIBRARIES = (
    "import alembic, fastapi, httpx, prometheus_client, pydantic_settings, sqlmodel, structlog, uvicorn"
)
"""What any service of this stack imports."""
MEMORY_MAX_MIB = 150.0
IDLE_S = 3.0
LOOK_S = 0.01
START_MAX_S = 60.0


@dataclass(frozen=True)
class Start:
    """One start: until it was ready, and what it held when nothing had been asked of it for IDLE_S."""

    ready_s: float
    cpu_s: float
    memory_mib: float


def measure(lethe: Path, data_dir: Path) -> Start:
    """Start a service, wait until it is ready and idle, and end it.

    Raises: RuntimeError: it ended, or was not ready in time.
    """
    port = free_port()
    command = [str(lethe), "serve", "--data-dir", str(data_dir), "--port", str(port)]
    begun = time.monotonic()
    quiet = subprocess.DEVNULL
    service = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=_keeping_byte_code())
    try:
        while not _is_ready(port):
            if service.poll() is not None or time.monotonic() - begun > START_MAX_S:
                raise RuntimeError(f"{' '.join(command)} was not ready")
            time.sleep(LOOK_S)
        ready_s, cpu_s = time.monotonic() - begun, tree_cpu_s(service.pid)
        time.sleep(IDLE_S)
        return Start(ready_s, cpu_s, _resident_mib(service.pid))
    finally:
        service.terminate()
        service.wait()


def bare_cpu_s() -> float:
    """Processor time of a Python that imports the libraries, and ends."""
    before = os.times()
    subprocess.run([sys.executable, "-c", LIBRARIES], check=True, env=_keeping_byte_code())
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def _keeping_byte_code() -> dict[str, str]:
    """This environment, whatever it says of byte code: compiling anew takes as long as the start itself."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / KIB
    raise RuntimeError(f"process {pid} is gone")


def _show(name: str, starts: Sequence[Start]) -> None:
    print(
        f"{name:<12} ready {median(each.ready_s for each in starts):5.2f} s"
        f"  processor {median(each.cpu_s for each in starts):5.2f} s"
        f"  memory {median(each.memory_mib for each in starts):6.1f} MiB"
    )


def main(args: Sequence[str] | None = None) -> int:
    """Measure, and say whether the bounds hold; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--lethe", type=Path, default=LETHE, help="another one, for before and after")
    given = parser.parse_args(args)
    fresh, again, bare = [], [], []
    with tempfile.TemporaryDirectory(prefix="lethe-start-") as folder:
        measure(given.lethe, Path(folder) / "first")
        bare_cpu_s()
        for number in range(given.rounds):
            data_dir = Path(folder) / str(number)
            fresh.append(measure(given.lethe, data_dir))
            again.append(measure(given.lethe, data_dir))
            bare.append(bare_cpu_s())
    print(f"load {os.getloadavg()[0]:.1f}, {given.rounds} rounds")
    _show("fresh", fresh)
    _show("again", again)
    print(f"libraries alone                 processor {median(bare):5.2f} s")
    ready_s, cpu_s = median(each.ready_s for each in again), median(each.cpu_s for each in again)
    memory_mib = median(each.memory_mib for each in again)
    gates = [
        Gate("ready", ready_s, READY_MAX_S, "s", at_least=False, judged=False),
        Gate("processor time, to the libraries alone", cpu_s / median(bare), BARE_MAX, "x", at_least=False),
        Gate("idle memory", memory_mib, MEMORY_MAX_MIB, "MiB", at_least=False),
    ]
    for gate in gates:
        print(gate.line())
    return 0 if all(gate.is_met for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
