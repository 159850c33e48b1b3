"""Measures what the pooled Spark session costs and what it gives.

- Start: from the first need of the pool to READY, with and without the class archive of `make setup`.
- Floor: a purge with next to nothing to do, from its POST to SUCCEEDED, inline and on Spark.
- Start of a job: from POST to RUNNING on a warm pool, beside the same inline.
- Fleet: one request over many SQLite databases against the same databases one after another, inline.

Service, databases and clients share this machine. Exit status 1: the fleet was less than 1.6 times as fast
(judged from 40 databases of at least 2 s each on), a job failed, or the rows left differ.

    python benchmarks/spark.py --stores 8 --rows 100000
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from app.cli.demo.data import build
from app.kit.durations import parse_duration
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.http.targets import copy_reference
from tests.postgresql_server import scratch_directory

STORES = 40
STORES_JUDGED = 40
ROWS = 700_000
WORK_LEAST_S = 2.0
RATIO_LEAST = 1.6
JOBS = 20
READY_MAX_S = 120.0
FLEET_MAX_S = 3600.0
NOW = datetime(2026, 11, 1, tzinfo=UTC)
BODY = {"kind": "OUTGOING", "cutoff": "2026-10-27T00:00:00Z"}
TABLES = ("sym_data", "sym_data_event", "sym_outgoing_batch")
"""Of the data set: only the age of its rows matters."""


@dataclass(frozen=True)
class Fleet:
    """What the two ways over the same databases took."""

    one_by_one_s: list[float]
    together_s: float
    spark_jobs: int
    same_rows: bool

    @property
    def ratio(self) -> float:
        """How many times faster together."""
        return sum(self.one_by_one_s) / self.together_s


class Bench:
    """A service with two sets of copies of one database."""

    def __init__(self, directory: Path, *, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.stack = ExitStack()
        self.service = ServiceProcess(directory, settings=settings).start()
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


def fleet(bench: Bench, *, stores: int, rows: int) -> Fleet:
    """The same databases one after another and in one request."""
    first = bench.directory / "filled.sqlite"
    build(first, now=NOW, rows=rows)
    one_by_one = []
    alone: Path | None = None
    for number in range(stores):
        alone = shutil.copy(first, bench.directory / "alone.sqlite")
        name = bench.store(f"alone-{number}", Path(alone))
        began = time.perf_counter()
        bench.purge(name, "INLINE")
        one_by_one.append(time.perf_counter() - began)
    paths = [bench.directory / f"fleet-{number}.sqlite" for number in range(stores)]
    for number, path in enumerate(paths):
        shutil.copy(first, path)
        bench.store(f"fleet-{number}", path, fleet="bench")
    jobs_before = bench.pool()["exchange"]["spark_jobs"]
    began = time.perf_counter()
    body = {"kind": "PURGE", "params": BODY | {"engine": "SPARK"}, "labels": {"fleet": "bench"}}
    answer = bench.http.post("/v1/jobs:batch", json=body)
    answer.raise_for_status()
    _succeeded(wait_for(bench.http, answer.json()["id"], timeout_s=FLEET_MAX_S))
    together_s = time.perf_counter() - began
    assert alone is not None
    same = all(_left(path) == _left(Path(alone)) for path in paths)
    return Fleet(one_by_one, together_s, bench.pool()["exchange"]["spark_jobs"] - jobs_before, same)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stores", type=int, default=STORES, help="databases of the fleet")
    parser.add_argument("--rows", type=int, default=ROWS, help="captured rows of each")
    parser.add_argument("--jobs", type=int, default=JOBS, help="small jobs of each engine")
    parser.add_argument("--no-starts", action="store_true", help="do not measure the start of the pool")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure; 0: the fleet was fast enough and left the same rows."""
    options = parse(arguments)
    with scratch_directory("lethe-bench-spark-") as directory:
        if not options.no_starts:
            for archive in (False, True):
                took_s = start_s(directory / f"start-{archive}", archive=archive)
                print(
                    f"pool ready {'with' if archive else 'without'} class archive: {took_s:.1f} s", flush=True
                )
        bench = Bench(directory / "service")
        try:
            for engine in ("INLINE", "SPARK"):
                whole, begin = floors_ms(bench, engine, jobs=options.jobs)
                print(
                    f"{engine:<7} floor per job: median {statistics.median(whole):.0f} ms; "
                    f"POST to RUNNING: median {statistics.median(begin):.0f} ms, worst {max(begin):.0f} ms",
                    flush=True,
                )
            found = fleet(bench, stores=options.stores, rows=options.rows)
        finally:
            bench.close()
    least_s = min(found.one_by_one_s)
    judged = options.stores >= STORES_JUDGED and least_s >= WORK_LEAST_S
    right = found.same_rows and (not judged or found.ratio >= RATIO_LEAST)
    print(
        f"{options.stores} databases one after another {sum(found.one_by_one_s):.1f} s (each at least "
        f"{least_s:.1f} s), as a fleet {found.together_s:.1f} s in {found.spark_jobs} Spark jobs"
    )
    print(
        f"fleet ratio {found.ratio:.2f}x, at least {RATIO_LEAST:g}x asked"
        f"{'' if judged else ' (not judged: too small)'}  {'OK' if right else 'MISSED'}"
    )
    return 0 if right else 1
