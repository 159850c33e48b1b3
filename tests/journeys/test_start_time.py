"""What a command and the start of the service take of the processor."""

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from app.db import Database
from migrations.upgrade import upgrade
from tests.http.service_process import LETHE, NO_TLS, environment
from tests.ports import free_port

HELP_MAX, READY_MAX = 2.0, 3.5
"""Times the processor time of an interpreter that does nothing but load the libraries, in the same run."""
OF_COMMANDS = "import httpx, rich.table, typer"
OF_THE_SERVICE = (
    "import fastapi, httpx, numpy, prometheus_client, psycopg, pyarrow.parquet, pydantic_settings, "
    "rich.table, sqlmodel, structlog, typer, uvicorn"
)
GIVEN_UP_S = 60.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

pytestmark = pytest.mark.alone


def _processor_s(pid: int) -> float:
    """What a process has taken of the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _ready_s(data_dir: Path) -> float:
    port = free_port()
    command = [str(LETHE), "serve", "--data-dir", str(data_dir), "--port", str(port)]
    begun = time.monotonic()
    process = subprocess.Popen(command, env=environment({}), stderr=subprocess.DEVNULL)
    try:
        while not _is_ready(port):
            assert process.poll() is None
            assert time.monotonic() - begun < GIVEN_UP_S
            time.sleep(0.01)
        return _processor_s(process.pid)
    finally:
        process.terminate()
        process.wait(GIVEN_UP_S)


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5, verify=NO_TLS).status_code == 200
    except httpx.TransportError:
        return False


def _processor_s_of(*command: str | Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, timeout=GIVEN_UP_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _loading_s(code: str) -> float:
    return statistics.median(_processor_s_of(sys.executable, "-c", code) for _ in range(3))


def test_help_comes_at_once() -> None:
    took_s, libraries_s = _processor_s_of(LETHE, "--help"), _loading_s(OF_COMMANDS)
    print(f"lethe --help: {took_s:.2f} s, {took_s / libraries_s:.2f} times its libraries")
    assert took_s / libraries_s < HELP_MAX


def test_a_service_whose_metadata_are_at_head_is_ready_soon(tmp_path: Path) -> None:
    upgrade(Database(f"sqlite:///{tmp_path / 'lethe.db'}"))
    took_s, libraries_s = _ready_s(tmp_path), _loading_s(OF_THE_SERVICE)
    print(f"ready: {took_s:.2f} s, {took_s / libraries_s:.2f} times its libraries")
    assert took_s / libraries_s < READY_MAX
