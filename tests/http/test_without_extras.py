"""A service without numba and pyspark beside it: what it refuses, and what it does all the same."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.http.events import listed
from tests.http.service_process import LETHE, START_MAX_S, USUAL, environment
from tests.http.targets import copy_reference
from tests.je_data import unpack
from tests.ports import free_port

LACKING = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("llvmlite", "numba", "pandas", "py4j", "pyspark"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Finder())
import importlib.util as util
_find = util.find_spec
def find_spec(name, package=None):
    try:
        return _find(name, package)
    except ModuleNotFoundError:
        return None
util.find_spec = find_spec
"""
"""As an interpreter that they are not installed for: an import fails, and looking for them finds nothing."""
CUTOFF = "2026-11-01T10:00:00Z"


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("lacking")
    (folder / "sitecustomize.py").write_text(LACKING)
    return environment(USUAL | {"LETHE_STORE_CHECK_S": "0"}) | {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, lacking: dict[str, str]) -> Iterator[httpx.Client]:
    data, port = tmp_path_factory.mktemp("without") / "data", free_port()
    command = [str(LETHE), "serve", "--data-dir", str(data), "--port", str(port)]
    with (data.parent / "log").open("wb") as log:
        process = subprocess.Popen(command, env=lacking, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_MAX_S
        while True:
            assert process.poll() is None, (data.parent / "log").read_text()
            assert time.monotonic() < deadline
            try:
                if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        headers = {"Authorization": f"Bearer {(data / 'admin.token').read_text().strip()}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=40) as http:
            yield http
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_purge_runs_inline_and_spark_is_refused_with_what_to_install(
    service: httpx.Client, tmp_path: Path
) -> None:
    target = copy_reference(tmp_path / "shop.sqlite")
    made = service.post(
        "/v1/stores", json={"id": "shop", "kind": "SYMMETRICDS", "url": f"sqlite:///{target}"}
    )
    assert made.status_code == 201, made.text
    body = {"kind": "OUTGOING", "cutoff": CUTOFF}
    refused = service.post("/v1/stores/shop/purges", json=body | {"engine": "SPARK"})
    assert (refused.status_code, refused.json()["code"]) == (409, "SPARK_NOT_INSTALLED")
    assert "lethe-control-plane[spark]" in refused.json()["detail"]
    pool = service.get("/v1/spark-pool")
    assert (pool.status_code, pool.json()["code"]) == (409, "SPARK_NOT_INSTALLED")

    job = service.post("/v1/stores/shop/purges", json=body).json()["id"]
    deadline = time.monotonic() + START_MAX_S
    while (done := service.get(f"/v1/jobs/{job}").json())["state"] in {"QUEUED", "RUNNING"}:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (done["state"], done["engine"]) == ("SUCCEEDED", "INLINE")
    chosen = [each["data"]["reason"] for each in listed(service, job) if each["type"] == "engine"]
    assert chosen == ["SPARK_NOT_INSTALLED"]


def test_erasure_is_refused_with_what_to_install(service: httpx.Client, tmp_path: Path) -> None:
    directory = unpack("closed", tmp_path / "orders")
    made = service.post("/v1/stores", json={"id": "orders", "kind": "JE", "path": str(directory)})
    assert made.status_code == 201, made.text
    body = {"min_file_age": "PT0S", "duration": "PT0S"}
    for path in ("/v1/stores/orders/erasure-cycles", "/v1/stores/orders/erasure-cycles?validate_only=true"):
        refused = service.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "JE_NOT_INSTALLED"), refused.text
        assert "lethe-control-plane[je]" in refused.json()["detail"]
    check = service.post("/v1/stores/orders:check").json()
    assert (check["ok"], check["can"]) == (False, [])
    assert "JE_NOT_INSTALLED" in [finding["code"] for finding in check["findings"]]


def test_command_that_reads_a_log_says_what_to_install(lacking: dict[str, str], tmp_path: Path) -> None:
    directory = unpack("closed", tmp_path / "orders")
    command = [sys.executable, "-m", "app.cli.main", "je", "stat", str(directory)]
    ran = subprocess.run(command, env=lacking, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (78, "")
    assert "JE_NOT_INSTALLED" in ran.stderr
    assert "pip install 'lethe-control-plane[je]'" in ran.stderr
