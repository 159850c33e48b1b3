"""What a receiver that is slow, lies or leads elsewhere cannot do."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.hooks.sending import Outcome, send
from tests.receivers import Receiver, answer, listening, read_request, receiving

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOME = (("127.0.0.0/8",),)


def _send(url: str, *, timeout_s: float = 5.0, ca_file: Path | None = None, hosts: object = HOME) -> Outcome:
    return send(
        url,
        b"{}",
        {"webhook-id": "evt_1"},
        hosts=hosts,  # type: ignore[arg-type]
        ca_file=None if ca_file is None else str(ca_file),
        timeout_s=timeout_s,
        now=NOW,
    )


def test_a_good_receiver_gets_the_body_and_its_type() -> None:
    with receiving() as receiver:
        assert _send(receiver.url) == Outcome(204)
    headers, body = receiver.got[0]
    assert body == b"{}"
    assert headers["content-type"].startswith("application/cloudevents+json")
    assert headers["webhook-id"] == "evt_1"


@pytest.mark.parametrize("where", ["headers", "body"])
def test_a_byte_a_second_does_not_outlast_the_deadline(where: str) -> None:
    def trickle(conn: socket.socket) -> None:
        read_request(conn)
        if where == "body":
            conn.sendall(b"HTTP/1.1 500 Broken\r\nContent-Length: 1000\r\n\r\n")
        else:
            conn.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(100):
            conn.sendall(b"x")
            time.sleep(0.1)

    with listening(trickle) as url:
        began = time.monotonic()
        outcome = _send(url, timeout_s=1.0)
    assert time.monotonic() - began < 4
    assert not outcome.is_delivered
    assert outcome.status == (500 if where == "body" else None)


def test_one_that_takes_a_byte_at_a_time_does_not_outlast_the_deadline() -> None:
    def slowly(conn: socket.socket) -> None:
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for _ in range(100):
            conn.recv(1)
            time.sleep(0.1)

    with listening(slowly) as url:
        began = time.monotonic()
        outcome = send(url, b"x" * 8_000_000, {}, hosts=HOME, ca_file=None, timeout_s=1.0, now=NOW)
    assert time.monotonic() - began < 4
    assert not outcome.is_delivered


def test_a_large_answer_is_not_read() -> None:
    told = 0

    def flood(conn: socket.socket) -> None:
        nonlocal told
        read_request(conn)
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n")
        for _ in range(100):
            conn.sendall(b"x" * 100_000)
            told += 100_000

    with listening(flood) as url:
        tracemalloc.start()
        try:
            assert _send(url) == Outcome(200)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 3_000_000
    assert told < 10_000_000


def test_endless_headers_are_no_answer() -> None:
    def headers(conn: socket.socket) -> None:
        read_request(conn)
        conn.sendall(b"HTTP/1.1 200 OK\r\n")
        for number in range(200_000):
            conn.sendall(b"X-%d: y\r\n" % number)

    with listening(headers) as url:
        outcome = _send(url)
    assert not outcome.is_delivered
    assert outcome.status is None


def test_redirects_are_not_followed() -> None:
    with receiving() as inner, receiving(status="307 Temporary Redirect") as receiver:
        for leads_to in (inner.url, "http://169.254.169.254/latest/meta-data/"):
            receiver.answer_headers = f"Location: {leads_to}\r\n"
            outcome = _send(receiver.url)
            assert (outcome.status, outcome.is_delivered) == (307, False)
            assert "redirects are not followed" in str(outcome.error)
            assert leads_to not in str(outcome.error)
        assert inner.got == []


def test_one_that_closes_at_once_has_not_taken_it() -> None:
    with listening(lambda conn: None) as url:
        outcome = _send(url)
    assert outcome == Outcome(error="the receiver ended the connection, or its answer is no HTTP")


def test_what_is_no_http_is_no_answer() -> None:
    def lie(conn: socket.socket) -> None:
        read_request(conn)
        conn.sendall(b"220 mail.example ESMTP secret-word\r\n")

    with listening(lie) as url:
        outcome = _send(url)
    assert not outcome.is_delivered
    assert "secret-word" not in str(outcome.error)


def test_a_resolver_that_hangs_does_not_outlast_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def hang(host: str, port: int) -> list[str]:
        over.wait(10)
        return ["127.0.0.1"]

    monkeypatch.setattr("app.hooks.sending.looked_up", hang)
    began = time.monotonic()
    outcome = _send("http://alerts.example/", timeout_s=0.3)
    over.set()
    assert time.monotonic() - began < 3
    assert "was not looked up within 0.3 s" in str(outcome.error)


def test_the_addresses_that_a_name_leads_to_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes webhooks could map the network by their errors."""
    monkeypatch.setattr("app.hooks.sending.looked_up", lambda host, port: ["169.254.7.8", "127.0.0.1"])
    outcome = _send("https://inner.example/", hosts=(("inner.example:443",),))
    assert outcome == Outcome(error="inner.example, port 443, is none of the allowed hosts")


def test_nobody_listens() -> None:
    with listening(lambda conn: None) as url:
        pass
    assert _send(url) == Outcome(error="the receiver cannot be connected to")


def test_an_address_that_no_list_allows_is_not_connected_to() -> None:
    with receiving() as receiver:
        outcome = _send(receiver.url, hosts=(("10.0.0.0/8",),))
        assert "none of the allowed hosts" in str(outcome.error)
        # A name that leads to this machine is not on a list by its name alone.
        own = receiver.url.replace("127.0.0.1", socket.gethostname())
        if not own.startswith("http://localhost"):
            assert not _send(own, hosts=((socket.gethostname().lower(),),)).is_delivered
    assert receiver.got == []


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("Mon, 23 Nov 2026 12:10:00 GMT", 600.0),
        ("Mon, 23 Nov 2020 12:10:00 GMT", 0.0),
        ("-1", None),
        ("soon", None),
        ("9" * 400, None),
        ("Mon, 23 Nov 2026 12:10:00 +9999999999999999", None),
        ("Mon, 23 Nov 99999999999999999999 12:10:00 GMT", None),
    ],
)
def test_retry_after_is_heard(value: str, seconds: float | None) -> None:
    with receiving(status="429 Too Many", answer_headers=f"Retry-After: {value}\r\n") as receiver:
        outcome = _send(receiver.url)
    assert (outcome.status, outcome.retry_after_s) == (429, seconds)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1 and of another host, each its own authority."""
    directory = tmp_path_factory.mktemp("certificates")
    for name, host in (("own", "IP:127.0.0.1"), ("other", "DNS:elsewhere.example")):
        command = (
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name}"
        )
        command += (
            f" -keyout {directory}/{name}.key -out {directory}/{name}.pem -addext subjectAltName={host}"
        )
        subprocess.run(command.split(), check=True, capture_output=True)
    return directory


def _tls(directory: Path, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    return context


def test_tls_goes_by_the_named_authority_and_the_host(certificates: Path) -> None:
    receiver = Receiver()
    with listening(receiver.serve, tls=_tls(certificates, "own")) as url:
        assert _send(url, ca_file=certificates / "own.pem") == Outcome(204)
        assert "certificate is none that is trusted" in str(_send(url).error)
        assert "certificate is none" in str(_send(url, ca_file=certificates / "other.pem").error)
    with listening(receiver.serve, tls=_tls(certificates, "other")) as url:  # of another host
        assert "certificate is none" in str(_send(url, ca_file=certificates / "other.pem").error)
    assert len(receiver.got) == 1


def test_a_ca_file_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for name in ("ca.pem", "missing.pem"):
        with receiving() as receiver:
            outcome = _send(receiver.url, ca_file=tmp_path / name)
        assert str(outcome.error).startswith("the CA file cannot be used")


def test_a_200_that_is_followed_by_nothing_counts() -> None:
    def broken(conn: socket.socket) -> None:
        read_request(conn)
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf")

    with listening(broken) as url:
        assert _send(url) == Outcome(200)
    with listening(lambda conn: (read_request(conn), answer(conn, "500 X"))[1]) as url:
        assert _send(url).status == 500
