"""Measures how the API answers while a large purge runs: p99 of GET job, against the same load and no purge.

50 clients ask at 100 requests a second in all, by a fixed schedule. Service, PostgreSQL and clients share
this machine. In each round a fresh copy of the data set is purged; idle and busy rounds take turns. Also
told: how long it takes from POST to RUNNING.
Exit status 1: the p99 beside a purge is more than 5 times the idle one, or an answer was not 200.

    python benchmarks/api.py --rounds 1
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import httpx
from sqlalchemy.engine import make_url

from benchmarks.api_load import Load, Sample, run_load
from benchmarks.purge import SETTINGS, Ground
from benchmarks.purge_shapes import CUTOFF, SHAPES, Shape
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.http.targets import copy_reference
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory

SHAPE = "dense-1m"
ROWS = 3_000_000
ROWS_MIN = 1_000_000
CLIENTS = 50
RATE_PER_S = 100.0
RATIO_MAX = 5.0
IDLE_S = 15.0
BUSY_MAX_S = 600.0
STARTS = 20
SAMPLES_MIN = 300
WARM_UP_S = 3.0


@dataclass
class Found:
    """All samples of one situation."""

    name: str
    samples: list[Sample] = field(default_factory=list)

    def quantile_ms(self, share: float) -> float:
        """The latency that this share of the requests did not exceed; not a number where there were none."""
        if not self.samples:
            return math.nan
        ordered = sorted(sample.latency_s for sample in self.samples)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000

    @property
    def errors(self) -> int:
        """Answers that were not 200."""
        return sum(sample.status != 200 for sample in self.samples)

    def line(self) -> str:
        """One row of the table."""
        quantiles = "".join(f"{self.quantile_ms(share):>10.1f}" for share in (0.5, 0.9, 0.99, 1.0))
        return f"{self.name:<14}{len(self.samples):>10,}{self.errors:>8}{quantiles}"


class Bench:
    """A service, a filled database, and a process of clients."""

    def __init__(self, stack: ExitStack, options: argparse.Namespace, shape: Shape) -> None:
        directory = stack.enter_context(scratch_directory("lethe-bench-api-"))
        self.ground = _own_ground(stack)
        metadata = _metadata_url(self.ground) if options.metadata == "postgresql" else None
        self.service = ServiceProcess(directory, metadata_url=metadata).start()
        stack.callback(self.service.stop)
        self.http = stack.enter_context(self.service.http())
        context = multiprocessing.get_context("spawn")
        self.clients = stack.enter_context(ProcessPoolExecutor(1, mp_context=context))
        self.filled = stack.enter_context(self.ground.filled(shape))
        self.directory = directory
        self._stores = 0

    def store(self, url: str) -> str:
        """Register a target; returns the store's id."""
        self._stores += 1
        name = f"bench-{self._stores}"
        body = {"id": name, "kind": "SYMMETRICDS", "url": url}
        self.http.post("/v1/stores", json=body).raise_for_status()
        return name

    def load(self, job_id: str, *, seconds: float, until_ended: bool) -> list[Sample]:
        """Ask for a job from the clients' process."""
        load = Load(self.service.port, f"/v1/jobs/{job_id}", self.service.token, CLIENTS, RATE_PER_S)
        return self.clients.submit(run_load, load, seconds, until_ended).result()

    def idle(self, seconds: float) -> list[Sample]:
        """The load while nothing runs, on a job that has ended."""
        jobs = self.http.get("/v1/jobs", params={"state": "SUCCEEDED", "page_size": "1"}).json()["items"]
        return self.load(jobs[0]["id"], seconds=seconds, until_ended=False)

    def busy(self) -> list[Sample]:
        """The load on the job of a purge, from its first RUNNING to its end."""
        with self.ground.copied(self.filled) as database:
            url = make_url(self.ground.conninfo(database)).set(drivername="postgresql+psycopg")
            store = self.store(url.render_as_string(hide_password=False))
            job_id = purge(self.http, store)
            wait_for(self.http, job_id, "RUNNING", "SUCCEEDED")
            samples = self.load(job_id, seconds=BUSY_MAX_S, until_ended=True)
            job = wait_for(self.http, job_id)
            assert job["state"] == "SUCCEEDED", job["error"]
            removed = sum(job["result"]["removed"].values())
            print(
                f"  purged {removed:,} rows in {_seconds(job, 'started_at', 'finished_at'):.1f} s", flush=True
            )
        return [sample for sample in samples if sample.state == "RUNNING"]


def purge(http: httpx.Client, store: str) -> str:
    """Ask for a purge and return its job's id."""
    body = {"kind": "OUTGOING", "cutoff": f"{CUTOFF.isoformat()}Z"}
    answer = http.post(f"/v1/stores/{store}/purges", json=body)
    answer.raise_for_status()
    return str(answer.json()["id"])


def _seconds(job: dict[str, str], first: str, last: str) -> float:
    return (datetime.fromisoformat(job[last]) - datetime.fromisoformat(job[first])).total_seconds()


def post_to_running_ms(bench: Bench) -> list[float]:
    """From the POST of a small purge to its first RUNNING, many times."""
    store = bench.store(f"sqlite:///{copy_reference(Path(bench.directory) / 'small.sqlite')}")
    found = []
    for _ in range(STARTS):
        sent = time.time()
        job = wait_for(bench.http, purge(bench.http, store))
        found.append((datetime.fromisoformat(job["started_at"]).timestamp() - sent) * 1000)
    return found


def _own_ground(stack: ExitStack) -> Ground:
    binaries = find_binaries(stack.enter_context(scratch_directory("lethe-binaries-")))
    server = PostgresqlServer(binaries, stack.enter_context(scratch_directory()), settings=SETTINGS)
    server.start()
    stack.callback(server.stop)
    return Ground(make_url(server.url()))


def _metadata_url(ground: Ground) -> str:
    ground.execute("create database lethe_metadata")
    url = make_url(ground.conninfo("lethe_metadata")).set(drivername="postgresql+psycopg")
    return url.render_as_string(hide_password=False)


def measure(options: argparse.Namespace) -> tuple[Found, Found, list[float]]:
    """Idle and busy in turn; returns both and the times from POST to RUNNING."""
    idle, busy = Found("idle"), Found("beside purge")
    with ExitStack() as stack:
        bench = Bench(stack, options, replace(SHAPES[SHAPE], rows=options.rows))
        starts = post_to_running_ms(bench)
        bench.idle(WARM_UP_S)
        for _ in range(options.rounds):
            idle.samples += bench.idle(options.idle_seconds)
            busy.samples += bench.busy()
    return idle, busy, starts


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2, help="purges; the samples of all count together")
    parser.add_argument("--rows", type=int, default=ROWS, help="captured rows; below 1 M nothing is judged")
    parser.add_argument("--idle-seconds", type=float, default=IDLE_S, help="of each idle round")
    parser.add_argument(
        "--metadata", choices=("sqlite", "postgresql"), default="sqlite", help="of the service"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure; 0: the ratio held and every answer was 200."""
    options = parse(arguments)
    idle, busy, starts = measure(options)
    ratio = busy.quantile_ms(0.99) / idle.quantile_ms(0.99)
    judged = options.rows >= ROWS_MIN
    enough = not judged or len(busy.samples) >= SAMPLES_MIN
    right = not (idle.errors or busy.errors) and enough and (not judged or ratio <= RATIO_MAX)
    print(f"\nGET job, {CLIENTS} clients, {RATE_PER_S:g} requests/s, metadata on {options.metadata}")
    print(f"{'':<14}{'requests':>10}{'errors':>8}{'p50 ms':>10}{'p90 ms':>10}{'p99 ms':>10}{'max ms':>10}")
    print(idle.line())
    print(busy.line())
    median_ms = statistics.median(starts)
    print(f"POST to RUNNING: median {median_ms:.0f} ms, worst {max(starts):.0f} ms of {len(starts)}")
    print(f"p99 ratio {ratio:.2f}x, at most {RATIO_MAX:g}x asked  {'OK' if right else 'MISSED'}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
