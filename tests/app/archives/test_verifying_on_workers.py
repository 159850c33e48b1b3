"""A verification by workers of an engine: the answer of threads, or none; threads stand in for Spark."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.archives import verifying
from app.clock import SystemClock
from app.jobs.engines.choice import Engines
from app.jobs.engines.engine import InlineEngine
from app.jobs.errors import JobStopped, StopCause
from app.jobs.queries import CHECKPOINT_USE
from app.kit.spark.thresholds import CLUSTER
from app.settings import Settings, SparkSettings
from spark.exchange.board import ExchangeLimits
from spark.exchange.dispatch import Exchange
from spark.pool.errors import SparkJobFailed, SparkLost
from spark.targets.archive.archive import FileCheck, verify_file
from spark.targets.archive.checking import Reading, reading_work
from spark.targets.errors import ArchiveFailed, TargetCancelled
from spark.targets.manifest import ManifestEntry
from spark.targets.work import FileWork, require_folder
from tests.app.archives.archive_jobs import DAMAGES, ArchiveJobs, archive_of, engines_on
from tests.app.jobs.test_spark_engine import Pool
from tests.app.jobs.workbench import Workbench
from tests.spark.exchange.slots import CORES, ThreadSlots

FILES = 40


class Slots(ThreadSlots):
    """Does something before a job of Spark begins."""

    def __init__(self) -> None:
        super().__init__(2)
        self.before: Callable[[int], None] = lambda number: None

    def run_tasks(self, slot: Any, tasks: Sequence[Any], deliver: Any) -> None:
        self.before(len(self.jobs))
        super().run_tasks(slot, tasks, deliver)


@pytest.fixture
def slots() -> Iterator[Slots]:
    made = Slots()
    yield made
    made.close()


@pytest.fixture
def exchange(slots: Slots) -> Iterator[Exchange]:
    made = Exchange(
        slots,
        dispatchers=2,
        limits=ExchangeLimits(task_s=0.2, gather_s=0.005),
        run=slots.run_tasks,
        cores=lambda _: CORES,
        describe=slots.describe,
    )
    yield made
    made.close()


@pytest.fixture
def engines(exchange: Exchange) -> Engines:
    return engines_on(Pool(), exchange)


def root(bench: Workbench) -> Path:
    return bench.settings.effective_archive_root


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("damages", [(), DAMAGES, DAMAGES * 4])
def test_damaged_archive_gets_the_same_answer(
    bench: Workbench, engines: Engines, damages: tuple[str, ...]
) -> None:
    jobs = ArchiveJobs.of(bench, archive_of(root(bench), files=FILES, damages=damages))
    inline, spark = jobs.context("INLINE"), jobs.context("SPARK")
    before = content(jobs.directory)
    said = jobs.run(spark, engines)
    assert said == jobs.run(inline, engines)
    assert said.code == ("ARCHIVE_CORRUPT" if damages else None)
    assert said.result is not None
    assert said.result["files"] == FILES
    assert len(said.result["bad"]) == len(damages)
    assert content(jobs.directory) == before
    for context, engine in ((inline, "INLINE"), (spark, "SPARK")):
        shown = [each["done"] for each in jobs.shown(context)]
        assert shown == sorted(shown)
        assert shown[-1] == jobs.shown(context)[-1]["total"] == FILES
        assert bench.job(context.job.id).engine == engine
    use = bench.checkpoint(spark.job.id, CHECKPOINT_USE)
    assert use is not None
    assert use["tasks"] >= 1
    assert bench.checkpoint(inline.job.id, CHECKPOINT_USE) is None


def test_archive_that_is_gone_is_refused_alike(bench: Workbench, engines: Engines) -> None:
    """Without a ledger nobody knows of a file; workers are not asked."""
    jobs = ArchiveJobs.of(bench, archive_of(root(bench), files=2))
    shutil.rmtree(jobs.directory)
    said = [jobs.run(jobs.context(engine), engines) for engine in ("INLINE", "SPARK")]
    assert said[0] == said[1]
    assert said[0].code == "ARCHIVE_EMPTY"


def test_folder_that_goes_while_it_is_read_has_missing_files(
    bench: Workbench, engines: Engines, slots: Slots
) -> None:
    """Gone here too: the files are MISSING, and no machine is to blame."""
    jobs = ArchiveJobs.of(bench, archive_of(root(bench), files=3))
    slots.before = lambda number: shutil.rmtree(jobs.directory, ignore_errors=True)
    said = jobs.run(jobs.context("SPARK"), engines)
    assert said.code == "ARCHIVE_CORRUPT"
    assert said.result is not None
    assert [each["state"] for each in said.result["bad"]] == ["MISSING"] * 3


@pytest.mark.parametrize("fault", [SparkLost("no JVM"), SparkJobFailed("a worker died")])
def test_files_of_a_lost_job_of_spark_are_read_again(
    bench: Workbench, engines: Engines, slots: Slots, fault: SparkLost
) -> None:
    jobs = ArchiveJobs.of(bench, archive_of(root(bench), files=FILES, damages=DAMAGES))
    slots.script.extend([None, fault, None, fault])
    assert jobs.run(jobs.context("SPARK"), engines) == jobs.run(jobs.context("INLINE"), engines)


@pytest.mark.parametrize("cause", [StopCause.PAUSE, StopCause.ABORT, StopCause.SHUTDOWN])
def test_stop_in_the_middle_ends_it_and_another_attempt_reads_all(
    bench: Workbench, engines: Engines, exchange: Exchange, slots: Slots, cause: StopCause
) -> None:
    jobs = ArchiveJobs.of(bench, archive_of(root(bench), files=FILES, damages=DAMAGES))
    context = jobs.context("SPARK")
    slots.before = lambda number: context.signal(cause) if number == 1 else None
    with pytest.raises(JobStopped) as stopped:
        jobs.run(context, engines)
    assert stopped.value.cause is cause
    assert (exchange.snapshot().leases, exchange.snapshot().units_waiting) == (0, 0)
    assert jobs.shown(context)[-1]["done"] < FILES
    slots.before = lambda number: None
    assert jobs.run(jobs.context("SPARK"), engines) == jobs.run(jobs.context("INLINE"), engines)


def read_slowly(entry: ManifestEntry) -> Reading:
    """As a machine does with a file of many gigabytes."""
    time.sleep(1)
    return Reading(verify_file(entry), "node-7")


def test_an_abort_does_not_wait_for_the_file_that_is_being_read(
    bench: Workbench, engines: Engines, exchange: Exchange, slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "reading_work", lambda directory: FileWork(read_slowly, place=directory))
    jobs = ArchiveJobs.of(bench, archive_of(root(bench), files=4))
    context = jobs.context("SPARK")
    stopped_at_s: list[float] = []

    def stop() -> None:
        stopped_at_s.append(time.monotonic())
        context.signal(StopCause.ABORT)

    slots.before = lambda number: threading.Timer(0.1, stop).start() if number == 0 else None
    with pytest.raises(JobStopped):
        jobs.run(context, engines)
    assert time.monotonic() - stopped_at_s[0] < 0.6
    assert exchange.snapshot().leases == 0


def read_without_a_mount(entry: ManifestEntry) -> Reading:
    """As a machine does that has not mounted the root."""
    require_folder(f"/nowhere{Path(entry.path).parent}")
    raise AssertionError("it is not there")


def read_another_storage(entry: ManifestEntry) -> Reading:
    """As a machine does whose root is mounted, and is another one."""
    return Reading(FileCheck(entry, "MISSING", f"{entry.path} is not there"), "node-7")


def read_without_rights(entry: ManifestEntry) -> Reading:
    """As a worker does that runs as somebody else."""
    return Reading(FileCheck(entry, "CORRUPT", f"{entry.path}: Permission denied"), "node-7")


@pytest.mark.parametrize(
    ("read", "named"),
    [
        (read_without_a_mount, "must be shared storage; mount LETHE_ARCHIVE_ROOT"),
        (read_another_storage, "is not there, so node-7 finds, and here it is whole; mount"),
        (read_without_rights, "Permission denied, so node-7 finds, and here it is whole; mount"),
    ],
)
def test_worker_that_does_not_see_the_files_says_nothing_of_them(
    bench: Workbench, engines: Engines, monkeypatch: pytest.MonkeyPatch, read: Any, named: str
) -> None:
    monkeypatch.setattr(verifying, "reading_work", lambda directory: FileWork(read, place=directory))
    jobs = ArchiveJobs.of(bench, archive_of(root(bench), files=FILES))
    said = jobs.run(jobs.context("SPARK"), engines)
    assert (said.code, said.result) == ("ARCHIVE_FAILED", None)
    assert named in said.detail
    assert "or verify with the engine INLINE" in said.detail


def test_folder_that_is_not_there_is_an_error_of_the_worker(tmp_path: Path) -> None:
    with pytest.raises(ArchiveFailed, match="must be shared storage"):
        require_folder(str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("asked", "least", "chosen", "reason"),
    [
        (None, None, "INLINE", "NO_GAIN"),
        (None, 1, "SPARK", "ARCHIVE_SIZE"),
        ("AUTO", 10**9, "INLINE", "ARCHIVE_SIZE"),
        ("SPARK", None, "SPARK", "REQUESTED"),
        ("INLINE", 1, "INLINE", "REQUESTED"),
    ],
)
def test_engine_goes_by_the_bytes_of_the_archive(
    bench: Workbench, engines: Engines, asked: str | None, least: int | None, chosen: str, reason: str
) -> None:
    entries = archive_of(root(bench), files=3)
    jobs = ArchiveJobs.of(bench, entries)
    found = dict(engines.thresholds())
    found["VERIFICATION"] = replace(found["VERIFICATION"], least=least, least_cold=least)
    context = jobs.context(asked)
    assert jobs.run(context, replace(engines, thresholds=lambda: found)).code is None
    assert bench.job(context.job.id).engine == chosen
    assert jobs.chosen(context) == {
        "engine": chosen,
        "reason": reason,
        "requested": asked or "AUTO",
        "archive_bytes": sum(entry.bytes for entry in entries),
        "min_bytes": least,
        "threshold_source": "BUILT_IN",
    }


@pytest.mark.parametrize(
    ("named_root", "lies_in", "chosen"),
    [(None, "archive", "INLINE"), ("mounted", "mounted", "SPARK"), ("mounted", "archive", "INLINE")],
)
def test_workers_elsewhere_read_what_lies_on_shared_storage_only(
    bench: Workbench, exchange: Exchange, tmp_path: Path, named_root: str | None, lies_in: str, chosen: str
) -> None:
    """A root that was named later says nothing of archives that were written before."""
    bench.settings.spark = SparkSettings(master="spark://cluster:7077")
    bench.settings.archive_root = tmp_path / named_root if named_root else None
    settings: Settings = bench.settings
    engines = engines_on(
        Pool(),
        exchange,
        thresholds=lambda: CLUSTER,
        are_here=settings.executors_are_here,
        is_shared=settings.archives_reach_executors,
    )
    jobs = ArchiveJobs.of(bench, archive_of(tmp_path / lies_in, files=2))
    context = jobs.context("SPARK")
    assert jobs.run(context, engines).code is None
    reason = "REQUESTED" if chosen == "SPARK" else "ARCHIVE_NOT_SHARED"
    assert (jobs.chosen(context)["engine"], jobs.chosen(context)["reason"]) == (chosen, reason)


def test_threads_do_work_on_files_too_and_none_begins_after_a_cancel(tmp_path: Path) -> None:
    entries = archive_of(tmp_path, files=6, damages=DAMAGES[:2])
    work = reading_work(str(tmp_path))
    with InlineEngine(SystemClock()).lease(work, workers=2) as lease:
        read = {outcome.unit: outcome.result for outcome in lease.map(iter(entries))}
        lease.cancel()
        late = list(lease.map(iter(entries)))
    assert {entry: reading and reading.check for entry, reading in read.items()} == {
        entry: verify_file(entry) for entry in entries
    }
    assert {type(outcome.error) for outcome in late} == {TargetCancelled}
