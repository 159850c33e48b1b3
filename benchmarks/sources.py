"""The source `lethe_je` against the inline reader of the same files: rows a CPU second, and one core to two.

    python benchmarks/sources.py [--megabytes 1600] [--rounds 3]

Both read every entry of a log, with all checksums, into Arrow. Inline: one process, file after file, as a
plan of an erasure does. Spark: entries are counted, bytes of items and keys added up, over `lethe_je`.
So every column of every row crosses into the JVM, and Spark is asked for nothing but to read. CPU is user and
system time of this process with its JVM and workers. One core: all of them on that one. The first round of
each counts not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lethe_spark import register
from pyspark.sql import SparkSession, functions

from benchmarks.gates import Gate
from benchmarks.process_tree import tree_cpu_s
from lethe_samples.je_writer.sample import write_sample
from spark.erase.reading.directory import file_names, opened
from spark.erase.reading.files import Room, read_file
from spark.pool.options import SparkOptions, default_cds_archive
from spark.pool.session import discard, start_session

COLUMNS = "type,item_bytes,key"
PER_CPU_LEAST = 0.5
SPEED_UP_LEAST = 1.6
START_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Took:
    """The median of some rounds, in seconds."""

    cpu_s: float
    wall_s: float


def inline_rows(directory: Path) -> int:
    """How many entries the inline reader finds."""
    room, rows = Room.make(), 0
    for name in file_names(directory):
        with opened(directory, [name]) as [file]:
            rows += read_file(file, is_last=False, verify=True, room=room).entries.num_rows
    return rows


def spark_rows(session: SparkSession, directory: Path) -> int:
    """How many entries the source has."""
    frame = session.read.format("lethe_je").options(path=str(directory), columns=COLUMNS).load()
    sums = (
        functions.sum(column) for column in ("item_bytes", functions.length("key"), functions.length("type"))
    )
    [found] = frame.agg(functions.count("*").alias("rows"), *sums).collect()
    return int(found["rows"])


def measured(work: Callable[[], int], rows: int, rounds: int) -> Took:
    """What a round costs that reads so many rows."""
    cpu, wall = [], []
    for number in range(rounds + 1):
        cpu_before, began = tree_cpu_s(os.getpid()), time.monotonic()
        assert work() == rows
        if number:
            cpu.append(tree_cpu_s(os.getpid()) - cpu_before)
            wall.append(time.monotonic() - began)
    return Took(statistics.median(cpu), statistics.median(wall))


def on_spark(directory: Path, rows: int, *, cores: int, rounds: int, local_dir: Path) -> Took:
    """The source on a local master of so many cores."""
    options = SparkOptions(
        cores=cores,
        local_dir=local_dir,
        cds_archive=default_cds_archive(),
        start_timeout_s=START_TIMEOUT_S,
    )
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:cores])
    started = start_session(options)
    try:
        register(started.session)
        return measured(lambda: spark_rows(started.session, directory), rows, rounds)
    finally:
        discard(started)
        os.sched_setaffinity(0, allowed)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return 1 where a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1_600)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "je"
        directory.mkdir()
        sample = write_sample(directory, total_bytes=asked.megabytes * 10**6, value_bytes_median=400)
        rows = inline_rows(directory)
        inline = measured(lambda: inline_rows(directory), rows, asked.rounds)
        one, two = (
            on_spark(directory, rows, cores=cores, rounds=asked.rounds, local_dir=Path(folder))
            for cores in (1, 2)
        )
    print(f"{sample.bytes / 1e6:.0f} MB, {sample.files} files, {rows:,} entries, median of {asked.rounds}")
    for name, took in (("inline", inline), ("lethe_je, 1 core", one), ("lethe_je, 2 cores", two)):
        speed = f"{rows / took.cpu_s:12,.0f} rows a CPU second"
        print(f"{name:18} {took.cpu_s:7.2f} s CPU {took.wall_s:7.2f} s wall {speed}")
    gates = (
        Gate("rows a CPU second, to the inline reader", inline.cpu_s / two.cpu_s, PER_CPU_LEAST, "x"),
        Gate("from one core to two", one.wall_s / two.wall_s, SPEED_UP_LEAST, "x"),
    )
    for gate in gates:
        print(gate.line())
    return 0 if all(gate.is_met for gate in gates) else 1


if __name__ == "__main__":
    raise SystemExit(main())
