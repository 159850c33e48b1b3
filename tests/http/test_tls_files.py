"""Certificate and key of the service are replaced without a restart."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.certificates import make_certificate
from tests.forge import start_lethe
from tests.http.service_process import LETHE, environment
from tests.ports import free_port

DEADLINE_S = 60.0


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    certificate, key = make_certificate(tmp_path)
    number = free_port()
    command = [LETHE, "serve", "--port", str(number), "--data-dir", tmp_path / "data"]
    command += ["--tls-cert", certificate, "--tls-key", key]
    with (tmp_path / "log").open("ab") as log:
        process = start_lethe(
            [str(word) for word in command], env=environment({"LETHE_SPARK__ENABLED": "false"}), log=log
        )
        yield number
        process.terminate()
        process.wait(DEADLINE_S)


def _shown(port: int) -> str | None:
    try:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=5)
    except OSError:
        return None


def _wait_for(port: int, wanted: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (_shown(port) or "").strip() != wanted.strip():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_new_files_are_used_and_bad_ones_are_not(port: int, tmp_path: Path) -> None:
    files = tmp_path / "server.pem", tmp_path / "server.key"
    first = files[0].read_text()
    _wait_for(port, first)
    context = ssl.create_default_context(cafile=str(files[0]))
    with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context) as client:
        assert client.get("/livez").status_code == 200
        make_certificate(tmp_path)
        second = files[0].read_text()
        assert second != first
        _wait_for(port, second)
        assert client.get("/livez").status_code == 200  # who is in stays in

    log = tmp_path / "log"
    files[1].write_text("no key")
    deadline = time.monotonic() + DEADLINE_S
    while "the former one stays" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (_shown(port) or "").strip() == second.strip()
    make_certificate(tmp_path)
    _wait_for(port, files[0].read_text())
