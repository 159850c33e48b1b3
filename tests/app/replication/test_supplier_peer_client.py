"""The client of a supplier: what it believes of an answer, and that a cut ends what waits."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from app.replication.peer import client as peer_client
from app.replication.peer.answers import (
    PeerAnswerInvalid,
    PeerRefused,
    PeerUnanswered,
    read_ruv,
    shown_ruv,
)
from app.replication.peer.client import ConsumerAddress, PeerClient
from app.replication.supplier.signals import is_passing, is_reacquired, is_waited_for

CSN = "65000001000000010000"
ACQUIRED: dict[str, Any] = {
    "session_id": "rps_1",
    "epoch": 3,
    "expires_at": "2026-11-20T10:55:39Z",
    "consumer": {"rid": 2, "status": "ONLINE", "generation": None, "ruv": {"1": CSN}, "purged": {}},
    "capabilities": ["CHANGE"],
    "limits": {"batch_rows": 100, "batch_bytes": 1_000_000, "in_flight": 4},
    "total": None,
}
Answers = Callable[[httpx.Request], httpx.Response]


def _client(answers: Answers, url: str = "http://east:1/base") -> PeerClient:
    address = ConsumerAddress(url=url, store="orders", token="lethe_secret")
    return PeerClient(address, transport=httpx.MockTransport(answers))


def _always(status: int, document: Any, **headers: str) -> Answers:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return lambda _request: httpx.Response(status, content=content, headers=headers)


def test_a_request_carries_the_token_and_stays_below_the_agreements_url() -> None:
    seen: list[httpx.Request] = []

    def answers(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(201, json=ACQUIRED)

    with _client(answers) as client:
        acquired = client.acquire({"protocol": 1})
    assert str(seen[0].url) == "http://east:1/base/v1/replicas/orders/sessions"
    assert seen[0].headers["authorization"] == "Bearer lethe_secret"
    assert (acquired.epoch, acquired.consumer.ruv) == (3, {1: CSN})


def test_a_redirect_is_not_followed() -> None:
    calls: list[str] = []

    def answers(request: httpx.Request) -> httpx.Response:
        calls.append(str(request.url))
        return httpx.Response(307, headers={"Location": "http://elsewhere/v1"})

    with _client(answers) as client, pytest.raises(PeerAnswerInvalid):
        client.ruv()
    assert len(calls) == 1


@pytest.mark.parametrize(
    "document",
    [
        b"<html>",
        b"[]",
        b"null",
        ACQUIRED | {"epoch": "3"},
        ACQUIRED | {"epoch": -1},
        ACQUIRED | {"expires_at": "soon"},
        ACQUIRED | {"limits": None},
        ACQUIRED | {"consumer": {"rid": 2}},
        ACQUIRED | {"consumer": ACQUIRED["consumer"] | {"ruv": {"1": "x"}}},
        ACQUIRED | {"consumer": ACQUIRED["consumer"] | {"ruv": {"7": CSN}}},
        ACQUIRED | {"consumer": ACQUIRED["consumer"] | {"ruv": {"0": CSN}}},
        ACQUIRED | {"consumer": ACQUIRED["consumer"] | {"generation": "old"}},
        {name: value for name, value in ACQUIRED.items() if name != "epoch"},
    ],
)
def test_an_answer_that_is_none_of_the_protocol_is_told_as_such(document: Any) -> None:
    with _client(_always(201, document)) as client, pytest.raises(PeerAnswerInvalid) as found:
        client.acquire({})
    assert not is_waited_for(found.value)


def test_an_answer_without_an_end_is_not_read_to_it() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * 1_000_000

    answers: Answers = lambda _request: httpx.Response(200, content=endless())  # noqa: E731
    with _client(answers) as client, pytest.raises(PeerAnswerInvalid, match="more than"):
        client.ruv()


@pytest.mark.parametrize(
    ("status", "code", "passes", "reacquires", "waits"),
    [
        (503, "METADATA_BUSY", True, True, True),
        (500, "INTERNAL", True, True, True),
        (429, "TOO_MANY", True, True, True),
        # A line that was slow for one body failed the session.
        (408, "BODY_TOO_SLOW", True, True, True),
        (422, "BODY_DAMAGED", True, True, True),
        (409, "BATCH_GAP", True, True, True),
        (409, "PREV_GAP", False, True, True),
        (409, "STALE_EPOCH", False, True, True),
        (410, "SESSION_ENDED", False, True, True),
        (409, "REPLICA_BUSY", False, False, True),
        (409, "CLOCK_SKEW", False, False, False),
        (409, "DUPLICATE_RID", False, False, False),
        (409, "CONSUMER_AHEAD", False, False, False),
        (422, "PROTOCOL_UNKNOWN", False, False, False),
        (401, "TOKEN_UNKNOWN", False, False, False),
        (403, "SCOPE_MISSING", False, False, False),
        (404, "STORE_NOT_FOUND", False, False, False),
        (413, "BATCH_TOO_LARGE", False, False, False),
    ],
)
def test_what_a_refusal_means(status: int, code: str, passes: bool, reacquires: bool, waits: bool) -> None:
    problem = {"code": code, "detail": "because", "retryable": False, "expected": 4}
    answers = _always(status, problem, **{"Retry-After": "7"})
    with _client(answers) as client, pytest.raises(PeerRefused) as found:
        client.send("rps_1", epoch=1, batch_seq=1, body=b"")
    error = found.value
    assert (error.code, error.detail, error.retry_after_s) == (code, "because", 7.0)
    assert error.facts["expected"] == 4
    assert (is_passing(error), is_reacquired(error), is_waited_for(error)) == (passes, reacquires, waits)


def test_a_peers_words_are_bounded_and_printable() -> None:
    """They are kept in rows of PostgreSQL and shown on terminals."""
    hostile = {"code": "X" * 500, "detail": "a\x00b\x1b[31m\ud800" + "c" * 10_000}
    with _client(_always(409, hostile)) as client, pytest.raises(PeerRefused) as found:
        client.ruv()
    assert found.value.code == "HTTP_409"
    assert found.value.detail.isprintable()
    assert len(found.value.detail) == 500
    total = {"resume_after": {"database": "no base64!", "key": "YQ=="}, "is_copied": False}
    with _client(_always(201, ACQUIRED | {"total": total})) as client, pytest.raises(PeerAnswerInvalid):
        client.acquire({})


@pytest.mark.parametrize("count", [-1, 2**53, 10**400, 1.0, True, "1"])
def test_a_peers_counts_are_bounded(count: object) -> None:
    """They are added up, divided, and kept in columns."""
    total = {"resume_after": None, "is_copied": False, "entries": count}
    for answer in ({"total": total}, {"epoch": count}):
        with _client(_always(201, ACQUIRED | answer)) as client, pytest.raises(PeerAnswerInvalid):
            client.acquire({})
    with _client(_always(201, ACQUIRED | {"total": total | {"entries": 2**53 - 1}})) as client:
        assert client.acquire({}).entries == 2**53 - 1


def test_a_proxy_that_answers_for_the_consumer_is_a_refusal_without_a_code() -> None:
    with _client(_always(502, b"<html>bad gateway")) as client, pytest.raises(PeerRefused) as found:
        client.ruv()
    assert (found.value.code, is_passing(found.value)) == ("HTTP_502", True)


def test_vectors_come_back_as_they_were_shown() -> None:
    ruv = {12: "650000010000000c0000", 3: "65000001000000030000"}
    assert list(shown_ruv(ruv)) == ["3", "12"]
    assert read_ruv(shown_ruv(ruv)) == ruv


@contextmanager
def _silent_server() -> Iterator[int]:
    """A server that takes requests and never answers them."""
    release = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            release.wait(20)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        release.set()
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_cut_ends_a_request_that_waits_for_its_answer() -> None:
    with _silent_server() as port:
        address = ConsumerAddress(url=f"http://127.0.0.1:{port}", store="orders", token="lethe_secret")
        with PeerClient(address) as client:
            cutting = threading.Timer(0.3, client.cut)
            cutting.start()
            began = time.monotonic()
            with pytest.raises(PeerUnanswered):
                client.ruv()
            assert time.monotonic() - began < peer_client.ANSWER_TIMEOUT_S / 3
            cutting.join()
            with pytest.raises(PeerUnanswered, match="cut"):
                client.ruv()
