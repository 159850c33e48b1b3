"""Measures the service under a mixed load beside jobs, its queue full: 300 requests a second for 10 minutes.

75 % ask for a job, 17 % for lists, 8 % change a store, by a fixed schedule. There are 1,000 stores, 10,000
queued jobs that no runner here may have, 1,000 schedules, and purges at work. The metadata is SQLite, as
that of a new service, or PostgreSQL; it, the service and the clients share this machine. Told are the
latencies, and the processor time of the service without any request, with few and with all of the jobs and
schedules: what its loops cost.
Exit status 1: an answer of 5xx, the p99 of reads more than 5 times that of the idle service, or the time of
the loops more than doubled by a hundred times the jobs.

    python benchmarks/mixed.py --seconds 120
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from sqlmodel import insert

from app.clock import SystemClock
from app.db import Database
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.ids import new_id
from benchmarks.gates import Gate
from benchmarks.mixed_load import Answered, Mix, run_mix
from benchmarks.process_tree import tree_cpu_s
from tests.app.test_flat_ticks import fill_schedules
from tests.http.service_process import ServiceProcess
from tests.journeys.crashes import build_large
from tests.journeys.ground import purge_request
from tests.oracles.symmetricds import Place
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory

STORES, SCHEDULES = 1_000, 1_000
FEW_JOBS, JOBS = 100, 10_000
AT_WORK = 4
IDLE_RATE_PER_S = 20.0
RATIO_MAX = 5.0
LOOPS_RATIO_MAX = 2.0
LOOPS_S_MIN = 0.2
"""Of less processor time nothing can be said."""
SETTINGS = {
    "LETHE_SPARK__ENABLED": "false",
    "LETHE_RUNNER_JOBS_MAX": "8",
    "LETHE_JOBS_QUEUED_MAX": "20000",
}


class Bench:
    """The service and what it has."""

    def __init__(self, stack: ExitStack, options: argparse.Namespace) -> None:
        self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = _postgresql(stack) if options.metadata == "postgresql" else None
        settings = SETTINGS | {"LETHE_API_PROCESSES": str(options.api_processes)}
        self.service = ServiceProcess(self.directory / "service", metadata_url=url, settings=settings).start()
        stack.callback(self.service.kill9)
        self.http = stack.enter_context(self.service.http())
        self.http.timeout = 60
        self.database = Database(
            url or f"sqlite:///{self.service.data_dir / 'lethe.db'}", clock=SystemClock()
        )
        stack.callback(self.database.close)
        self.stores = [f"store-{number:04}" for number in range(STORES)]
        for store in self.stores:
            body = {"id": store, "kind": "SYMMETRICDS", "url": f"sqlite:///{self.directory}/{store}.db"}
            self.http.post("/v1/stores", json=body).raise_for_status()
        self.jobs: list[str] = []
        context = multiprocessing.get_context("spawn")
        self.clients = stack.enter_context(ProcessPoolExecutor(1, mp_context=context))

    def queue(self, upto: int) -> None:
        """Jobs that wait for a runner elsewhere."""
        with self.database.transaction() as db:
            now = self.database.now(db)
            shape = Job(id="", kind="PURGE", created_at=now, updated_at=now, requested_by="ann").model_dump()
            shape |= {"runs_on": ["elsewhere"], "runs_on_key": "elsewhere", "state": JobState.QUEUED}
            rows = [
                shape | {"id": new_id("job"), "store": self.stores[number % STORES]}
                for number in range(len(self.jobs), upto)
            ]
            db.execute(insert(Job), rows)
        self.jobs += [row["id"] for row in rows]

    def work(self, seconds: float) -> None:
        """Purges that last as long as the load, with many small units."""
        for number in range(AT_WORK):
            place = Place(f"sqlite:///{self.directory}/work-{number}.db")
            build_large(place, number, rows=4_000)
            body = {"id": f"work-{number}", "kind": "SYMMETRICDS", "url": place.url}
            self.http.post("/v1/stores", json=body).raise_for_status()
            request = purge_request(place, archive=True, max_rows_in_tx=20, rows_per_s=6_000 / seconds)
            path = f"/v1/stores/work-{number}/purges"
            self.http.post(path, json=request.document()).raise_for_status()

    def loops_s(self, seconds: float) -> float:
        """Processor time of the service while nobody asks it anything, and somebody writes each second."""
        before = tree_cpu_s(self.service.pid)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(1)
            self.queue(len(self.jobs) + 1)
        return tree_cpu_s(self.service.pid) - before

    def ask(self, seconds: float, rate_per_s: float, *, changes: bool) -> list[Answered]:
        """The load."""
        mix = Mix(self.service.port, self.service.token, self.jobs, self.stores, rate_per_s, changes)
        return self.clients.submit(run_mix, mix, seconds, 1).result()


def _postgresql(stack: ExitStack) -> str:
    binaries = find_binaries(stack.enter_context(scratch_directory("lethe-binaries-")))
    server = PostgresqlServer(binaries, stack.enter_context(scratch_directory()))
    server.start()
    stack.callback(server.stop)
    return server.create_database("metadata")


def p99_ms(answers: Sequence[Answered], *kinds: str) -> float:
    """The latency that one in a hundred exceeds."""
    found = sorted(each.latency_s for each in answers if each.kind in kinds)
    return found[int(len(found) * 0.99)] * 1000


def lines(name: str, answers: Sequence[Answered]) -> str:
    """Latencies of each kind of request."""
    found = []
    for kind in ("get", "list", "change"):
        took = sorted(each.latency_s * 1000 for each in answers if each.kind == kind)
        if took:
            quantiles = "".join(
                f"{took[min(len(took) - 1, int(len(took) * q))]:>9.1f}" for q in (0.5, 0.99, 1.0)
            )
            found.append(f"{name:<8}{kind:<8}{len(took):>9,}{quantiles}")
    return "\n".join(found)


def measure(options: argparse.Namespace) -> list[Gate]:
    """Run it; what is judged."""
    with ExitStack() as stack:
        bench = Bench(stack, options)
        bench.queue(FEW_JOBS)
        few_s = bench.loops_s(options.loops_seconds)
        bench.queue(JOBS)
        fill_schedules(bench.database, SystemClock(), 0, SCHEDULES)
        many_s = bench.loops_s(options.loops_seconds)
        idle = bench.ask(options.idle_seconds, IDLE_RATE_PER_S, changes=False)
        bench.work(options.seconds)
        began, cpu_s = time.monotonic(), tree_cpu_s(bench.service.pid)
        busy = bench.ask(options.seconds, options.rate, changes=True)
        cpu_s = (tree_cpu_s(bench.service.pid) - cpu_s) / (time.monotonic() - began)
    print(f"{'':<16}{'requests':>9}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}")
    print(lines("idle", idle), lines("loaded", busy), sep="\n")
    statuses = Counter(each.status for each in busy)
    print(f"p99 of all {p99_ms(busy, 'get', 'list', 'change'):.0f} ms at {options.rate:g} requests a second")
    print(f"answers {dict(statuses)}; the service takes {cpu_s:.2f} cores under the load")
    print(f"its loops take {few_s:.2f} s at {FEW_JOBS} jobs and {many_s:.2f} s at {JOBS:,}")
    ratio = p99_ms(busy, "get", "list") / p99_ms(idle, "get", "list")
    return [
        Gate(
            "answers of 5xx", sum(n for status, n in statuses.items() if status >= 500), 0, "", at_least=False
        ),
        Gate("p99 of reads, to idle", ratio, RATIO_MAX, "x", at_least=False, judged=options.judged),
        Gate(
            "loops, 10,000 jobs to 100",
            max(many_s, LOOPS_S_MIN) / max(few_s, LOOPS_S_MIN),
            LOOPS_RATIO_MAX,
            "x",
            at_least=False,
        ),
    ]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the load lasts")
    parser.add_argument("--rate", type=float, default=300.0, help="requests a second")
    parser.add_argument("--idle-seconds", type=float, default=15.0)
    parser.add_argument("--loops-seconds", type=float, default=20.0)
    parser.add_argument("--metadata", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--api-processes", type=int, default=1, help="that answer; more than one: PostgreSQL")
    parser.add_argument("--not-judged", dest="judged", action="store_false", help="times on a busy machine")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure; 0: all that is judged held."""
    gates = measure(parse(arguments))
    for gate in gates:
        print(gate.line())
    return 0 if all(gate.is_met for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
