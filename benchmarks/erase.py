"""Measures the erasure of JE logs, as ratios to zlib.adler32 over the same bytes in the same run.

Two environments are generated: one of values with a median of 1 KB, 70 % obsolete, and one of small records.
On one core, inline: the walk along the entries with its parsing; plan, overwrite and proof together; a pass
over files in which nothing is left; a copy with fsync beside them. Then the plan on Spark with one core and
with two, and a throttled cycle of the real service.
Exit status 1: a ratio was missed (judged from 900 MB on), or something was refused. The last line is JSON.

    python benchmarks/erase.py --quick
    python benchmarks/erase.py --plan-bytes 10e9    only the Spark plan, of 10 GB, in 4 GB of memory
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import erase_cycle, erase_inline, erase_spark
from benchmarks.erase_cycle import CycleFound
from benchmarks.erase_inline import Found
from benchmarks.erase_spark import SparkFound
from benchmarks.gates import Gate
from lethe_samples.je_writer.sample import write_sample
from tests.postgresql_server import scratch_directory

BYTES = 1_000_000_000
SMALL_BYTES = 250_000_000
QUICK_BYTES = 3_000_000
JUDGED_BYTES = 900_000_000
FILES = 8
OBSOLETE = 0.7
LARGE, SMALL = "1 KB values", "small records"
VALUE_BYTES = {LARGE: 1024, SMALL: 64}
WALK_PERCENT, ERASE_PERCENT, CLEAN_PERCENT = 50.0, 2.5, 12.0
SCALING_LEAST = 1.5
MEMORY_MAX_MIB = 4096.0
CYCLE_OFF_PERCENT, WAITING_CPU_PERCENT = 5.0, 1.0
CYCLE_BYTES = 40_000_000
CYCLE_FILE_BYTES = 5_000_000
CYCLE_S = 60
PLAN_FILE_BYTES = 100_000_000


def gates_of(found: Found, *, judged: bool) -> list[Gate]:
    """What is asked of one environment."""
    return [
        Gate(f"{found.name}: walk", found.percent(found.walk_s), WALK_PERCENT, "%", judged=judged),
        Gate(
            f"{found.name}: plan, overwrite, proof",
            found.percent(found.erase_s, real=True),
            ERASE_PERCENT,
            "%",
            judged=judged,
        ),
        Gate(
            f"{found.name}: pass over clean files",
            found.percent(found.clean_s, real=True),
            CLEAN_PERCENT,
            "%",
            judged=judged,
        ),
    ]


def print_found(found: Found) -> None:
    """What lies behind the gates."""
    size = found.byte_count / 1e6
    print(
        f"\n{found.name}: {size:,.0f} MB in {found.file_count} files, {found.entry_count:,} entries, "
        f"{found.erased_count:,} of {found.erased_bytes / 1e6:,.0f} MB erased"
    )
    print(f"{'':<34}{'s':>9}{'MB/s':>10}{'% of adler32':>14}")
    rows = [
        ("adler32, this thread's time", found.adler_s, False),
        ("adler32, real time", found.adler_real_s, True),
        ("walk in memory", found.walk_s, False),
        ("walk in memory with checksums", found.walk_verified_s, False),
        ("files into Arrow tables", found.read_s, False),
        ("copy with fsync", found.copy_s, True),
        *((name, seconds, True) for name, seconds in found.steps_s.items()),
        ("plan, overwrite, proof together", found.erase_s, True),
        ("pass over clean files", found.clean_s, True),
    ]
    for name, seconds, real in rows:
        speed = size / seconds if seconds else 0.0
        print(f"{name:<34}{seconds:>9.3f}{speed:>10,.0f}{found.percent(seconds, real=real):>13.1f}%")
    for refusal in found.refusals:
        print(f"REFUSED {refusal}")


def print_spark(found: SparkFound) -> None:
    """One line for the plan on some cores."""
    print(
        f"Spark plan on {found.cores} cores: {found.median_s:.2f} s, {found.entries:,} entries planned, "
        f"peak {found.peak_mib:,.0f} MiB, of which this process had {found.before_mib:,.0f} before"
        + (f"  REFUSED {found.refusal}" if found.refusal else "")
    )


def print_cycle(found: CycleFound) -> None:
    """One line for the throttled cycle."""
    print(
        f"throttled cycle of {found.duration_s:.0f} s: {found.state}, worked {found.worked_s:.1f} s where "
        f"its throttle asked for {found.planned_s:.1f} s; {found.waiting_cpu_s:.2f} s of processor in "
        f"{found.waited_s:.1f} s of waiting; without any cycle {found.idle_cpu_percent:.2f} % of a core"
    )


def inline(options: argparse.Namespace, scratch: Path, gates: list[Gate]) -> list[Found]:
    """The two environments on one core."""
    results = []
    for name, byte_count in ((LARGE, options.bytes), (SMALL, options.small_bytes)):
        source, copy = scratch / name.replace(" ", "-"), scratch / "erased"
        generate(source, byte_count, name=name)
        with erase_inline.one_core(max(os.sched_getaffinity(0))):
            found = erase_inline.measure(source, copy, name=name, rounds=options.rounds)
        remove(copy)
        print_found(found)
        # Small records cost by their number; the ratios were asked of the large ones.
        gates += gates_of(found, judged=name == LARGE and found.byte_count >= JUDGED_BYTES)
        results.append(found)
    return results


def generate(directory: Path, byte_count: int, *, name: str, file_bytes: int | None = None) -> None:
    """Write an environment of some files."""
    directory.mkdir()
    write_sample(
        directory,
        total_bytes=byte_count,
        value_bytes_median=VALUE_BYTES[name],
        obsolete_fraction=OBSOLETE,
        file_bytes=file_bytes or max(byte_count // FILES, 100_000),
    )


def remove(directory: Path) -> None:
    """Give the disk back."""
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


def scaling(options: argparse.Namespace, scratch: Path, gates: list[Gate]) -> list[SparkFound]:
    """The Spark plan of the large environment on one core and on two."""
    source = scratch / LARGE.replace(" ", "-")
    results = []
    for cores in (1, 2):
        found = erase_spark.measure(
            source, cores=cores, rounds=options.rounds, driver_memory="1g", scratch=scratch
        )
        print_spark(found)
        results.append(found)
    ratio = results[0].median_s / results[1].median_s
    judged = options.bytes >= JUDGED_BYTES and (os.cpu_count() or 1) > 1
    gates.append(Gate("Spark plan: one core to two", ratio, SCALING_LEAST, "x", judged=judged))
    return results


def large_plan(options: argparse.Namespace, scratch: Path, gates: list[Gate]) -> list[SparkFound]:
    """The Spark plan of a log that does not fit into memory as columns."""
    source = scratch / "large"
    generate(source, int(options.plan_bytes), name=LARGE, file_bytes=PLAN_FILE_BYTES)
    found = erase_spark.measure(source, cores=2, rounds=1, driver_memory="1g", scratch=scratch)
    print_spark(found)
    gates.append(Gate("Spark plan: memory", found.peak_mib, MEMORY_MAX_MIB, "MiB", at_least=False))
    return [found]


def cycle(scratch: Path, gates: list[Gate]) -> CycleFound:
    """A throttled cycle of the real service."""
    source = scratch / "cycle"
    generate(source, CYCLE_BYTES, name=LARGE, file_bytes=CYCLE_FILE_BYTES)
    found = erase_cycle.measure(source, scratch, duration_s=CYCLE_S)
    print_cycle(found)
    gates.append(
        Gate("throttled cycle: off its plan", found.off_percent, CYCLE_OFF_PERCENT, "%", at_least=False)
    )
    waiting = found.waiting_cpu_percent
    gates.append(
        Gate("throttled cycle: processor while it waits", waiting, WAITING_CPU_PERCENT, "%", at_least=False)
    )
    return found


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", type=lambda text: int(float(text)), default=BYTES, help="with 1 KB values")
    parser.add_argument("--small-bytes", type=lambda text: int(float(text)), default=SMALL_BYTES)
    parser.add_argument("--rounds", type=int, default=3, help="of what is measured again; the median counts")
    parser.add_argument("--quick", action="store_true", help="so small that the figures say nothing")
    parser.add_argument("--no-spark", action="store_true", help="leave the plan on Spark out")
    parser.add_argument("--no-service", action="store_true", help="leave the throttled cycle out")
    parser.add_argument("--plan-bytes", type=float, help="only plan a log of so many bytes on Spark")
    options = parser.parse_args(arguments)
    if options.quick:
        options.bytes = options.small_bytes = QUICK_BYTES
        options.rounds = 1
    return options


def main(arguments: Sequence[str]) -> int:
    """Measure; 0: every ratio held and nothing was refused."""
    options = parse(arguments)
    gates: list[Gate] = []
    document: dict[str, Any] = {}
    refused = False
    with scratch_directory("lethe-bench-erase-") as scratch:
        if options.plan_bytes:
            spark = large_plan(options, scratch, gates)
        else:
            found = inline(options, scratch, gates)
            refused = any(each.refusals for each in found)
            document["inline"] = [vars(each) for each in found]
            spark = [] if options.no_spark else scaling(options, scratch, gates)
            if not options.no_service:
                document["cycle"] = vars(cycle(scratch, gates))
        document["spark"] = [vars(each) for each in spark]
    refused |= any(each.refusal for each in spark)
    document["gates"] = [vars(gate) | {"met": gate.is_met} for gate in gates]
    print()
    for gate in gates:
        print(gate.line())
    print(json.dumps(document))
    return 0 if all(gate.is_met for gate in gates) and not refused else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
