"""Strangers without a token: what they can take of the service, and that a probe is answered all the same.

The story: 3,000 connections with unfinished headers were never closed; with 256 descriptors 300 of them ended
`/readyz`, and 8,009 lines of errors were written in seconds; 40 bodies of one token that never came to their
end stopped every replication session of the process.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess, environment
from tests.http.shop import Shop, wait_for
from tests.http.targets import copy_reference
from tests.ports import free_port

HEADERS = b"GET /v1/jobs HTTP/1.1\r\nHost: lethe\r\nX-Slow: "
BODY = (
    b"POST /v1/stores HTTP/1.1\r\nHost: lethe\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n"
)
FAST = {
    "LETHE_REQUEST_HEADERS_TIMEOUT_S": "1",
    "LETHE_REQUEST_BODY_CHUNK_TIMEOUT_S": "1",
    "LETHE_REQUEST_BODY_TIMEOUT_S": "3",
    "LETHE_SPARK__ENABLED": "false",
}


class Crowd:
    """Connections that a test holds."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sockets: list[socket.socket] = []

    def connect(self, count: int, first: bytes = b"") -> None:
        """Open so many, and say the same on each."""
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", self.port), timeout=30)
            self.sockets.append(sock)
            with contextlib.suppress(OSError):  # one that came too many is closed
                sock.sendall(first)

    def closed(self) -> int:
        """How many the service has closed by now."""
        poll = select.poll()
        for sock in self.sockets:
            poll.register(sock, select.POLLIN)
        count = 0
        by_fd = {sock.fileno(): sock for sock in self.sockets}
        for fd, _event in poll.poll(0):
            with contextlib.suppress(BlockingIOError):
                count += _is_at_end(by_fd[fd])
        return count

    def leave(self) -> None:
        for sock in self.sockets:
            sock.close()


def _is_at_end(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        while data := sock.recv(65536):
            assert data
    except ConnectionError:
        return True
    return True


def _waits_until(found: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not found():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _ready_in_s(url: str) -> float:
    """Without httpx, whose clients read the certificates of all authorities first."""
    host = url.removeprefix("http://")
    begun = time.monotonic()
    with contextlib.closing(HTTPConnection(host, timeout=30)) as connection:
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 200
    return time.monotonic() - begun


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service whose patience is short, and which may open 256 files."""
    service = FewFiles(tmp_path_factory.mktemp("strangers"), settings=FAST)
    service.start()
    yield service
    assert service.stop() == 0
    assert service.traces() == []


class FewFiles(ServiceProcess):
    """A service under `ulimit -n`."""

    files = 256

    def command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {self.files}; exec "$@"', "sh", *super().command()]


@pytest.fixture
def crowd(fast: ServiceProcess) -> Iterator[Crowd]:
    found = Crowd(fast.port)
    yield found
    found.leave()


def test_300_connections_leave_256_descriptors_for_probes(fast: ServiceProcess, crowd: Crowd) -> None:
    lines = len(fast.log().splitlines())
    crowd.connect(300, HEADERS)
    for _ in range(5):
        _ready_in_s(fast.url)
    with httpx.Client(base_url=fast.url, headers={"Authorization": f"Bearer {fast.token}"}) as client:
        assert client.get("/v1/jobs").status_code == 200  # the metadata has its descriptors
    assert _waits_until(lambda: crowd.closed() == 300, 10), crowd.closed()
    assert len(fast.log().splitlines()) - lines < 40


def test_headers_that_drip_are_not_waited_for(crowd: Crowd) -> None:
    crowd.connect(10, HEADERS)
    begun = time.monotonic()
    while crowd.closed() < 10:
        assert time.monotonic() - begun < 8
        for sock in crowd.sockets:
            with contextlib.suppress(OSError):
                sock.send(b"x")
        time.sleep(0.2)


def test_body_that_does_not_come_is_answered_408(fast: ServiceProcess, crowd: Crowd) -> None:
    crowd.connect(1, BODY + f"Authorization: Bearer {fast.token}\r\n\r\n".encode() + b'{"id":')
    [sock] = crowd.sockets
    answer = b""
    while data := sock.recv(65536):
        answer += data
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"BODY_TOO_SLOW" in answer
    assert b"connection: close" in answer.lower()


def test_body_that_drips_ends_with_its_whole_time(crowd: Crowd) -> None:
    crowd.connect(1, BODY + b"\r\n")
    [sock] = crowd.sockets
    begun = time.monotonic()
    while not select.select([sock], [], [], 0.3)[0]:
        sock.send(b" ")
        assert time.monotonic() - begun < 10
    assert sock.recv(100).startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - begun > 2.5


def test_long_poll_outlives_these_limits(fast: ServiceProcess, tmp_path: Path) -> None:
    with fast.http() as http:
        path = copy_reference(tmp_path / "shop.sqlite")
        body = {"id": "slow", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        assert http.post("/v1/stores", json=body).status_code == 201
        job = Shop(http=http, id="slow", path=path).slow_purge(rows_per_s=30)
        wait_for(http, job, "RUNNING")
        begun = time.monotonic()
        answer = http.get(f"/v1/jobs/{job}", headers={"Prefer": "wait=5"})
        assert (answer.status_code, answer.json()["state"]) == (200, "RUNNING")
        assert time.monotonic() - begun > 4.5
        http.post(f"/v1/jobs/{job}:abort", json={})
        wait_for(http, job)


def test_addresses_that_fail_are_held_up_and_known_tokens_are_not(tmp_path: Path) -> None:
    settings = FAST | {
        "LETHE_ADDRESS_FAILURES_BURST": "10",
        "LETHE_ADDRESS_FAILURES_PER_S": "1",
        "LETHE_TOKEN_REQUESTS_PER_S": "5",
        "LETHE_TOKEN_REQUESTS_BURST": "20",
        "LETHE_BODIES_PER_TOKEN_MAX": "4",
        "LETHE_REQUEST_BODY_CHUNK_TIMEOUT_S": "20",
        "LETHE_REQUEST_BODY_TIMEOUT_S": "20",
    }
    service = ServiceProcess(tmp_path, settings=settings).start()
    crowd = Crowd(service.port)
    try:
        with service.http() as good, service.http("wrong") as wrong:
            assert good.get("/v1/jobs").status_code == 200
            _is_held_up(wrong, 401)
            assert good.get("/v1/jobs").status_code == 200
            assert httpx.get(f"{service.url}/livez").status_code == 200
            _has_a_share_of_bodies(service, good, crowd)
            _is_held_up(good, 200)
            time.sleep(1)
            assert good.get("/v1/jobs").status_code == 200
    finally:
        crowd.leave()
        assert service.stop() == 0


def _is_held_up(client: httpx.Client, status: int) -> None:
    codes = []
    for _ in range(40):
        answer = client.get("/v1/jobs")
        codes.append(answer.status_code)
        if answer.status_code == 429:
            problem(answer, 429, "TOO_MANY_REQUESTS")
            assert int(answer.headers["Retry-After"]) >= 1
            break
    assert set(codes) == {status, 429}, codes


def _has_a_share_of_bodies(service: ServiceProcess, good: httpx.Client, crowd: Crowd) -> None:
    crowd.connect(4, BODY + f"Authorization: Bearer {service.token}\r\n\r\n".encode())
    assert _waits_until(lambda: good.post("/v1/tokens", json={}).status_code == 429, 5)
    crowd.leave()
    assert _waits_until(lambda: good.post("/v1/tokens", json={}).status_code == 422, 5)


def _may_open(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard < count:
            pytest.skip(f"this process may open {hard} files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize(("count", "first"), [(10_000, b""), (3_000, HEADERS)])
def test_thousands_of_connections(tmp_path: Path, count: int, first: bytes) -> None:
    """10,000 idle connections: `/readyz` below 1 s; 3,000 with unfinished headers: all are closed in time."""
    _may_open(count + 500)
    service = ServiceProcess(tmp_path, settings={"LETHE_SPARK__ENABLED": "false"}).start()
    crowd = Crowd(service.port)
    try:
        crowd.connect(count, first)
        taken_s = [_ready_in_s(service.url) for _ in range(20)]
        assert max(taken_s) < 1.0, taken_s
        assert _waits_until(lambda: crowd.closed() == count, 20), crowd.closed()
        print(f"{count} connections: /readyz at most {max(taken_s) * 1000:.0f} ms")
    finally:
        crowd.leave()
        assert service.stop() == 0


def test_sigterm_while_it_starts_ends_with_0(tmp_path: Path) -> None:
    """It ended with -15: nobody had taken the signal yet."""
    service = ServiceProcess(tmp_path, settings=FAST)
    service.port = free_port()
    process = subprocess.Popen(
        service.command(), env=environment(FAST), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        assert _waits_until(service.data_dir.exists, 30)
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
