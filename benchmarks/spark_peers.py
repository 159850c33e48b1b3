"""Compares who can do the units of the service on one machine, with equal results, on one core and on two.

The same units are done by threads of the service (INLINE), by a pool of processes from Python's library, and
by the pooled Spark session: purges of a fleet, a scan for extinct records, the window of a replication
session, the plan of an erasure, an archive that is read again, and units that cost next to nothing. An
erasure's rounds are not among them: they are one call after the other in any engine. A case's first run, with
the start before it, is what it takes where nothing is up; the median of the others is what it takes on a pool
that is warm.

Exit status 1: AUTO, by the table of app/kit/spark/thresholds.py, would take more than a tenth longer than the
better of INLINE and SPARK; a small unit costs more than 20 ms on Spark beyond its work; results differ.

    python -m benchmarks.spark_peers --rounds 3
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from app.kit.spark.thresholds import HERE, Speeds, WorkKind
from benchmarks.gates import Gate
from benchmarks.spark_cases import Case, Left, Size, cases, small_alone, small_work
from benchmarks.spark_engines import NAMES, Crew, crew
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory

ROOT: Final = Path(__file__).parents[1]
AUTO_MOST: Final = 1.1
UNIT_MS_MOST: Final = 20.0
WORK_LEAST_S: Final = 0.5
"""What takes less is not judged: it spreads by more than a tenth."""
QUICK: Final = Size(
    small_units=10,
    stores=2,
    rows=2_000,
    entries=5_000,
    changes=5_000,
    log_bytes=2_000_000,
    archive_files=6,
    archive_rows=500,
)
FAST_SERVER: Final = {"fsync": "off", "autovacuum": "off", "shared_buffers": "256MB"}


@dataclass
class Found:
    """What one case took on some cores; seconds, by who did it.

    Attributes:
        first: of its first run, to which the start comes where nothing is up.
        warm: of the others.
    """

    name: str
    kind: WorkKind | None
    size: int
    cores: int
    first: dict[str, float] = field(default_factory=dict)
    warm: dict[str, list[float]] = field(default_factory=dict)
    starts: dict[str, float] = field(default_factory=dict)
    is_equal: bool = True

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """As another process has written it."""
        return cls(**found)

    def warm_s(self, name: str) -> float:
        """On a pool that is up."""
        return statistics.median(self.warm[name])

    def cold_s(self, name: str) -> float:
        """Where it has to be started first."""
        return self.starts[name] + self.first[name]

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.cores} core{'s' if self.cores > 1 else ''}, {self.name}, {self.size:,}"
        for name in NAMES:
            spread = f"{min(self.warm[name]):.2f} to {max(self.warm[name]):.2f}"
            yield (
                f"  {name:<10}{self.warm_s(name):>8.2f} s ({spread}), "
                f"with its start {self.cold_s(name):.2f} s; "
                f"to threads {self.warm_s(name) / self.warm_s('threads'):.2f}x"
            )

    def gates(self) -> Iterator[Gate]:
        """What is asked of it."""
        if self.kind is None:
            longer_ms = 1000 * (self.warm_s("spark") - self.warm_s("threads")) / self.size
            name = f"{self.name}, {self.cores} of cores: ms a unit"
            yield Gate(name, longer_ms, UNIT_MS_MOST, "ms", at_least=False)
            return
        threshold = HERE[self.kind]
        for is_up, took in ((True, self.warm_s), (False, self.cold_s)):
            least = threshold.at(is_up=is_up)
            auto = "spark" if least is not None and self.size >= least else "threads"
            # Threads have nothing to start, but their first run loads what the next ones have.
            better_s = min(took("threads"), took("spark"))
            yield Gate(
                f"{self.name}, {self.cores} of cores, {'warm' if is_up else 'cold'}: AUTO ({auto})",
                took(auto) / better_s,
                AUTO_MOST,
                "x",
                at_least=False,
                judged=better_s >= WORK_LEAST_S,
            )

    def follows(self, floor_s: float) -> str:
        """From how much work on Spark would be taken by these figures.

        Args:
            floor_s: what a small job takes longer on Spark.
        """
        speeds = Speeds(
            self.size / self.warm_s("threads"),
            self.size / self.warm_s("spark"),
            max(0.0, floor_s),
            self.starts["spark"],
        )
        warm, cold = speeds.least(), speeds.least(extra_s=speeds.start_s)
        shown = [f"{least:,}" if least is not None else "never" for least in (warm, cold)]
        return f"  from these figures {self.kind} goes to Spark from {shown[0]} on, cold {shown[1]}"


def measure(cores: int, size: Size, rounds: int) -> list[Found]:
    """All cases on so many cores of this machine, which this process keeps to from now on."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    with scratch_directory("lethe-bench-peers-") as scratch, ExitStack() as stack:
        server = stack.enter_context(_server(scratch))
        crews, starts = [], {}
        for name in NAMES:
            began = time.perf_counter()
            made = stack.enter_context(crew(name, cores=cores, scratch=scratch))
            small_alone(made, small_work(scratch), 1)
            starts[name] = time.perf_counter() - began
            crews.append(made)
        work = stack.enter_context(cases(scratch / "cases", server, size))
        return [_measured(case, crews, starts, cores, rounds) for case in work]


@contextmanager
def _server(scratch: Path) -> Iterator[PostgresqlServer]:
    directory = scratch / "server"
    directory.mkdir(mode=0o711)
    scratch.chmod(0o711)
    server = PostgresqlServer(find_binaries(scratch), directory, settings=FAST_SERVER)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _measured(case: Case, crews: Sequence[Crew], starts: dict[str, float], cores: int, rounds: int) -> Found:
    found = Found(case.name, case.kind, case.size, cores, starts=starts)
    left: set[Left] = set()
    for number in range(rounds + 1):
        turn = number % len(crews)
        for made in [*crews[turn:], *crews[:turn]]:
            case.ready()
            began = time.perf_counter()
            left.add(case.run(made))
            took_s = time.perf_counter() - began
            if number == 0:
                found.first[made.name] = took_s
            else:
                found.warm.setdefault(made.name, []).append(took_s)
    found.is_equal = len(left) == 1
    return found


def in_child(cores: int, options: argparse.Namespace) -> list[Found]:
    """The same in a process of its own: it cannot have its cores back."""
    command = [sys.executable, "-m", "benchmarks.spark_peers", "--on", str(cores)]
    command += ["--rounds", str(options.rounds)] + (["--quick"] if options.quick else [])
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return [Found.of(found) for found in json.loads(run.stdout.splitlines()[-1])]


def report(found: Sequence[Found], *, judged: bool) -> bool:
    """Print what one number of cores showed; whether all held."""
    [alone] = [each for each in found if each.kind is None and "each" in each.name]
    floor_s = (alone.warm_s("spark") - alone.warm_s("threads")) / alone.size
    starts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in alone.starts.items())
    print(f"started, to the end of a first unit: {starts}")
    held = True
    for each in found:
        print(*each.lines(), sep="\n")
        if each.kind is not None:
            print(each.follows(floor_s))
        if not each.is_equal:
            print(f"  {each.name}: results DIFFER  MISSED")
        gates = list(each.gates())
        print(*(gate.line() for gate in gates), sep="\n", flush=True)
        held = held and each.is_equal and (not judged or all(gate.is_met for gate in gates))
    return held


def main(arguments: Sequence[str]) -> int:
    """Measure on one core and on two; 0: all that was asked held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="so little that the times say nothing")
    parser.add_argument("--on", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.on is not None:
        found = measure(options.on, QUICK if options.quick else Size(), options.rounds)
        print(json.dumps([asdict(each) for each in found]))
        return 0
    most = len(os.sched_getaffinity(0))
    held = [report(in_child(cores, options), judged=not options.quick) for cores in (1, 2) if cores <= most]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
