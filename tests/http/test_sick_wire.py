"""Sessions over wires that cut, delay, double and trickle, and with servers that are no good."""

from __future__ import annotations

import gzip
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.replica_stores import make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import TERMINAL, wait_for
from tests.http.supplying import GENERATION, Pair, agree, entries, token_file, write
from tests.journeys.sick_wire import Faults, SickWire, TricklingWire
from tests.journeys.tcp_proxy import TcpProxy

SICK = Faults(cuts=0.04, delays=0.1, doubles=0.08, delay_max_s=0.1)


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """The wire knows no metadata."""
    return sqlite_service


def _pair(
    http: httpx.Client,
    service: ServiceProcess,
    roots: Path,
    url: str,
    rids: tuple[int, int] = (1, 2),
    **fields: Any,
) -> Pair:
    """Two replicas, the first of which supplies the second over a URL."""
    stores = [make_replica(http, rid=rid, folder=roots, generation=GENERATION) for rid in rids]
    token = f"file:{token_file(service, roots)}"
    answer = agree(http, stores[0].id, stores[1].id, url=url, token=token, **fields)
    assert answer.status_code == 201, answer.text
    return Pair(stores[0], stores[1], answer.json())


def _over(proxy: TcpProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}"


@pytest.mark.parametrize("word", [b"/sessions ", b"/batches"], ids=["acquire", "batches"])
def test_a_session_with_a_consumer_that_trickles_does_not_outlive_its_time(
    http: httpx.Client, service: ServiceProcess, roots: Path, word: bytes
) -> None:
    """PT5S, and RUNNING after 60 s with nothing in `waiting_on`."""
    with TricklingWire(service.port, word) as wire:
        pair = _pair(http, service, roots, _over(wire), max_duration="PT1S")
        write(pair.supplier, 10)
        began = time.monotonic()
        job = wait_for(http, pair.begin(), "WAITING", *TERMINAL)
        took_s = time.monotonic() - began
        http.post(f"/v1/jobs/{job['id']}:abort")
    assert took_s < 25
    if job["state"] == "WAITING":
        assert job["waiting_on"][0]["ref"].endswith("PEER_TOO_SLOW")
    else:
        assert pair.session_of(job)["outcome"] == "YIELDED"


@contextmanager
def _server(roots: Path, *, tls: bool) -> Iterator[str]:
    """A server that answers every request with a bomb."""

    bomb = gzip.compress(b" " * 200_000_000)

    class Bomb(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(bomb)))
            self.end_headers()
            self.wfile.write(bomb)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Bomb)
    if tls:
        key, made = roots / "self.key", roots / "self.pem"
        files = ["-keyout", str(key), "-out", str(made), "-days", "2", "-subj", "/CN=127.0.0.1"]
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        subprocess.run(["openssl", "req", "-x509", *kind, *files], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("tls", "code"),
    [
        pytest.param(False, "PEER_ANSWER_INVALID", id="bomb"),
        pytest.param(True, "PEER_CERTIFICATE_INVALID", id="self-signed"),
    ],
)
def test_a_server_that_is_no_consumer_ends_the_session_by_name(
    http: httpx.Client, service: ServiceProcess, roots: Path, tls: bool, code: str
) -> None:
    with _server(roots, tls=tls) as url:
        pair = _pair(http, service, roots, url)
        write(pair.supplier, 1)
        before = _resident_bytes(service)
        failed = pair.run("FAILED")
        assert failed["error"]["code"] == code
        assert _resident_bytes(service) - before < 60_000_000


def _resident_bytes(service: ServiceProcess) -> int:
    """The most that the process has ever had."""
    [line] = [
        each for each in Path(f"/proc/{service.pid}/status").read_text().splitlines() if "VmHWM" in each
    ]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize(
    "rounds", [3, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(1_800)])]
)
def test_nothing_is_lost_or_doubled_over_a_sick_wire(
    http: httpx.Client, service: ServiceProcess, roots: Path, rounds: int
) -> None:
    """Both write, sessions go both ways; the judge counts what was acknowledged and knows nothing else."""
    wires = [SickWire(service.port, SICK, seed=seed) for seed in (1, 2)]
    with wires[0], wires[1]:
        east = _pair(http, service, roots, _over(wires[0]), batch_rows=20)
        token = f"file:{token_file(service, roots)}"
        back = agree(
            http, east.consumer.id, east.supplier.id, url=_over(wires[1]), token=token, batch_rows=20
        )
        west = Pair(east.consumer, east.supplier, back.json())
        written = {}
        for number in range(rounds):
            for pair in (east, west):
                prefix = f"{pair.supplier.id}-{number}-"
                write(pair.supplier, 60, prefix=prefix)
                written |= {f"{prefix}{each:06}": "v" * 50 for each in range(60)}
                held = entries(pair.supplier)
                job = pair.run("SUCCEEDED")
                if pair.session_of(job)["outcome"] == "UP_TO_DATE":
                    assert held.items() <= entries(pair.consumer).items()
        for wire in wires:
            wire.faults = Faults()
        for pair in (east, west):
            assert pair.session_of(pair.run("SUCCEEDED"))["outcome"] == "UP_TO_DATE"
    assert entries(east.supplier) == entries(east.consumer) == written
    assert _records(east.supplier) == _records(east.consumer) == len(written)
    assert sum(sum(wire.happened.values()) for wire in wires) > 0


def _records(store: Any) -> int:
    """How many records its changelog holds."""
    with closing(sqlite3.connect(store.path)) as raw:
        return int(raw.execute("select count(*) from replica_changelog").fetchone()[0])
