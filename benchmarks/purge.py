"""Measures the outgoing purge against the document's literal statements on PostgreSQL.

For each data set both sides run on fresh copies of the same vacuumed database, taking turns; the rows they
leave must be equal. The purge runs with two workers, ledger and fence on, archive off.
Exit status 1: a ratio was missed or the rows differ.

    python benchmarks/purge.py --shape dense-1m --rounds 1
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import psycopg
from sqlalchemy.engine import URL, make_url

from benchmarks.purge_lethe import run_in_child
from benchmarks.purge_shapes import CUTOFF, SHAPES, Shape, fill, left
from benchmarks.purge_writers import Latency, Writer
from tests.oracles.symmetricds import Place, create, literal_purge
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory

Connection = psycopg.Connection[tuple[object, ...]]
# Defaults, but for room that keeps checkpoints out of the measurement. fsync is on.
SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}
WRITER_SHAPE = "dense-1m"
IDLE_S = 3.0


@dataclass
class Outcome:
    """What was measured on one data set."""

    shape: Shape
    literal_s: list[float] = field(default_factory=list)
    lethe_s: list[float] = field(default_factory=list)
    job_s: list[float] = field(default_factory=list)
    units: int = 0
    longest_ms: float = 0.0
    peak_mib: float = 0.0
    remaining: set[tuple[object, ...]] = field(default_factory=set)

    @property
    def ratio(self) -> float:
        """How many times faster than the literal statements, by medians."""
        return statistics.median(self.literal_s) / statistics.median(self.lethe_s)

    @property
    def verdict(self) -> str:
        """OK, or what is wrong."""
        if len(self.remaining) != 1:
            return "ROWS DIFFER"
        return "MISSED" if self.shape.ratio is not None and self.ratio < self.shape.ratio else "OK"


class Ground:
    """A server and the databases of one data set: a filled one, and copies of it to purge."""

    def __init__(self, server: URL) -> None:
        """Take the address of a database from which others may be created."""
        self._server = server.set(drivername="postgresql")

    def conninfo(self, database: str | None = None) -> str:
        """libpq's form of an address; None is the maintenance database."""
        url = self._server if database is None else self._server.set(database=database)
        return url.render_as_string(hide_password=False)

    def place(self, database: str) -> Place:
        """The oracle's form of an address."""
        return Place(self.conninfo(database))

    def execute(self, sql: str) -> None:
        """Run one statement in the maintenance database."""
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(sql.encode())

    @contextmanager
    def filled(self, shape: Shape) -> Iterator[str]:
        """The name of a database with the data set."""
        name = "lethe_bench_filled"
        self.execute(f"drop database if exists {name} with (force)")
        self.execute(f"create database {name}")
        try:
            create(self.place(name))
            with psycopg.connect(self.conninfo(name), autocommit=True) as connection:
                fill(connection, shape)
            yield name
        finally:
            self.execute(f"drop database if exists {name} with (force)")

    @contextmanager
    def copied(self, filled: str) -> Iterator[str]:
        """The name of a fresh copy: analysed, its pages written, without dead rows of a former run."""
        name = "lethe_bench_run"
        self.execute(f"drop database if exists {name} with (force)")
        self.execute(f"create database {name} template {filled} strategy file_copy")
        try:
            with psycopg.connect(self.conninfo(name), autocommit=True) as connection:
                connection.execute("analyze")
                with suppress(psycopg.errors.InsufficientPrivilege):
                    connection.execute("checkpoint")
            yield name
        finally:
            self.execute(f"drop database if exists {name} with (force)")


def measure(ground: Ground, shape: Shape, *, rounds: int) -> Outcome:
    """Run both sides in turn and collect their times."""
    outcome = Outcome(shape)
    with ground.filled(shape) as filled:
        for number in range(rounds):
            sides = [partial(_run_literal, ground), partial(_run_lethe, ground)]
            for side in sides if number % 2 == 0 else reversed(sides):
                with ground.copied(filled) as database:
                    side(database, outcome)
                    with psycopg.connect(ground.conninfo(database)) as connection:
                        outcome.remaining.add(_hashable(left(connection)))
    return outcome


def _hashable(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(tuple(column) if isinstance(column, list) else column for column in row)


def _run_literal(ground: Ground, database: str, outcome: Outcome) -> None:
    begun = time.perf_counter()
    literal_purge(ground.place(database), CUTOFF)
    outcome.literal_s.append(time.perf_counter() - begun)


def _run_lethe(ground: Ground, database: str, outcome: Outcome) -> None:
    run = run_in_child(ground.conninfo(database))
    outcome.lethe_s.append(run.seconds)
    outcome.job_s.append(run.job_seconds)
    outcome.units = run.units
    outcome.longest_ms = max(outcome.longest_ms, run.longest_ms)
    outcome.peak_mib = max(outcome.peak_mib, run.peak_mib)


def measure_writer(ground: Ground, shape: Shape) -> dict[str, tuple[Latency, Latency]]:
    """Latencies of a writer: idle, beside the literal statements, and beside the purge."""
    found = {}
    with ground.filled(shape) as filled:
        for name, side in (
            ("idle", lambda _database: time.sleep(IDLE_S)),
            ("literal", lambda database: literal_purge(ground.place(database), CUTOFF)),
            ("lethe", lambda database: run_in_child(ground.conninfo(database))),
        ):
            with ground.copied(filled) as database:
                writer = Writer(ground.conninfo(database), shape.batches)
                writer.start()
                try:
                    side(database)
                finally:
                    found[name] = writer.finish()
    return found


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """One line for each data set."""
    print(
        f"\n{'data set':<18}{'rows':>10}{'batches':>9}{'literal s':>11}{'lethe s':>9}{'ratio':>8}"
        f"{'asked':>7}{'job s':>8}{'units':>7}{'longest ms':>12}{'peak MiB':>10}  verdict"
    )
    for one in outcomes:
        asked = "-" if one.shape.ratio is None else f"{one.shape.ratio:.1f}"
        literal, lethe = statistics.median(one.literal_s), statistics.median(one.lethe_s)
        print(
            f"{one.shape.name:<18}{one.shape.rows:>10,}{one.shape.batches:>9,}{literal:>11.2f}{lethe:>9.2f}"
            f"{one.ratio:>7.2f}x{asked:>7}{statistics.median(one.job_s):>8.2f}"
            f"{one.units:>7,}{one.longest_ms:>12.0f}{one.peak_mib:>10.1f}  {one.verdict}"
        )


def print_latencies(found: dict[str, tuple[Latency, Latency]]) -> None:
    """Two lines for each situation of the writer."""
    print(f"\n{'writer beside':<15}{'write':<16}{'count':>8}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}")
    for name, pair in found.items():
        for kind, latency in zip(("insert sym_data", "update batch"), pair, strict=True):
            print(
                f"{name:<15}{kind:<16}{latency.count:>8,}{latency.p50_ms:>9.2f}{latency.p99_ms:>9.2f}"
                f"{latency.max_ms:>9.1f}"
            )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", action="append", choices=list(SHAPES), help="data set; default: all")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side; the median counts")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor on the rows; not 1: ratios are not judged"
    )
    parser.add_argument("--url", help="a server whose role may create databases; default: a temporary server")
    parser.add_argument(
        "--no-writer", action="store_true", help="leave the latency of a concurrent writer out"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure what was asked for; 0: every ratio held and the same rows were left."""
    options = parse(arguments)
    shapes = [SHAPES[name].scaled(options.scale) for name in options.shape or SHAPES]
    outcomes = []
    with ExitStack() as stack:
        ground = Ground(make_url(options.url) if options.url else _own_server(stack))
        for shape in shapes:
            outcomes.append(measure(ground, shape, rounds=options.rounds))
            print_outcomes(outcomes[-1:])
        writers = [shape for shape in shapes if shape.name == WRITER_SHAPE and not options.no_writer]
        latencies = [measure_writer(ground, one) for one in writers]
    print_outcomes(outcomes)
    for found in latencies:
        print_latencies(found)
    return 0 if all(outcome.verdict == "OK" for outcome in outcomes) else 1


def _own_server(stack: ExitStack) -> URL:
    binaries = find_binaries(stack.enter_context(scratch_directory("lethe-binaries-")))
    server = PostgresqlServer(binaries, stack.enter_context(scratch_directory()), settings=SETTINGS)
    server.start()
    stack.callback(server.stop)
    return make_url(server.url())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
