"""Extinctions of replicas over HTTP, and a consumer of before them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from tests.http.replica_stores import ConsumerStore
from tests.http.shop import wait_for


def b64(value: bytes) -> str:
    """As JSON has bytes."""
    return base64.b64encode(value).decode()


def discard(store: ConsumerStore, **fields: Any) -> httpx.Response:
    """Ask for an extinction of the database of `supplying.write`."""
    body = {
        "databases": [b64(b"db")],
        "label": "old ones",
        "confirm_keys_never_reused": True,
        "reason": "a test",
    }
    return store.http.post(f"/v1/stores/{store.id}/extinctions", json=body | fields)


def discarded(store: ConsumerStore, **fields: Any) -> dict[str, Any]:
    """Discard, and wait for the scan's end; the extinction."""
    answer = discard(store, **fields)
    assert answer.status_code == 202, answer.text
    job = wait_for(store.http, answer.json()["id"], "SUCCEEDED")
    found: dict[str, Any] = store.http.get(job["subject"]["href"]).json()
    return found


class OldConsumer:
    """A consumer that has everything of its supplier's generation but extinctions, and applies nothing.

    Attributes:
        asked: methods and paths, in their order.
    """

    def __init__(self, *, generation: str, rid: int) -> None:
        self.generation, self.rid = generation, rid
        self.asked: list[str] = []

    def answer(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        """The protocol's answer."""
        self.asked.append(f"{method} {path.partition('?')[0].rsplit('/', 1)[-1]}")
        capabilities = ["CHANGE", "KEEPALIVE", "TOTAL", "ARROW_ZSTD"]
        state = {
            "rid": self.rid,
            "status": "ONLINE",
            "generation": self.generation,
            "ruv": {},
            "purged": {},
        }
        if method == "GET":
            return 200, state | {"capabilities": capabilities, "incarnation": "inc", "min": {}, "lines": []}
        if method == "DELETE":
            return 200, {"ruv": {}, "status": "ONLINE"}
        return 201, {
            "session_id": "rps_x",
            "epoch": 1,
            "expires_at": "2036-01-01T00:00:00Z",
            "consumer": state,
            "capabilities": capabilities,
            "limits": {"batch_rows": 100, "batch_bytes": 1_000_000, "in_flight": 2},
            "total": None,
        }


@contextmanager
def old_consumer(*, generation: str, rid: int) -> Iterator[tuple[OldConsumer, str]]:
    """An old consumer and its URL."""
    consumer = OldConsumer(generation=generation, rid=rid)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, document = consumer.answer(self.command, self.path)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815 -- as the standard library calls them

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield consumer, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
