"""Measures a replication session from one service to another, as ratios in the same run.

Changes of three replicas go from the tables of one service over HTTP into those of another: SQLite to SQLite
and PostgreSQL to PostgreSQL. Beside it, into tables of the same layout with their indexes: (a) a COPY or a
bulk insert of the very rows; (b) the same session with one change in a request and one request at a time.
Services, database server and this program share the machine. Told too: rows read for each one sent, and the
peak memory of both services, at a tenth of the changes and at all of them.
Exit status 1: a figure was missed, or the consumer is not equal to the supplier. The last line is JSON.

    python benchmarks/replication.py --changes 100000 --rounds 1
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow as pa
from sqlalchemy.engine import make_url

from benchmarks.gates import Gate
from benchmarks.process_tree import tree_cpu_s, tree_memory_mib
from benchmarks.purge import SETTINGS
from benchmarks.replication_bare import (
    GENERATION,
    PREFIX,
    contents,
    fill_bare,
    make_layout,
    prepare,
    records,
    tell_origins,
)
from spark.targets.connection import Target
from tests.http.service_process import ServiceProcess
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory

CHANGES = 1_000_000
JUDGED_CHANGES = 1_000_000
QUICK_CHANGES = 3_000
SINGLE_CHANGES = 2_000
BARE_PERCENT = 35.0
SINGLE_RATIO = 100.0
READS_MOST = 1.0
MEMORY_RATIO_MOST = 1.3
MEMORY_LOOK_S = 0.1
SUPPLIER_RID, CONSUMER_RID = 1, 2
SESSION_MAX_S = 1_800.0
DIALECTS = ("sqlite", "postgresql")


@dataclass
class Found:
    """What the rounds of one kind of database showed."""

    dialect: str
    changes: int
    bare_s: list[float] = field(default_factory=list)
    session_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    single_per_s: float = 0.0
    reads_per_sent: float = 0.0
    peak_mib: float = 0.0
    peak_of_tenth_mib: float = 0.0
    differing: int = 0

    @property
    def session_per_s(self) -> float:
        """Changes a second, end to end."""
        return self.changes / statistics.median(self.session_s)

    @property
    def bare_per_s(self) -> float:
        """Changes a second by the bare way."""
        return self.changes / statistics.median(self.bare_s)

    def gates(self) -> list[Gate]:
        """What is asked."""
        judged = self.changes >= JUDGED_CHANGES
        percent = 100 * self.session_per_s / self.bare_per_s
        single = self.session_per_s / self.single_per_s
        memory = self.peak_mib / self.peak_of_tenth_mib
        name = self.dialect
        return [
            Gate(f"{name}: session against the bare way", percent, BARE_PERCENT, "%", judged=judged),
            Gate(f"{name}: against one change in a request", single, SINGLE_RATIO, "x", judged=judged),
            Gate(f"{name}: rows read for each sent", self.reads_per_sent, READS_MOST, "", at_least=False),
            Gate(
                f"{name}: memory at ten times the changes",
                memory,
                MEMORY_RATIO_MOST,
                "x",
                at_least=False,
                judged=judged,
            ),
        ]

    def lines(self) -> list[str]:
        """What lies behind the gates."""
        bare, session = statistics.median(self.bare_s), statistics.median(self.session_s)
        return [
            f"\n{self.dialect}, {self.changes:,} changes: bare {bare:.2f} s ({self.bare_per_s:,.0f}/s), "
            f"session {session:.2f} s ({self.session_per_s:,.0f}/s; {statistics.median(self.cpu_s):.1f} s of "
            "processor in both services)",
            f"one in a request {self.single_per_s:,.0f}/s; peak of both services {self.peak_mib:,.0f} MiB, "
            f"{self.peak_of_tenth_mib:,.0f} MiB at a tenth",
        ]


class Bench:
    """Two services, and a place for the databases of each round."""

    def __init__(self, stack: ExitStack, options: argparse.Namespace) -> None:
        self.directory = Path(stack.enter_context(scratch_directory("lethe-bench-replication-")))
        settings = {} if options.engine == "SPARK" else {"LETHE_SPARK__ENABLED": "false"}
        secrets = self.directory / "secrets"
        secrets.mkdir(mode=0o700)
        settings["LETHE_SECRETS_DIR"] = str(secrets)
        self.engine = options.engine
        self.supplier, self.consumer = (
            ServiceProcess(self.directory / name, settings=settings).start()
            for name in ("supplier", "consumer")
        )
        stack.callback(self.supplier.stop)
        stack.callback(self.consumer.stop)
        self.http = {each: stack.enter_context(each.http()) for each in (self.supplier, self.consumer)}
        self.token = secrets / "consumer.token"
        self.token.write_text(self.consumer.token)
        self.token.chmod(0o600)
        self._stack = stack
        self._server: PostgresqlServer | None = None
        self._made = 0

    def target(self, dialect: str) -> Target:
        """A database that nobody has used yet."""
        self._made += 1
        name = f"bench_{self._made}"
        if dialect == "sqlite":
            return Target(f"sqlite:///{self.directory / name}.db", table_prefix=PREFIX)
        url = make_url(self._postgresql().url())
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return Target(
            url.set(drivername="postgresql+psycopg", database=name).render_as_string(hide_password=False),
            table_prefix=PREFIX,
        )

    def _postgresql(self) -> PostgresqlServer:
        if self._server is None:
            binaries = find_binaries(self._stack.enter_context(scratch_directory("lethe-binaries-")))
            place = self._stack.enter_context(scratch_directory())
            self._server = PostgresqlServer(binaries, place, settings=SETTINGS)
            self._server.start()
            self._stack.callback(self._server.stop)
        return self._server

    def replicate(self, supplier: Target, consumer: Target, **agreement: Any) -> dict[str, Any]:
        """One session to its end; the session as clients see it, with `seconds`."""
        name = f"bench-{self._made}"
        for service, target, rid in (
            (self.supplier, supplier, SUPPLIER_RID),
            (self.consumer, consumer, CONSUMER_RID),
        ):
            body = {"id": name, "kind": "REPLICA", "rid": rid, "url": target.url, "generation": GENERATION}
            self.http[service].post("/v1/stores", json=body).raise_for_status()
        http, path = self.http[self.supplier], f"/v1/stores/{name}"
        secret = {"name": name, "reference": f"file:{self.token}", "stores": [name], "hosts": ["127.0.0.1"]}
        http.post("/v1/secrets", json=secret).raise_for_status()
        peer = {"url": self.consumer.url, "store": name, "token": f"secret:{name}"}
        made = http.post(f"{path}/agreements", json={"consumer": peer} | agreement)
        made.raise_for_status()
        began = time.perf_counter()
        body = {"agreement_id": made.json()["id"]} | ({"engine": self.engine} if self.engine else {})
        started = http.post(f"{path}/replication-sessions", json=body)
        started.raise_for_status()
        job = _ended(http, started.json()["id"])
        seconds = time.perf_counter() - began
        assert job["state"] == "SUCCEEDED", job["error"]
        session = http.get(f"{path}/replication-sessions/{started.json()['subject']['id']}").json()
        assert session["outcome"] == "UP_TO_DATE", session
        return session | {"seconds": seconds}

    @contextmanager
    def watched(self) -> Iterator[Callable[[], float]]:
        """Look at the memory of both services; the call tells the peak so far, in MiB."""
        peak = 0.0
        over = threading.Event()

        def look() -> None:
            nonlocal peak
            while not over.wait(MEMORY_LOOK_S):
                peak = max(peak, tree_memory_mib(self.supplier.pid) + tree_memory_mib(self.consumer.pid))

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            yield lambda: peak
        finally:
            over.set()
            watcher.join()

    def cpu_s(self) -> float:
        """Processor time of both services so far."""
        return tree_cpu_s(self.supplier.pid) + tree_cpu_s(self.consumer.pid)


def _ended(http: httpx.Client, job_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + SESSION_MAX_S
    while time.monotonic() < deadline:
        job: dict[str, Any] = http.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=20"}).json()
        if job["state"] in ("SUCCEEDED", "FAILED", "ABORTED", "ABANDONED"):
            return job
    raise TimeoutError(f"{job_id} has not ended in {SESSION_MAX_S:g} s")


def measure(bench: Bench, dialect: str, options: argparse.Namespace) -> Found:
    """All rounds of one kind of database."""
    found = Found(dialect, options.changes)
    tenth = list(records(max(1, options.changes // 10)))
    found.peak_of_tenth_mib = _session(bench, found, tenth, is_measured=False)
    found.single_per_s = _one_by_one(bench, found, list(records(min(SINGLE_CHANGES, options.changes))))
    batches = list(records(options.changes))
    for _ in range(options.rounds):
        found.peak_mib = max(found.peak_mib, _session(bench, found, batches, is_measured=True))
    return found


def _supplier(bench: Bench, dialect: str, batches: list[pa.RecordBatch]) -> tuple[Target, float]:
    """A replica that was filled by the bare way, and how long that took."""
    target = bench.target(dialect)
    make_layout(target, rid=SUPPLIER_RID)
    prepared = prepare(dialect, batches)
    seconds = fill_bare(target, prepared)
    tell_origins(target, batches)
    return target, seconds


def _session(bench: Bench, found: Found, batches: list[pa.RecordBatch], *, is_measured: bool) -> float:
    """Fill by the bare way, replicate, compare; the peak of memory in MiB."""
    supplier, bare_s = _supplier(bench, found.dialect, batches)
    consumer = bench.target(found.dialect)
    cpu_s = bench.cpu_s()
    with bench.watched() as peak:
        session = bench.replicate(supplier, consumer)
    found.differing += contents(supplier) != contents(consumer)
    if is_measured:
        found.bare_s.append(bare_s)
        found.session_s.append(session["seconds"])
        found.cpu_s.append(bench.cpu_s() - cpu_s)
        sent = sum(each["sent"] for each in session["counters"].values())
        found.reads_per_sent = max(found.reads_per_sent, session["rows_read"] / sent)
    return peak()


def _one_by_one(bench: Bench, found: Found, batches: list[pa.RecordBatch]) -> float:
    supplier, _ = _supplier(bench, found.dialect, batches)
    consumer = bench.target(found.dialect)
    session = bench.replicate(supplier, consumer, batch_rows=1, in_flight=1)
    found.differing += contents(supplier) != contents(consumer)
    return sum(batch.num_rows for batch in batches) / float(session["seconds"])


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dialect", choices=DIALECTS, action="append", help="default: both")
    parser.add_argument("--engine", choices=("INLINE", "SPARK"), default="INLINE")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_CHANGES:,} changes, one round")
    options = parser.parse_args(arguments)
    if options.quick:
        options.changes, options.rounds = QUICK_CHANGES, 1
    return options


def main(arguments: Sequence[str]) -> int:
    """Measure; 0: every figure held and both sides were equal each time."""
    options = parse(arguments)
    gates: list[Gate] = []
    document: dict[str, Any] = {}
    differing = 0
    with ExitStack() as stack:
        bench = Bench(stack, options)
        for dialect in options.dialect or DIALECTS:
            found = measure(bench, dialect, options)
            print("\n".join(found.lines()), flush=True)
            gates += found.gates()
            differing += found.differing
            document[dialect] = vars(found)
    document["gates"] = [vars(gate) | {"met": gate.is_met} for gate in gates]
    print()
    for gate in gates:
        print(gate.line())
    if differing:
        print(f"DIFFERENT: after {differing} session(s) the consumer was not equal to the supplier")
    print(json.dumps(document))
    return 0 if all(gate.is_met for gate in gates) and not differing else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
