"""The archive's file system had no room left: the purge FAILED with `retryable: false`, though `:retry` ended
it exactly; its manifest was never written, and a part of a file stayed. Nothing of that is a failure: the job
waits, says why, and goes on where it was once there is room.
"""

from __future__ import annotations

import errno
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.clock import SystemClock
from app.jobs.rows import Job
from app.jobs.running import sql_target
from app.jobs.service import request_abort
from spark.targets import manifest
from spark.targets.archive import file as archive_file
from spark.targets.archive.archive import scan_directory, verify
from spark.targets.manifest import read_manifest_json
from tests.oracles.symmetricds import Place
from tests.regressions.purges import OLD_CUTOFF, Purges


class Disk:
    """A file system below the archives that can be full, and can be asked how much is free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.free: int | None = None
        self._write, self._statvfs, self._open = os.write, os.statvfs, os.open
        monkeypatch.setattr(archive_file.os, "write", self.write)
        monkeypatch.setattr(manifest.os, "open", self.open)
        monkeypatch.setattr(os, "statvfs", self.statvfs)

    def write(self, descriptor: int, data: Any) -> int:
        if self.left is not None and str(os.readlink(f"/proc/self/fd/{descriptor}")).endswith(".parquet"):
            if self.left <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            data = bytes(data)[: self.left]
            self.left -= len(data)
        return self._write(descriptor, data)

    def open(self, path: Any, *rest: Any, **named: Any) -> int:
        if self.left is not None and self.left <= 0 and "manifest" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._open(path, *rest, **named)

    def statvfs(self, path: Any) -> Any:
        found = self._statvfs(path)
        if self.free is None:
            return found
        return os.statvfs_result((1, 1, self.free, self.free, self.free, *tuple(found)[5:]))


@pytest.fixture
def clock() -> SystemClock:
    """The wait ends by time: these tests run on the real one."""
    return SystemClock()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(sql_target, "ARCHIVE_LOOK_AGAIN", timedelta(milliseconds=200))
    return Disk(monkeypatch)


@pytest.fixture
def target(purges: Purges, tmp_path: Path) -> Place:
    place = purges.fill(Place(f"sqlite:///{tmp_path}/sym.db"))
    purges.store(place)
    return place


def _submit(purges: Purges) -> str:
    return purges.submit(cutoff=OLD_CUTOFF, archive={"format": "PARQUET"}, max_rows_in_tx=10)


def _files(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("archive/shop/*/*.parquet"))


def _check_exact(job: Job, tmp_path: Path) -> None:
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert job.result is not None
    [directory] = tmp_path.glob("archive/shop/*")
    entries = read_manifest_json(directory)
    assert entries is not None
    assert sum(entry.rows for entry in entries) == sum(job.result["removed"].values()) > 0
    assert {check.state for check in verify(entries)} == {"OK"}
    assert {Path(entry.path).name for entry in entries} == {path.name for path in _files(tmp_path)}
    assert scan_directory(directory).unreadable == ()


def test_purge_whose_archive_is_full_waits_and_ends_exactly(
    purges: Purges, target: Place, disk: Disk, tmp_path: Path
) -> None:
    disk.left = 20_000
    job_id = _submit(purges)
    with purges.bench.running(purges.kinds):
        waiting = purges.bench.until(job_id, "WAITING", "FAILED")
        assert waiting.state == "WAITING", waiting.error
        assert [each["kind"] for each in waiting.waiting_on] == ["ARCHIVE_FULL"]
        assert "No space left" in waiting.waiting_on[0]["ref"]
        disk.left = None
        job = purges.bench.until(job_id, "SUCCEEDED", "FAILED")
    _check_exact(job, tmp_path)


def test_purge_without_room_for_its_manifest_waits_for_it(
    purges: Purges, target: Place, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = _submit(purges)

    def open_full(path: Any, *rest: Any, **named: Any) -> int:
        if "manifest" in str(path) and disk.left is not None:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        return disk._open(path, *rest, **named)

    monkeypatch.setattr(manifest.os, "open", open_full)
    disk.left = 10**9  # of files; only the manifest finds no room
    with purges.bench.running(purges.kinds):
        waiting = purges.bench.until(job_id, "WAITING", "FAILED", "SUCCEEDED")
        assert waiting.state == "WAITING", waiting.error
        assert "manifest" in waiting.waiting_on[0]["ref"]
        disk.left = None
        job = purges.bench.until(job_id, "SUCCEEDED", "FAILED")
    _check_exact(job, tmp_path)


def test_purge_with_an_archive_begins_only_where_there_is_room(
    purges: Purges, target: Place, disk: Disk, tmp_path: Path
) -> None:
    disk.free = 1_000
    job_id = _submit(purges)
    with purges.bench.running(purges.kinds):
        waiting = purges.bench.until(job_id, "WAITING", "FAILED", "SUCCEEDED")
        assert waiting.state == "WAITING", waiting.error
        assert "64 MiB must be" in waiting.waiting_on[0]["ref"]
        assert _files(tmp_path) == []
        disk.free = None
        job = purges.bench.until(job_id, "SUCCEEDED", "FAILED")
    _check_exact(job, tmp_path)


def test_manifest_that_had_no_room_at_an_abort_is_written_by_the_next_job(
    purges: Purges, target: Place, disk: Disk, tmp_path: Path
) -> None:
    disk.left = 60_000
    first = _submit(purges)
    with purges.bench.running(purges.kinds):
        purges.bench.until(first, "WAITING")
        purges.bench.do(request_abort, first)
        aborted = purges.bench.until(first, "ABORTED")
    assert aborted.result is not None
    assert sum(aborted.result["removed"].values()) > 0
    [directory] = tmp_path.glob("archive/shop/*")
    assert read_manifest_json(directory) is None
    disk.left = None
    assert purges.run(_submit(purges)).state == "SUCCEEDED"
    entries = read_manifest_json(directory)
    assert entries is not None
    assert sum(entry.rows for entry in entries) == sum(aborted.result["removed"].values()) > 0
