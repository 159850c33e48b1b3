"""What a hostile or sick consumer cannot do to its supplier.

A server that answered a byte a second held a session for ever, `max_duration` or not, its job RUNNING;
25 KB of gzip grew the supplier to 2 GB; a certificate that nobody trusts was waited for as if time healed it.
"""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.replication.peer import client as peer_client
from app.replication.peer.answers import PeerAnswerInvalid, PeerCertificateInvalid, PeerTooSlow
from app.replication.peer.client import ConsumerAddress, PeerClient
from app.replication.supplier.signals import is_reacquired, is_waited_for

Serve = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEER_TOKEN", "lethe_secret")


@contextmanager
def _server(serve: Serve) -> Iterator[str]:
    """A server of one connection after the other; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    conn, _ = listener.accept()
                    threading.Thread(target=one, args=(conn,), daemon=True).start()

        def one(conn: socket.socket) -> None:
            with conn, suppress(OSError):
                serve(conn)

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _client(url: str, **more: Any) -> PeerClient:
    address = ConsumerAddress(url=url, store="orders", token="env:PEER_TOKEN", ca_file=more.pop("ca", None))
    return PeerClient(address, **more)


def _dribble(conn: socket.socket, text: bytes) -> None:
    for at in range(len(text)):
        conn.sendall(text[at : at + 1])
        time.sleep(0.05)


def _dribbled_headers(conn: socket.socket) -> None:
    conn.recv(65_536)
    _dribble(conn, HEAD + b"X-Long: " + b"x" * 10_000)


def _dribbled_body(conn: socket.socket) -> None:
    conn.recv(65_536)
    conn.sendall(HEAD + b"Content-Length: 10000\r\n\r\n")
    _dribble(conn, b" " * 10_000)


def _dribbled_interim_answers(conn: socket.socket) -> None:
    conn.recv(65_536)
    while True:
        conn.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
        time.sleep(0.05)


def _takes_nothing(conn: socket.socket) -> None:
    """Reads the body a byte at a time."""
    while conn.recv(1):
        time.sleep(0.05)


@pytest.mark.parametrize(
    "serve", [_dribbled_headers, _dribbled_body, _dribbled_interim_answers, _takes_nothing]
)
def test_a_request_ends_at_its_deadline_however_its_bytes_trickle(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_client, "DEADLINE_LEAST_S", 0.2)
    body = b"x" * 16_000_000 if serve is _takes_nothing else b""
    with _server(serve) as url, _client(url) as client:
        client.within_s = lambda: 0.4
        began = time.monotonic()
        with pytest.raises(PeerTooSlow) as found:
            client.send("rps_1", epoch=1, batch_seq=1, body=body)
        assert time.monotonic() - began < 5
    assert is_waited_for(found.value)
    assert is_reacquired(found.value)


def test_the_deadline_holds_without_a_limit_of_the_session() -> None:
    with _server(_dribbled_body) as url, _client(url, answer_timeout_s=0.4) as client:
        client_began = time.monotonic()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(peer_client, "DEADLINE_LEAST_S", 0.1)
            with pytest.raises(PeerTooSlow):
                client.ruv()
        assert time.monotonic() - client_began < 5


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_compressed_answer_is_not_taken(coding: str) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    seen: list[str] = []

    def serve(conn: socket.socket) -> None:
        seen.append(conn.recv(65_536).decode().lower())
        head = f"Content-Encoding: {coding}\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
        conn.sendall(HEAD + head + bomb)

    with _server(serve) as url, _client(url) as client:
        tracemalloc.start()
        try:
            with pytest.raises(PeerAnswerInvalid, match=coding):
                client.ruv()
            assert tracemalloc.get_traced_memory()[1] < 10_000_000
        finally:
            tracemalloc.stop()
    assert "accept-encoding: identity" in seen[0]


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"[" * 100 + b"]" * 100, id="deep"),
        pytest.param(b"[" * 1_000_000, id="deeper"),
        pytest.param(b"{" + b",".join(b'"%d":[]' % each for each in range(600_000)) + b"}", id="many"),
        pytest.param(b'{"a":' + b"9" * 100_000 + b"}", id="a-long-number"),
    ],
)
def test_json_that_grows_when_it_is_read_is_not_taken(document: bytes) -> None:
    address = ConsumerAddress(url="http://east", store="orders", token="env:PEER_TOKEN")
    answers = httpx.MockTransport(lambda _request: httpx.Response(200, content=document))
    with PeerClient(address, transport=answers) as client, pytest.raises(PeerAnswerInvalid):
        client.ruv()


def test_an_answer_without_a_vector_is_short() -> None:
    document = json.dumps({"expires_at": "2026-11-20T10:55:39Z", "more": "x" * 100_000}).encode()
    address = ConsumerAddress(url="http://east", store="orders", token="env:PEER_TOKEN")
    answers = httpx.MockTransport(lambda _request: httpx.Response(200, content=document))
    with PeerClient(address, transport=answers) as client, pytest.raises(PeerAnswerInvalid, match="65536"):
        client.renew("rps_1", epoch=1, lease="PT10S")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key, and a certificate for another name that nobody has signed."""
    folder = tmp_path_factory.mktemp("tls")
    key, made = folder / "key.pem", folder / "cert.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=elsewhere", "-addext", "subjectAltName=DNS:elsewhere"]
    files = ["-keyout", str(key), "-out", str(made)]
    subprocess.run(["openssl", "req", "-x509", *kind, *name, *files], check=True, capture_output=True)
    return key, made


@pytest.mark.parametrize("is_known", [False, True], ids=["nobody-signed-it", "of-another-name"])
def test_a_certificate_that_is_not_trusted_is_named_and_not_waited_for(
    certificate: tuple[Path, Path], is_known: bool
) -> None:
    key, made = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)

    def serve(conn: socket.socket) -> None:
        with context.wrap_socket(conn, server_side=True) as tls:
            tls.recv(1)

    ca = str(made) if is_known else None
    with (
        _server(serve) as url,
        _client(url.replace("http:", "https:"), ca=ca) as client,
        pytest.raises(PeerCertificateInvalid) as found,
    ):
        client.ruv()
    assert found.value.code == "PEER_CERTIFICATE_INVALID"
    assert not is_waited_for(found.value)
