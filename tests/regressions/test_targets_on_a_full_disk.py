"""The target's own disk had no room left: the purge FAILED at once with TARGET_ERROR. It waits, says why, and
goes on where it was once there is room.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.clock import SystemClock
from tests.oracles.symmetricds import Place
from tests.regressions.purges import OLD_CUTOFF, Purges


@pytest.fixture
def clock() -> SystemClock:
    """The wait ends by time: this test runs on the real one."""
    return SystemClock()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(where)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("it takes the right to mount a file system")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True)


def test_purge_of_a_full_target_waits_and_goes_on_by_itself(purges: Purges, small_disk: Path) -> None:
    purges.store(purges.fill(Place(f"sqlite:///{small_disk}/sym.db")))
    filling = small_disk / "filling"
    with filling.open("wb", buffering=0) as file:
        left = os.statvfs(small_disk)
        file.write(bytes(left.f_bavail * left.f_frsize))
    job_id = purges.submit(cutoff=OLD_CUTOFF, max_rows_in_tx=10)
    with purges.bench.running(purges.kinds):
        waiting = purges.bench.until(job_id, "WAITING", "FAILED", "SUCCEEDED")
        assert waiting.state == "WAITING", waiting.error
        assert [each["kind"] for each in waiting.waiting_on] == ["TARGET_FULL"]
        assert "full" in waiting.waiting_on[0]["cause"]
        filling.unlink()
        job = purges.bench.until(job_id, "SUCCEEDED", "FAILED")
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert job.result is not None
    assert sum(job.result["removed"].values()) > 0
