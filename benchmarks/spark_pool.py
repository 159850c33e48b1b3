"""Measures what the pooled Spark session costs and what it gives, and whether AUTO chooses well.

- Start: from the first need of the pool to READY, with and without the class archive of `make setup`.
- Floor: a purge with next to nothing to do, from its POST to SUCCEEDED, inline and on Spark.
- Start of a job: from POST to RUNNING on a warm pool, beside the same inline.
- Fleets: one request over many SQLite databases, INLINE, SPARK and AUTO in turn, on a service whose pool
  nobody has needed yet, and on one whose pool is warm. Copies of one database are purged, and what is left
  compared.

Service, databases and clients share this machine. Exit status 1: AUTO took more than a tenth longer than the
better of the two (judged where that took at least 1 s), a job failed, or the rows left differ.

    python benchmarks/spark.py --stores 6 --rows 60000 --rounds 3
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from app.cli.demo.data import build
from app.kit.durations import parse_duration
from benchmarks.gates import Gate
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.http.targets import copy_reference
from tests.postgresql_server import scratch_directory

ENGINES = ("INLINE", "SPARK", "AUTO")
STORES = 6
ROWS = 60_000
ROUNDS = 3
WORK_LEAST_S = 1.0
AUTO_MOST = 1.1
JOBS = 20
READY_MAX_S = 120.0
FLEET_MAX_S = 3600.0
NOW = datetime(2026, 11, 1, tzinfo=UTC)
BODY = {"kind": "OUTGOING", "cutoff": "2026-10-27T00:00:00Z"}
TABLES = ("sym_data", "sym_data_event", "sym_outgoing_batch")
"""Of the data set: only the age of its rows matters."""


@dataclass
class Fleets:
    """What fleets of each engine took, and how many jobs of Spark they were."""

    pool: str
    seconds: dict[str, list[float]] = field(default_factory=lambda: {engine: [] for engine in ENGINES})
    spark_jobs: dict[str, int] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)
    left: set[tuple[tuple[int, ...], ...]] = field(default_factory=set)

    def median(self, engine: str) -> float:
        """Seconds of an engine's fleet."""
        return statistics.median(self.seconds[engine])

    @property
    def better_s(self) -> float:
        """The better of the two that AUTO has to choose from."""
        return min(self.median("INLINE"), self.median("SPARK"))

    @property
    def gate(self) -> Gate:
        """How much longer AUTO took."""
        is_judged = self.better_s >= WORK_LEAST_S
        name = f"{self.pool} pool: AUTO ({'/'.join(sorted(self.chosen))}) to the better"
        ratio = self.median("AUTO") / self.better_s
        return Gate(name, ratio, AUTO_MOST, "x", at_least=False, judged=is_judged)


class Bench:
    """A service with two sets of copies of one database."""

    def __init__(
        self, directory: Path, *, settings: dict[str, str] | None = None, metadata_url: str | None = None
    ) -> None:
        self.directory = directory
        self.stack = ExitStack()
        self.service = ServiceProcess(directory, metadata_url=metadata_url, settings=settings).start()
        self.stack.callback(self.service.stop)
        self.http: httpx.Client = self.stack.enter_context(self.service.http())

    def close(self) -> None:
        """Stop the service."""
        self.stack.close()

    def store(self, name: str, path: Path, **labels: str) -> str:
        """Register a SQLite file."""
        body = {"id": name, "kind": "SYMMETRICDS", "url": f"sqlite:///{path}", "labels": labels}
        self.http.post("/v1/stores", json=body).raise_for_status()
        return name

    def purge(self, store: str, engine: str) -> dict[str, Any]:
        """Purge a store to its end; returns the job."""
        answer = self.http.post(f"/v1/stores/{store}/purges", json=BODY | {"engine": engine})
        answer.raise_for_status()
        return _succeeded(wait_for(self.http, answer.json()["id"], timeout_s=FLEET_MAX_S))

    def pool(self) -> dict[str, Any]:
        """The pool as the service shows it."""
        answer: dict[str, Any] = self.http.get("/v1/spark-pool").json()
        return answer


def _succeeded(job: dict[str, Any]) -> dict[str, Any]:
    assert job["state"] == "SUCCEEDED", job["error"]
    return job


def start_s(directory: Path, *, archive: bool) -> float:
    """From the first need of the pool to READY, as the pool tells."""
    settings = {"LETHE_SPARK__START": "EAGER"} | (
        {} if archive else {"LETHE_SPARK__CDS_ARCHIVE": "/nonexistent"}
    )
    bench = Bench(directory, settings=settings)
    try:
        deadline = time.monotonic() + READY_MAX_S
        while (pool := bench.pool())["state"] != "READY":
            assert time.monotonic() < deadline, pool
            time.sleep(0.1)
        return parse_duration(pool["start_took"]).total_seconds()
    finally:
        bench.close()


def floors_ms(bench: Bench, engine: str, *, jobs: int) -> tuple[list[float], list[float]]:
    """POST to SUCCEEDED and POST to RUNNING of purges that have nothing left to remove."""
    path = copy_reference(bench.directory / f"floor-{engine.lower()}.sqlite")
    store = bench.store(f"floor-{engine.lower()}", path)
    bench.purge(store, engine)
    whole, begin = [], []
    for _ in range(jobs):
        sent = time.time()
        job = bench.purge(store, engine)
        whole.append((datetime.fromisoformat(job["finished_at"]).timestamp() - sent) * 1000)
        begin.append((datetime.fromisoformat(job["started_at"]).timestamp() - sent) * 1000)
    return whole, begin


def _left(path: Path) -> tuple[int, ...]:
    with closing(sqlite3.connect(path)) as db:
        return tuple(db.execute(f"select count(*), total(rowid) from {table}").fetchone() for table in TABLES)


def run_fleet(bench: Bench, first: Path, engine: str, found: Fleets, *, stores: int) -> None:
    """Purge copies of a database in one request."""
    number = sum(len(each) for each in found.seconds.values())
    names = [f"{found.pool}-{engine}-{number}-{each}".lower() for each in range(stores)]
    paths = [bench.directory / f"{name}.sqlite" for name in names]
    for name, path in zip(names, paths, strict=True):
        shutil.copy(first, path)
        bench.store(name, path)
    before = bench.pool()["exchange"]["spark_jobs"]
    body = {"kind": "PURGE", "params": BODY | {"engine": engine}, "stores": names}
    began = time.perf_counter()
    answer = bench.http.post("/v1/jobs:batch", json=body)
    answer.raise_for_status()
    parent = _succeeded(wait_for(bench.http, answer.json()["id"], timeout_s=FLEET_MAX_S))
    found.seconds[engine].append(time.perf_counter() - began)
    found.spark_jobs[engine] = bench.pool()["exchange"]["spark_jobs"] - before
    if engine == "AUTO":
        found.chosen |= {child["engine"] for child in parent["result"]["stores"].values()}
    found.left |= {_left(path) for path in paths}
    for path in paths:
        path.unlink()


def cold_fleets(directory: Path, first: Path, *, stores: int) -> Fleets:
    """One fleet of each engine, each on a service whose pool nobody has needed yet."""
    found = Fleets("cold")
    for engine in ENGINES:
        bench = Bench(directory / f"cold-{engine.lower()}")
        try:
            run_fleet(bench, first, engine, found, stores=stores)
        finally:
            bench.close()
    return found


def warm_fleets(bench: Bench, first: Path, *, stores: int, rounds: int) -> Fleets:
    """Fleets of each engine in turn; whoever is first changes with each round."""
    found = Fleets("warm")
    run_fleet(bench, first, "SPARK", Fleets("warming"), stores=stores)
    for number in range(rounds):
        turn = number % len(ENGINES)
        for engine in ENGINES[turn:] + ENGINES[:turn]:
            run_fleet(bench, first, engine, found, stores=stores)
    return found


def show(found: Fleets) -> None:
    """Seconds of every fleet."""
    for engine in ENGINES:
        each = " ".join(f"{seconds:.2f}" for seconds in found.seconds[engine])
        jobs = found.spark_jobs[engine]
        print(f"{found.pool} pool, {engine:<6} fleet: {each} s; {jobs} jobs of Spark in the last", flush=True)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stores", type=int, default=STORES, help="databases of the fleet")
    parser.add_argument("--rows", type=int, default=ROWS, help="captured rows of each")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="fleets of each engine on a warm pool")
    parser.add_argument("--jobs", type=int, default=JOBS, help="small jobs of each engine")
    parser.add_argument("--no-starts", action="store_true", help="do not measure the start of the pool")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure; 0: AUTO chose well, and every fleet left the same rows."""
    options = parse(arguments)
    with scratch_directory("lethe-bench-spark-") as directory:
        if not options.no_starts:
            for archive in (False, True):
                took_s = start_s(directory / f"start-{archive}", archive=archive)
                print(
                    f"pool ready {'with' if archive else 'without'} class archive: {took_s:.1f} s", flush=True
                )
        first = directory / "filled.sqlite"
        build(first, now=NOW, rows=options.rows)
        bench = Bench(directory / "service")
        try:
            for engine in ("INLINE", "SPARK"):
                whole, begin = floors_ms(bench, engine, jobs=options.jobs)
                print(
                    f"{engine:<7} floor per job: median {statistics.median(whole):.0f} ms; "
                    f"POST to RUNNING: median {statistics.median(begin):.0f} ms, worst {max(begin):.0f} ms",
                    flush=True,
                )
            warm = warm_fleets(bench, first, stores=options.stores, rounds=options.rounds)
        finally:
            bench.close()
        cold = cold_fleets(directory, first, stores=options.stores)
    is_right = len(warm.left | cold.left) == 1
    print(f"rows left by all fleets: {'equal' if is_right else 'DIFFERENT'}")
    for found in (warm, cold):
        show(found)
        print(found.gate.line())
    is_right = is_right and warm.gate.is_met and cold.gate.is_met
    print(f"{options.stores} databases of {options.rows:,} captured rows  {'OK' if is_right else 'MISSED'}")
    return 0 if is_right else 1
