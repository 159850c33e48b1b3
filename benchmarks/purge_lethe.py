"""Lethe's side of the purge benchmark: the product's own task, in its own process to tell its memory.

The task runs as a runner would run it, on the inline engine, with its metadata in a SQLite file and its
ledger and fence in the target; only HTTP and the queue in front of it are left out.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from sqlalchemy.engine import URL, make_url
from sqlmodel import SQLModel

from app.clock import SystemClock
from app.db import Database
from app.jobs.engines.choice import Engines
from app.jobs.engines.engine import ANYBODY, Borrower, EngineLease, InlineEngine, Outcome, UnitWork
from app.jobs.rows import Job
from app.jobs.running.claims import ClaimedJob
from app.jobs.running.context import JobContext
from app.jobs.states import JobState
from app.purge.models import Overlap, PurgeKind, PurgeParams, Sourced, StrandedMode
from app.purge.service import target_fields
from app.purge.task import run_purge
from app.secrets.rows import Secret
from app.secrets.service import reference_of
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from benchmarks.purge_shapes import CUTOFF
from spark.targets.hosts import OWN_SOCKET

STORE_ID = "benchmark"
JOB_ID = "job_0benchmark0000000000000000"
INSTANCE = "benchmark"
TOKEN = 1
PASSWORD_VARIABLE = "LETHE_SECRET_BENCHMARK"
SECRET = "benchmark"
Unit = TypeVar("Unit")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Run:
    """What one purge took.

    Attributes:
        seconds: from the first unit's begin to the last COMMIT.
        job_seconds: of the whole task: its looks at the target before and after are in it.
        longest_ms: the longest unit, which is the longest that a writer can have waited for it.
        peak_mib: the highest resident set of the process, the interpreter and its libraries included.
    """

    seconds: float
    job_seconds: float
    units: int
    longest_ms: float
    peak_mib: float


class TimedEngine:
    """The inline engine, and when its first unit began and its last one ended."""

    name: Literal["INLINE", "SPARK"] = "INLINE"

    def __init__(self, clock: SystemClock) -> None:
        """Wrap a new inline engine."""
        self._engine = InlineEngine(clock)
        self.begun: float | None = None
        self.ended = 0.0

    def lease(
        self,
        work: UnitWork[Unit, Result],
        *,
        workers: int,
        borrower: Borrower = ANYBODY,
    ) -> AbstractContextManager[EngineLease[Unit, Result]]:
        """Lend the inline engine's workers."""
        return self._timed(work, workers, borrower)

    @contextmanager
    def _timed(
        self, work: UnitWork[Unit, Result], workers: int, borrower: Borrower
    ) -> Iterator[EngineLease[Unit, Result]]:
        with self._engine.lease(work, workers=workers, borrower=borrower) as lease:
            yield TimedLease(self, lease)


class TimedLease(EngineLease[Unit, Result]):
    """Passes units on and looks at the clock."""

    def __init__(self, engine: TimedEngine, lease: EngineLease[Unit, Result]) -> None:
        """Wrap a lease."""
        self._engine = engine
        self._lease = lease

    def map(self, units: Iterator[Unit]) -> Iterator[Outcome[Unit, Result]]:
        """Run units as they are drawn."""
        if self._engine.begun is None:
            self._engine.begun = time.perf_counter()
        for outcome in self._lease.map(units):
            self._engine.ended = time.perf_counter()
            yield outcome

    def cancel(self) -> None:
        """End what runs."""
        self._lease.cancel()

    def close(self) -> None:
        """Give the workers back."""
        self._lease.close()


def run_in_child(conninfo: str) -> Run:
    """Purge the whole database in a new process."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_purge, conninfo).result()


def _purge(conninfo: str) -> Run:
    clock = SystemClock()
    engine = TimedEngine(clock)
    with tempfile.TemporaryDirectory() as directory:
        # A runner would renew the lease; there is none here.
        settings = Settings(data_dir=Path(directory), lease_self_stop_s=3600)
        with closing_database(Database(settings.effective_metadata_url)) as database:
            context = claimed(database, settings, clock, store_at(conninfo, database))
            begun = time.perf_counter()
            result = run_purge(context, engines=Engines(engine))
            job_seconds = time.perf_counter() - begun
    assert engine.begun is not None
    seconds = engine.ended - engine.begun
    return Run(seconds, job_seconds, result["units"], result["longest_hold_ms"], _peak_mib())


@contextmanager
def closing_database(database: Database) -> Iterator[Database]:
    """Create the tables; give the connections back at the end."""
    SQLModel.metadata.create_all(database.engine)
    try:
        yield database
    finally:
        database.engine.dispose()


def store_at(conninfo: str, database: Database) -> Store:
    """The store of an address; its password becomes a secret of the metadata."""
    url = make_url(conninfo)
    drivers = {"mysql": "mysql+pymysql", "sqlite": "sqlite"}
    driver = drivers.get(url.get_backend_name(), "postgresql+psycopg")
    bare = URL.create(driver, url.username, None, url.host, url.port, url.database, url.query)
    if url.password is not None:
        os.environ[PASSWORD_VARIABLE] = str(url.password)
    with database.transaction() as db:
        now = database.now(db)
        if url.password is not None:
            hosts = [url.host or OWN_SOCKET]
            place = f"env:{PASSWORD_VARIABLE}"
            db.add(
                Secret(
                    name=SECRET,
                    reference=place,
                    stores=[STORE_ID],
                    hosts=hosts,
                    created_at=now,
                    updated_at=now,
                )
            )
    return Store(
        id=STORE_ID,
        kind=StoreKind.SYMMETRICDS,
        url=bare.render_as_string(hide_password=False),
        password=None if url.password is None else reference_of(SECRET),
        created_at=now,
        updated_at=now,
    )


def _params(store: Store, cutoff: datetime) -> dict[str, Any]:
    """A purge as it is submitted without any bound of its own."""
    params = PurgeParams(
        kind=PurgeKind.OUTGOING,
        cutoff=cutoff.replace(tzinfo=UTC),
        retention_minutes=None,
        default_retention_minutes=Sourced(value=7200, source="DEFAULT"),
        stranded=StrandedMode.MARK,
        stranded_by="REQUEST",
        strict=False,
        data_rows_in_tx=None,
        event_batches_in_tx=None,
        batches_in_tx=None,
        archive=None,
        throttle=None,
        force=False,
        overlap=Overlap.REFUSE,
        plan_id=None,
        max_rows=None,
        max_fraction=None,
        archive_retention="P30D",
        target=target_fields(store),
    )
    return params.model_dump(mode="json")


def claimed(
    database: Database,
    settings: Settings,
    clock: SystemClock,
    store: Store,
    *,
    cutoff: datetime = CUTOFF,
    changed: Callable[[str], None] = lambda _job: None,
) -> JobContext:
    """The context of a job that a runner has just claimed."""
    held: dict[str, Any] = {
        "id": JOB_ID,
        "kind": "PURGE",
        "store": store.id,
        "state": JobState.RUNNING,
        "requested_by": "benchmark",
        "params": _params(store, cutoff),
        "attempt": 1,
        "crash_count": 0,
        "retries": 0,
        "active_s": 0.0,
    }
    with database.transaction() as db:
        now = database.now(db)
        db.add(store)
        db.add(Job(**held, created_at=now, updated_at=now, fencing_token=TOKEN, lease_instance=INSTANCE))
    return JobContext(
        ClaimedJob(**held, token=TOKEN, throttle=None),
        instance_id=INSTANCE,
        database=database,
        settings=settings,
        clock=clock,
        changed=changed,
    )


def _peak_mib() -> float:
    # VmHWM and not getrusage: that one also remembers the process which this one was forked from.
    (peak,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    ]
    return int(peak.split()[1]) / 1024
