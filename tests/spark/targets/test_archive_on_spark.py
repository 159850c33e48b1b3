"""Files of an archive read by workers of a real Spark session: the answer of threads, whatever dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db import Database
from app.jobs.engines.choice import Engines
from app.jobs.errors import JobStopped, StopCause
from app.jobs.queries import CHECKPOINT_USE
from app.settings import Settings
from spark.exchange.board import ExchangeLimits
from spark.exchange.dispatch import Exchange
from spark.exchange.lease import LeaseTerms
from spark.pool.pool import SparkPool
from spark.targets.archive.archive import verify_file
from spark.targets.archive.checking import Reading, read_at_worker
from spark.targets.manifest import ManifestEntry
from spark.targets.work import FileWork
from tests.app.archives.archive_jobs import DAMAGES, ArchiveJobs, archive_of, engines_on
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench
from tests.http.service_process import metadata_at_head
from tests.spark.conftest import wait_until

FILES = 24


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    path, clock = tmp_path / "lethe.db", FakeClock()
    path.write_bytes(metadata_at_head())
    database = Database(f"sqlite:///{path}", clock=clock)
    yield Workbench(database, clock, Settings(data_dir=tmp_path))
    database.close()


@pytest.fixture
def exchange(pool: SparkPool) -> Iterator[Exchange]:
    made = Exchange(pool, dispatchers=2, limits=ExchangeLimits(task_s=0.2))
    yield made
    made.close(10)


@pytest.fixture
def engines(pool: SparkPool, exchange: Exchange) -> Engines:
    return engines_on(pool, exchange)


def test_damaged_archive_gets_the_answer_of_threads(bench: Workbench, engines: Engines) -> None:
    entries = archive_of(bench.settings.effective_archive_root, files=FILES, damages=DAMAGES)
    jobs = ArchiveJobs.of(bench, entries)
    context = jobs.context("SPARK")
    said = jobs.run(context, engines)
    assert said == jobs.run(jobs.context("INLINE"), engines)
    assert said.code == "ARCHIVE_CORRUPT"
    use = bench.checkpoint(context.job.id, CHECKPOINT_USE)
    assert use is not None
    assert use["groups"]


def read_and_die_once(entry: ManifestEntry) -> Reading:
    """Kill the worker in the middle of one file, the first time."""
    marker = Path(f"{entry.path}.died")
    if entry.unit_id == "data-3" and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return read_at_worker(entry)


def test_files_of_a_killed_worker_are_read_by_another(exchange: Exchange, tmp_path: Path) -> None:
    entries = archive_of(tmp_path, files=FILES, damages=DAMAGES)
    work = FileWork(read_and_die_once, place="archive")
    with exchange.lease(work, LeaseTerms(workers=2)) as lease:
        outcomes = list(lease.map(iter(entries)))
    found = {outcome.unit: outcome.result.check for outcome in outcomes if outcome.result is not None}
    assert found == {entry: verify_file(entry) for entry in entries}
    assert len(outcomes) == FILES
    assert len(list(Path(entries[0].path).parent.glob("*.died"))) == 1


def read_for_long(entry: ManifestEntry) -> Reading:
    """As of a file of many gigabytes."""
    Path(f"{entry.path}.begun").touch()
    time.sleep(30)
    return read_at_worker(entry)


def test_abort_does_not_wait_for_a_file(
    bench: Workbench, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = ArchiveJobs.of(bench, archive_of(bench.settings.effective_archive_root, files=3))
    work = FileWork(read_for_long, place="archive")
    monkeypatch.setattr("app.archives.verifying.reading_work", lambda directory: work)
    context = jobs.context("SPARK")

    def abort() -> None:
        wait_until(lambda: any(jobs.directory.glob("*.begun")), within_s=60, what="a worker reads")
        context.signal(StopCause.ABORT)

    aborter = threading.Thread(target=abort)
    aborter.start()
    with pytest.raises(JobStopped) as stopped:
        jobs.run(context, engines)
    aborter.join()
    assert stopped.value.cause is StopCause.ABORT
