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
from benchmarks.spark_pool import BODY, FLEET_MAX_S, Bench, _succeeded
from tests.http.shop import wait_for
from tests.http.targets import copy_reference
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory

STORES = 100
TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = 'metadata'"
STATISTICS_S = 2.0
"""So late is a server with its counts."""


@dataclass(frozen=True)
class Cost:
    """What a fleet took."""

    stores: int
    seconds: float
    cpu_s: float
    transactions: int
    idle_transactions_per_s: float

    def line(self) -> str:
        """For people."""
        own = self.transactions - self.idle_transactions_per_s * self.seconds
        return (
            f"{self.stores} stores: {self.seconds:.1f} s, {1000 * self.seconds / self.stores:.0f} ms each, "
            f"{1000 * self.cpu_s / self.stores:.0f} ms of processor a store, "
            f"{own / self.stores:.1f} transactions of the metadata a store"
        )


def measure(directory: Path, server: PostgresqlServer, *, stores: int) -> Cost:
    """Purge a fleet of copies once."""
    url = server.create_database("metadata")
    bench = Bench(directory / "service", metadata_url=url)
    try:
        names = [f"small-{number}" for number in range(stores)]
        for name in names:
            bench.store(name, copy_reference(directory / f"{name}.sqlite"))
        with psycopg.connect(server.conninfo(), autocommit=True) as look:

            def transactions() -> int:
                time.sleep(STATISTICS_S)
                row = look.execute(TRANSACTIONS).fetchone()
                assert row is not None
                return int(row[0])

            first, began = transactions(), time.perf_counter()
            before = transactions()
            idle = (before - first) / (time.perf_counter() - began)
            cpu_s, began = tree_cpu_s(bench.service.pid), time.perf_counter()
            body = {"kind": "PURGE", "params": BODY | {"engine": "INLINE"}, "stores": names}
            answer = bench.http.post("/v1/jobs:batch", json=body)
            answer.raise_for_status()
            _succeeded(wait_for(bench.http, answer.json()["id"], timeout_s=FLEET_MAX_S))
            seconds = time.perf_counter() - began
            cpu_s = tree_cpu_s(bench.service.pid) - cpu_s
            return Cost(stores, seconds, cpu_s, transactions() - before, idle)
    finally:
        bench.close()


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
