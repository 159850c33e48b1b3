"""Measures what one small store of a fleet costs beside its rows: the inputs of docs/scale.md.

Copies of one small SymmetricDS database are registered and purged by one request, on metadata in PostgreSQL.
Told are the seconds, the processor time of the service and the transactions of the metadata, each by store:
what is the same for a store of any size. Service, databases and client share this machine.

    python -m benchmarks.small_fleet --stores 100
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.process_tree import tree_cpu_s
from benchmarks.spark_pool import BODY, FLEET_MAX_S, Bench
from tests.http.shop import wait_for
from tests.http.targets import copy_reference
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory

STORES = 100
TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = 'metadata'"
FIRST = 4
IDLE_S = 10.0
STATISTICS_S = 2.0
"""So late is a server with its counts."""


@dataclass(frozen=True)
class Counts:
    """What a service and its metadata have taken until now."""

    at: float
    cpu_s: float
    transactions: int


@dataclass(frozen=True)
class Cost:
    """What a fleet took, without what the service takes when it is idle."""

    stores: int
    seconds: float
    cpu_s: float
    transactions: float

    @classmethod
    def between(cls, stores: int, idle: Counts, before: Counts, after: Counts) -> Cost:
        """The cost of what was between two counts; nothing was between the first two."""
        rest_s, seconds = before.at - idle.at, after.at - before.at
        return cls(
            stores,
            seconds,
            after.cpu_s - before.cpu_s - (before.cpu_s - idle.cpu_s) / rest_s * seconds,
            after.transactions
            - before.transactions
            - (before.transactions - idle.transactions) / rest_s * seconds,
        )

    def line(self) -> str:
        """For people."""
        return (
            f"{self.stores} stores: {self.seconds:.1f} s, {1000 * self.seconds / self.stores:.0f} ms each, "
            f"{1000 * self.cpu_s / self.stores:.0f} ms of processor a store, "
            f"{self.transactions / self.stores:.1f} transactions of the metadata a store"
        )


def measure(directory: Path, server: PostgresqlServer, *, stores: int) -> Cost:
    """Purge a fleet of copies once, after a smaller one: what is loaded and compiled once is not its cost."""
    bench = Bench(directory / "service", metadata_url=server.create_database("metadata"))
    try:
        with psycopg.connect(server.conninfo(), autocommit=True) as look:

            def counts() -> Counts:
                at, cpu_s = time.perf_counter(), tree_cpu_s(bench.service.pid)
                time.sleep(STATISTICS_S)
                row = look.execute(TRANSACTIONS).fetchone()
                assert row is not None
                return Counts(at, cpu_s, int(row[0]))

            purge_together(bench, copies(bench, "first", stores=FIRST))
            names = copies(bench, "small", stores=stores)
            idle = counts()
            time.sleep(IDLE_S)
            before = counts()
            purge_together(bench, names)
            return Cost.between(stores, idle, before, counts())
    finally:
        bench.close()


def copies(bench: Bench, prefix: str, *, stores: int) -> list[str]:
    """Register copies of the small database; returns their names."""
    names = [f"{prefix}-{number}" for number in range(stores)]
    for name in names:
        bench.store(name, copy_reference(bench.directory / f"{name}.sqlite"))
    return names


def purge_together(bench: Bench, names: Sequence[str]) -> None:
    """Purge stores in one request, to the end."""
    body = {"kind": "PURGE", "params": BODY | {"engine": "INLINE"}, "stores": list(names)}
    answer = bench.http.post("/v1/jobs:batch", json=body)
    answer.raise_for_status()
    job = wait_for(bench.http, answer.json()["id"], timeout_s=FLEET_MAX_S)
    assert job["state"] == "SUCCEEDED", job["error"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--stores", type=int, default=STORES, metavar="N", help=f"{STORES}")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(scratch_directory("lethe-bench-small-")))
        server = PostgresqlServer(find_binaries(directory), directory)
        server.start()
        stack.callback(server.stop)
        print(measure(directory, server, stores=options.stores).line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
