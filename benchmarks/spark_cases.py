"""The cases of the comparison of engines: each makes its data anew, is done once, says what is left."""

from __future__ import annotations

import base64
import os
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from app.archives.verifying import FILES_AT_ONCE, WORKERS_MAX
from app.cli.demo.data import build
from app.clock import SystemClock
from app.db import Database
from app.jobs.engines.choice import Engines
from app.kit.spark.thresholds import WorkKind
from app.purge.task import run_purge
from app.settings import Settings
from benchmarks.extinction import DATABASE, fill
from benchmarks.purge_lethe import claimed, closing_database, store_at
from benchmarks.replication_bare import LIMITS, fill_bare, make_layout, prepare, records, tell_origins
from benchmarks.spark_engines import Crew, ProcessSpread
from lethe_samples.je_writer.sample import write_sample
from spark.erase.calls.calls import PlanAnswer, PlanCall
from spark.erase.calls.request import PlanRequest
from spark.erase.plan.spread import plan_spread
from spark.erase.run import SparkHands
from spark.erase.unit import do
from spark.extinction.run import ScanUnit, scan_batch, scan_work
from spark.extinction.slices import begin_scan, cut_slices, finish_scan, read_slices
from spark.formats.csn import Csn
from spark.formats.extinction import Extinction
from spark.formats.extinction_filter import Filter
from spark.formats.replica import tables_of
from spark.replication.consumer.extinctions import write_extinction
from spark.replication.proofs.proved_batches import encode_proved
from spark.replication.replica.local_write import Expected
from spark.replication.run import SlicedReader, slice_work, spool_folder
from spark.replication.supplier.decide import Window
from spark.replication.supplier.slices import Bounds
from spark.replication.supplier.window import WindowReader
from spark.targets.archive.archive import verify
from spark.targets.archive.checking import reading_work
from spark.targets.archive.file import AttemptWriter
from spark.targets.connection import Connection, Target, connect
from spark.targets.manifest import ManifestEntry
from spark.targets.work import UnitWork
from tests.postgresql_server import PostgresqlServer

NOW: Final = datetime(2026, 11, 1, tzinfo=UTC)
CUTOFF: Final = datetime(2026, 10, 27, tzinfo=UTC)
WORKERS: Final = 2
"""As purge_workers is by itself."""
SCAN_ROWS: Final = 10_000
SCAN_SLICE: Final = 50_000
WINDOW_BATCH: Final = 10_000
WINDOW_BYTES: Final = 8 * 1024 * 1024
HALF: Final = Filter.parse({"modulo": {"offset": 11, "width": 1, "divisor": 2, "remainder": 0}})
TABLES: Final = ("sym_data", "sym_data_event", "sym_outgoing_batch")
Left = tuple[Any, ...]


@dataclass(frozen=True)
class Size:
    """How much work the cases are."""

    small_units: int = 200
    stores: int = 6
    rows: int = 60_000
    entries: int = 400_000
    changes: int = 400_000
    log_bytes: int = 256 * 1024 * 1024
    archive_files: int = 40
    archive_rows: int = 50_000


@dataclass(frozen=True)
class Case:
    """One kind of work.

    Attributes:
        kind: whose threshold AUTO goes by; None: of no kind.
        size: in the unit of that threshold.
        ready: makes the data anew where the last run has changed it; not in the time.
        run: does it all; what must be the same whoever did it.
    """

    name: str
    kind: WorkKind | None
    size: int
    ready: Callable[[], None]
    run: Callable[[Crew], Left]


def answer(conn: Connection, unit: int) -> int:
    """A unit that costs next to nothing."""
    [(found,)] = conn.execute("select :unit", {"unit": unit})
    return int(found)


def small_work(scratch: Path) -> UnitWork[int, int]:
    """Units that cost next to nothing, on a SQLite file."""
    path = scratch / "small.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("create table if not exists small (unit integer)")
    return UnitWork(Target(f"sqlite:///{path}"), LIMITS, "lethe:bench", answer)


def small_together(crew: Crew, work: UnitWork[int, int], units: int) -> Left:
    """All of them in one lease, as the units of one job are."""
    with crew.engine.lease(work, workers=WORKERS) as lease:
        return tuple(sorted(outcome.result or 0 for outcome in lease.map(iter(range(units)))))


def small_alone(crew: Crew, work: UnitWork[int, int], units: int) -> Left:
    """Each in a lease of its own, one after the other, as small jobs are."""
    found = []
    for unit in range(units):
        with crew.engine.lease(work, workers=WORKERS) as lease:
            found += [outcome.result for outcome in lease.map(iter((unit,)))]
    return tuple(found)


class PurgeFleet:
    """Copies of one SymmetricDS database in SQLite, each purged by the service's own task, side by side."""

    def __init__(self, scratch: Path, size: Size) -> None:
        self._first = scratch / "filled.sqlite"
        build(self._first, now=NOW, rows=size.rows)
        self._paths = [scratch / f"fleet-{number}.sqlite" for number in range(size.stores)]

    def ready(self) -> None:
        """Copy the first database."""
        for path in self._paths:
            # Whoever has the last one open still keeps it to himself.
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                path.with_name(name).unlink(missing_ok=True)
            shutil.copy(self._first, path)

    def run(self, crew: Crew) -> Left:
        """A job for each of them, as many at once as there are."""
        with ThreadPoolExecutor(len(self._paths)) as jobs:
            list(jobs.map(partial(_purge, crew), self._paths))
        return tuple(_rows_left(path) for path in self._paths)


def _purge(crew: Crew, path: Path) -> None:
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(data_dir=Path(directory), lease_self_stop_s=3600)
        with closing_database(Database(settings.effective_metadata_url)) as database:
            store = store_at(f"sqlite:///{path}", database)
            context = claimed(database, settings, clock, store, cutoff=CUTOFF)
            run_purge(context, engines=Engines(crew.engine))


def _rows_left(path: Path) -> Left:
    with closing(sqlite3.connect(path)) as db:
        return tuple(db.execute(f"select count(*), total(rowid) from {table}").fetchone() for table in TABLES)


class ExtinctionScan:
    """A scan of a replica on PostgreSQL: on SQLite a scan is done inline, whoever asks."""

    _target: Target
    _gone: Extinction

    def __init__(self, server: PostgresqlServer, size: Size) -> None:
        self._server = server
        self._entries = size.entries
        self._made = 0

    def ready(self) -> None:
        """A new replica with an extinction of half of its keys, and its slices."""
        self._made += 1
        self._target = Target(self._server.create_database(f"scan{self._made}"))
        make_layout(self._target, rid=1)
        fill(self._target, self._entries)
        self._gone = Extinction(f"ext_{self._made}", frozenset([DATABASE]), filter=HALF)
        with self._opened() as conn:
            conn.execute(f"update {tables_of(conn).replica} set status = 'ONLINE'")
            write_extinction(conn, self._gone, now_s=int(time.time()), expected=Expected("bench", None))
            begin_scan(conn, self._gone.id, list(cut_slices(conn, self._gone, rows=SCAN_SLICE)))

    def _opened(self) -> Connection:
        return connect(self._target, application_name="lethe:bench", limits=LIMITS)

    def run(self, crew: Crew) -> Left:
        """Scan slice by slice on one connection, or on workers."""
        with self._opened() as conn:
            if crew.name == "threads":
                self._here(conn)
            else:
                self._on(crew, conn)
            removed = finish_scan(conn, self._gone.id, now_s=1)
            [(left,)] = conn.execute(f"select count(*) from {tables_of(conn).entries}")
        return removed.records, removed.bytes, left

    def _here(self, conn: Connection) -> None:
        for part in read_slices(conn, self._gone):
            now = part
            while not now.is_done:
                now = scan_batch(conn, now, rows_max=SCAN_ROWS) or now

    def _on(self, crew: Crew, conn: Connection) -> None:
        work = scan_work(self._target, limits=LIMITS, application_name="lethe:bench")
        with crew.engine.lease(work, workers=WORKERS) as lease:
            while left := [each for each in read_slices(conn, self._gone) if not each.is_done]:
                for outcome in lease.map(ScanUnit(each, SCAN_ROWS) for each in left):
                    assert outcome.error is None, outcome.error


class ReplicationWindow:
    """What a session reads and encodes for a consumer that has nothing yet, from a replica in SQLite."""

    def __init__(self, scratch: Path, size: Size) -> None:
        self._scratch = scratch
        self._target = Target(f"sqlite:///{scratch / 'window.sqlite'}")
        batches = list(records(size.changes))
        make_layout(self._target, rid=1)
        fill_bare(self._target, prepare("sqlite", batches))
        tell_origins(self._target, batches)

    def ready(self) -> None:
        """Reading changes nothing."""

    def run(self, crew: Crew) -> Left:
        """By one reader, or in slices on workers."""
        with (
            connect(self._target, application_name="lethe:bench", limits=LIMITS, read_only=True) as conn,
            spool_folder(self._scratch) as folder,
        ):
            ruv = conn.execute(f"select rid, max_csn from {tables_of(conn).ruv}")
            windows = {int(rid): Window(None, Csn(upto)) for rid, upto in ruv}
            if crew.name == "threads":
                reader = WindowReader(conn, windows, rows_max=WINDOW_BATCH, bytes_max=WINDOW_BYTES)
                return _counted((batch.num_rows, encode_proved(conn, batch)) for batch in reader)
            bounds = Bounds(rows_max=WINDOW_BATCH, bytes_max=WINDOW_BYTES)
            work = slice_work(
                self._target, limits=LIMITS, application_name="lethe:bench", folder=folder, bounds=bounds
            )
            with crew.engine.lease(work, workers=WORKERS) as lease:
                sliced = SlicedReader(conn, windows, bounds=bounds, map_slices=lease.map)
                return _counted((batch.rows, batch.body) for batch in sliced)


def _counted(batches: Iterator[tuple[int, bytes]]) -> Left:
    """Rows; a client would have got the bodies, whose cuts differ with the slices."""
    rows = 0
    for count, body in batches:
        assert body, "a batch has a body"
        rows += count
    return (rows,)


class ErasurePlan:
    """The plan of an erasure of a JE log: inline one pass in one process, else a task a file."""

    def __init__(self, scratch: Path, size: Size) -> None:
        self._directory = scratch / "environment"
        self._directory.mkdir()
        write_sample(
            self._directory,
            total_bytes=size.log_bytes,
            value_bytes_median=900,
            obsolete_fraction=0.5,
            file_bytes=max(size.log_bytes // 8, 100_000),
        )

    def ready(self) -> None:
        """A plan changes nothing."""

    def run(self, crew: Crew) -> Left:
        """Plan; what would be erased of each file."""
        found = self._plan(crew)
        assert found.refusal is None, found.refusal
        return tuple((file.number, file.entry_count) for file in found.files)

    def _plan(self, crew: Crew) -> PlanAnswer:
        call = PlanCall(str(self._directory), PlanRequest())
        if crew.processes is not None:
            return plan_spread(self._directory, call.request, ProcessSpread(crew.processes, crew.cores))
        if crew.spark is not None:
            lease = crew.spark.pool.lease(job_id="benchmark", job_class="BULK", wait_s=120.0)
            with SparkHands(lease) as hands:
                return hands.plan(call)
        return do(call)


class ArchiveReading:
    """An archive that is read again: inline in threads, else a unit a file."""

    def __init__(self, scratch: Path, size: Size) -> None:
        self._folder = scratch / "archive"
        self._entries = [self._written(number, size.archive_rows) for number in range(size.archive_files)]
        self.bytes = sum(entry.bytes for entry in self._entries)

    def _written(self, number: int, rows: int) -> ManifestEntry:
        chance = random.Random(number)
        table = pa.table(
            {
                "data_id": range(number * rows, (number + 1) * rows),
                "row_data": [
                    base64.b64encode(chance.randbytes(chance.randint(60, 225))) for _ in range(rows)
                ],
            }
        )
        unit_id = f"data-{number}"
        with AttemptWriter(self._folder, unit_id=unit_id, token=1, schema=table.schema) as writer:
            writer.write(table)
            done = writer.finish()
        return ManifestEntry(
            "job_1", unit_id, "sym_data", 1, str(done.path), done.rows, done.bytes, done.sha256
        )

    def ready(self) -> None:
        """Reading changes nothing."""

    def run(self, crew: Crew) -> Left:
        """Read all files; how each is."""
        if crew.name == "threads":
            rounds = range(0, len(self._entries), FILES_AT_ONCE)
            checks = [check for at in rounds for check in verify(self._entries[at : at + FILES_AT_ONCE])]
        else:
            with crew.engine.lease(reading_work(str(self._folder)), workers=WORKERS_MAX) as lease:
                read = [outcome.result for outcome in lease.map(iter(self._entries))]
            checks = [reading.check for reading in read if reading is not None]
        return tuple(sorted((check.entry.unit_id, check.state) for check in checks))


@contextmanager
def cases(scratch: Path, server: PostgresqlServer, size: Size) -> Iterator[list[Case]]:
    """All of them, with their data made."""
    os.makedirs(scratch, exist_ok=True)
    work = small_work(scratch)
    purges, scan = PurgeFleet(scratch, size), ExtinctionScan(server, size)
    window, plan = ReplicationWindow(scratch, size), ErasurePlan(scratch, size)
    archive = ArchiveReading(scratch, size)
    units = size.small_units
    yield [
        Case("small units, one lease", None, units, _nothing, lambda crew: small_together(crew, work, units)),
        Case("small units, a lease each", None, units, _nothing, lambda crew: small_alone(crew, work, units)),
        Case("purge fleet", "PURGE", size.stores * size.rows, purges.ready, purges.run),
        Case("extinction scan", "EXTINCTION", size.entries, scan.ready, scan.run),
        Case("replication window", "WINDOW", size.changes, window.ready, window.run),
        Case("erasure plan", "ERASURE", size.log_bytes, plan.ready, plan.run),
        Case("archive read again", "VERIFICATION", archive.bytes, archive.ready, archive.run),
    ]


def _nothing() -> None:
    """Units that cost nothing have no data."""
