"""`/readyz` is about the API and its metadata: what else is missing is a note there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.http.events import listed
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.targets import REMOVED_3X, copy_reference

TMPFS = "size=6m,mode=700"
PATIENCE_S = 20.0


def _until(http: httpx.Client, status: int) -> httpx.Response:
    deadline = time.monotonic() + PATIENCE_S
    while (answer := http.get("/readyz")).status_code != status:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)
    return answer


def test_machine_without_java_stays_ready_and_auto_runs_inline(tmp_path: Path) -> None:
    # One AUTO job of sufficient size made it 503 for good.
    home = tmp_path / "no-java"
    home.mkdir()
    service = ServiceProcess(
        tmp_path, settings={"LETHE_SPARK__JAVA_HOME": str(home), "LETHE_SPARK__MIN_ROWS": "1"}
    ).start()
    path = copy_reference(tmp_path / "shop.sqlite")
    try:
        with service.http() as http:
            assert http.get("/readyz").json() == {"status": "ready"}
            body = {"id": "shop", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
            assert http.post("/v1/stores", json=body).status_code == 201
            job_id = accepted(Shop(http=http, id="shop", path=path).purge(engine="AUTO"))
            job = wait_for(http, job_id)
            assert (job["state"], job["engine"]) == ("SUCCEEDED", "INLINE"), job["error"]
            assert job["result"]["removed"] == REMOVED_3X
            chosen = [event["data"] for event in listed(http, job_id) if event["type"] == "engine"]
            assert [(item["engine"], item["reason"]) for item in chosen][-1] == ("INLINE", "POOL_FAILED")
            answer = http.get("/readyz")
            assert answer.status_code == 200, answer.text
            assert answer.json()["status"] == "ready"
            assert [note["code"] for note in answer.json()["notes"]] == ["SPARK_FAILED"]
            assert str(home) not in answer.text
            figures = http.get("/metrics").text
            assert "lethe_spark_fallbacks_total 1.0" in figures
            assert 'lethe_spark_state{state="FAILED"} 1.0' in figures
        assert service.stop() == 0
    finally:
        service.kill9()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MB."""
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", TMPFS, "tmpfs", str(where)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("it takes the right to mount a file system")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_data_directory_without_room_is_told_and_so_is_its_end(small_disk: Path) -> None:
    # 200 was said while every POST was 503.
    service = ServiceProcess(small_disk).start()
    filling = small_disk / "filling"
    try:
        with service.http() as http:
            assert http.get("/readyz").json() == {"status": "ready"}
            with filling.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(65_536)) == 65_536:
                    pass
            answer = _until(http, 503)
            assert answer.json()["status"] == "no-room"
            [note] = answer.json()["notes"]
            assert note["code"] == "DATA_DIRECTORY_FULL"
            assert "make room" in note["detail"]
            assert str(small_disk) not in answer.text
            assert http.get("/livez").status_code == 200
            filling.unlink()
            assert _until(http, 200).json() == {"status": "ready"}
            body = {"id": "shop", "kind": "SYMMETRICDS", "url": f"sqlite:///{small_disk}/shop.sqlite"}
            assert http.post("/v1/stores", json=body).status_code == 201
        assert service.stop() == 0
    finally:
        service.kill9()


@pytest.mark.postgresql
def test_full_data_directory_beside_other_metadata_is_a_note(small_disk: Path, postgresql_url: str) -> None:
    service = ServiceProcess(small_disk, metadata_url=postgresql_url).start()
    try:
        with service.http() as http:
            assert http.get("/readyz").json() == {"status": "ready"}
            with (small_disk / "filling").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, _free(small_disk))
            deadline = time.monotonic() + PATIENCE_S
            while "notes" not in (answer := http.get("/readyz")).json():
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert answer.status_code == 200
            assert [note["code"] for note in answer.json()["notes"]] == ["DATA_DIRECTORY_FULL"]
    finally:
        service.stop()


def _free(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize
