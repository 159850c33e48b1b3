"""Measures the event cleanup of Slony-I through the service, as ratios in the same run.

One catalog: cleanup BUILTIN, from the request to the end of the job, against the program's own cleanupEvent()
with its lock and COMMIT, each on a fresh copy of one database; both must leave the same. Fleets: as many
catalogs, each a cluster of its own, by one request to /v1/jobs:batch against one job after another; by
NATIVE, as where nothing is asked for, and by BUILTIN, whose units keep both cores busy for one catalog alone;
beside them what two cores are worth here: the program itself on two catalogs at once.
Services, database server and this program share the machine; fsync is on.
Exit status 1: a figure was missed, or the two cleanups left different rows. The last line is JSON.

    python benchmarks/slony.py --rounds 1 --fleet 0
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lethe_client import Job, Lethe
from lethe_client.slony import CleanupRequest

from benchmarks.gates import Gate
from benchmarks.purge import SETTINGS
from benchmarks.slony_catalogs import INTERVAL, Copies, Shape, contents, fill
from tests.http.service_process import ServiceProcess
from tests.postgresql_server import scratch_directory
from tests.slony_cluster import CLUSTER, bare_cluster
from tests.slony_programs import missing

Via = Literal["NATIVE", "BUILTIN"]
EVENTS, CONFIRMATIONS = 2_000_000, 200_000
FLEET = 20
QUICK_EVENTS, QUICK_FLEET = 6_000, 2
RATIO = 1.0
FLEET_RATIO = 1.5
MACHINE_CATALOGS = 4
FLEET_WORK_S = 2.0
"""What one catalog of the fleet must at least have taken alone."""
JOB_MAX_S = 1_800.0
NODE = 1
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", **SETTINGS}
VIAS: Sequence[Via] = ("NATIVE", "BUILTIN")
REQUEST: dict[str, Any] = {"interval": "PT10M"}


@dataclass
class Single:
    """One catalog, cleaned by both."""

    shape: Shape
    program_s: list[float] = field(default_factory=list)
    lethe_s: list[float] = field(default_factory=list)
    differing: int = 0
    removed: Any = None

    @property
    def ratio(self) -> float:
        """How many times faster than the program."""
        return statistics.median(self.program_s) / statistics.median(self.lethe_s)

    def gate(self) -> Gate:
        """What is asked of it."""
        return Gate(
            "BUILTIN against cleanupEvent()", self.ratio, RATIO, "x", judged=self.shape.events >= EVENTS
        )

    def line(self) -> str:
        """What lies behind the gate."""
        return (
            f"{self.shape.events:,} events, {self.shape.confirmations:,} confirmations: "
            f"program {_seconds(self.program_s)}, Lethe {_seconds(self.lethe_s)}, removed {self.removed}"
        )


@dataclass
class Fleet:
    """Many catalogs, cleaned one after another and at once."""

    via: Via
    catalogs: int
    events: int
    alone_s: list[float]
    together_s: float

    @property
    def gates(self) -> list[Gate]:
        """What is asked of it."""
        judged = self.catalogs >= FLEET
        ratio = sum(self.alone_s) / self.together_s
        return [
            Gate(f"fleet {self.via}: at once against one by one", ratio, FLEET_RATIO, "x", judged=judged),
            Gate(
                f"fleet {self.via}: work of one catalog",
                statistics.median(self.alone_s),
                FLEET_WORK_S,
                "s",
                judged=judged,
            ),
        ]

    def line(self) -> str:
        """What lies behind the gates."""
        return (
            f"{self.catalogs} catalogs of {self.events:,} events, {self.via}: "
            f"one by one {sum(self.alone_s):.1f} s (each {_seconds(self.alone_s)}), "
            f"at once {self.together_s:.1f} s"
        )


def _seconds(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} s [{min(values):.2f} to {max(values):.2f}]"


class Bench:
    """A service, and a filled catalog of which copies are made."""

    def __init__(self, stack: ExitStack, shape: Shape, engine: str, *, durable: bool) -> None:
        self._engine = engine
        directory = Path(stack.enter_context(scratch_directory("lethe-bench-slony-")))
        settings = {} if engine == "SPARK" else {"LETHE_SPARK__ENABLED": "false"}
        service = ServiceProcess(directory, settings=settings).start()
        stack.callback(service.stop)
        self.client: Lethe = stack.enter_context(service.library())
        cluster = stack.enter_context(bare_cluster(settings=DURABLE if durable else None))
        fill(cluster, NODE, shape)
        self.copies = Copies(cluster, NODE)

    def request(self, via: Via) -> dict[str, Any]:
        """What the service is asked for."""
        return {**REQUEST, "via": via, "engine": self._engine}

    def register(self, names: Sequence[str], urls: Sequence[str]) -> None:
        """Make stores of copies."""
        for name, url in zip(names, urls, strict=True):
            self.client.stores.create(name, url, kind="SLONY", cluster=CLUSTER)

    def forget(self, names: Sequence[str]) -> None:
        """Take the stores away."""
        for name in names:
            self.client.stores.delete(self.client.stores.get(name))

    def clean(self, name: str, via: Via) -> tuple[float, Job]:
        """One cleanup through the service, to its end; the seconds it took."""
        began = time.perf_counter()
        job = self._ended(self.client.slony.cleanup(name, CleanupRequest(**self.request(via))))
        return time.perf_counter() - began, job

    def clean_all(self, names: Sequence[str], via: Via) -> float:
        """The same for many, by one request."""
        began = time.perf_counter()
        job = self.client.jobs.batch(kind="EVENT_CLEANUP", params=self.request(via), stores=names)
        self._ended(job)
        return time.perf_counter() - began

    def _ended(self, job: Job) -> Job:
        ended = self.client.jobs.wait(job.id, timeout_s=JOB_MAX_S)
        assert ended.state == "SUCCEEDED", ended.raw
        return ended


def measure_single(bench: Bench, shape: Shape, rounds: int) -> Single:
    """Both cleanups in turn, each on a copy of its own."""
    found = Single(shape)
    for number in range(rounds):
        left = {}
        for side in ("program", "lethe") if number % 2 == 0 else ("lethe", "program"):
            name = f"copy-{side}-{number}"
            with bench.copies.made([name]) as urls:
                if side == "program":
                    found.program_s.append(_by_program(bench.copies, name))
                else:
                    bench.register([name], urls)
                    seconds, job = bench.clean(name, "BUILTIN")
                    found.lethe_s.append(seconds)
                    found.removed = (job.result or {}).get("removed")
                    bench.forget([name])
                left[side] = contents(bench.copies, name)
        found.differing += left["program"] != left["lethe"]
    return found


def _by_program(copies: Copies, name: str) -> float:
    """As slon does it: the lock, the function, COMMIT."""
    with copies.session(name) as session:
        began = time.perf_counter()
        with session.transaction():
            session.execute("lock table sl_config_lock in access exclusive mode")
            session.execute("select cleanupEvent(%s::interval)", (INTERVAL,))
        return time.perf_counter() - began


def measure_machine(copies: Copies) -> float:
    """How much faster the program itself is on two catalogs at once than on one after another."""
    names = [f"machine-{number}" for number in range(2 * MACHINE_CATALOGS)]
    with copies.made(names), ThreadPoolExecutor(2) as two:
        began = time.perf_counter()
        for name in names[:MACHINE_CATALOGS]:
            _by_program(copies, name)
        one_by_one = time.perf_counter()
        list(two.map(lambda name: _by_program(copies, name), names[MACHINE_CATALOGS:]))
        return (one_by_one - began) / (time.perf_counter() - one_by_one)


def measure_fleet(bench: Bench, via: Via, catalogs: int, events: int) -> Fleet:
    """All copies one after another, then as many fresh ones at once."""
    names = [f"fleet-{number}" for number in range(catalogs)]
    with bench.copies.made(names) as urls:
        bench.register(names, urls)
        alone = [bench.clean(name, via)[0] for name in names]
        bench.forget(names)
    with bench.copies.made(names) as urls:
        bench.register(names, urls)
        together = bench.clean_all(names, via)
        bench.forget(names)
    return Fleet(via, catalogs, events, alone, together)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--confirmations", type=int, default=CONFIRMATIONS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fleet", type=int, default=FLEET, help="catalogs; 0: none")
    parser.add_argument("--engine", choices=("INLINE", "SPARK"), default="INLINE")
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_EVENTS:,} events, {QUICK_FLEET} catalogs"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.events, options.confirmations = QUICK_EVENTS, QUICK_EVENTS // 10
        options.rounds, options.fleet = 1, QUICK_FLEET
    return options


def main(arguments: Sequence[str]) -> int:
    """Measure; 0: every figure held and both left the same each time."""
    options = parse(arguments)
    reason = missing()
    if reason is not None:
        print(f"not measured: {reason}")
        return 0
    shape = Shape(options.events, options.confirmations)
    gates: list[Gate] = []
    document: dict[str, Any] = {}
    with ExitStack() as stack:
        bench = Bench(stack, shape, options.engine, durable=not options.quick)
        single = measure_single(bench, shape, options.rounds)
        print(single.line(), flush=True)
        gates.append(single.gate())
        document["single"] = {**vars(single), "shape": vars(shape)}
        if options.fleet:
            document["machine"] = measure_machine(bench.copies)
            print(
                f"the program itself, two catalogs at once: {document['machine']:.2f}x one by one", flush=True
            )
        for via in VIAS if options.fleet else ():
            fleet = measure_fleet(bench, via, options.fleet, options.events)
            print(fleet.line(), flush=True)
            gates += fleet.gates
            document.setdefault("fleets", []).append(vars(fleet))
    document["gates"] = [vars(gate) | {"met": gate.is_met} for gate in gates]
    for gate in gates:
        print(gate.line())
    if single.differing:
        print(f"DIFFERENT: in {single.differing} round(s) Lethe did not leave what the program left")
    print(json.dumps(document))
    return 0 if all(gate.is_met for gate in gates) and not single.differing else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
