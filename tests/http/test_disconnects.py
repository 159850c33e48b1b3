"""A client that went away in the middle of a body wrote a traceback at ERROR."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

import httpx
import pytest

from tests.http.replica_stores import make_replica
from tests.http.service_process import ServiceProcess
from tests.http.supplying import GENERATION

HEADS = ("Content-Length: 1000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n5\r\nab")
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """What is logged of a connection knows no metadata."""
    return sqlite_service


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_a_body_that_was_cut_off_is_no_error(
    http: httpx.Client, service: ServiceProcess, roots: Path, is_reset: bool
) -> None:
    store = make_replica(http, rid=2, folder=roots, generation=GENERATION).id
    paths = (
        f"/v1/replicas/{store}/sessions/rps_1/batches?epoch=1&batch_seq=1",
        f"/v1/stores/{store}/changes",
        f"/v1/replicas/{store}/sessions",
        "/v1/stores",
    )
    before = len(service.log())
    for path in paths:
        for head in HEADS:
            for media_type in ("application/json", "application/vnd.apache.arrow.stream"):
                _cut_off(service, path, media_type, head, is_reset=is_reset)
    deadline = time.monotonic() + 20
    while (lines := service.log()[before:].splitlines()) and time.monotonic() < deadline:
        seen = [line for line in lines if '"request"' in line and '"POST"' in line]
        if len(seen) >= len(paths) * len(HEADS) * 2:
            break
        time.sleep(0.05)
    assert len(seen) >= len(paths) * len(HEADS) * 2
    assert [line for line in lines if '"level": "error"' in line or "Traceback" in line] == []


def _cut_off(service: ServiceProcess, path: str, media_type: str, head: str, *, is_reset: bool) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as conn:
        said = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.token}\r\n"
        conn.sendall(f"{said}Content-Type: {media_type}\r\n{head}".encode())
        time.sleep(0.05)
        if is_reset:
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
