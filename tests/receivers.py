"""Receivers of webhooks: a good one that keeps what it gets, and sick ones, on sockets of this machine."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

Serve = Callable[[socket.socket], None]


def read_request(conn: socket.socket) -> tuple[dict[str, str], bytes] | None:
    """The headers, in small letters, and the body of one request; None: it does not come."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = conn.recv(65_536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")[1:]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        piece = conn.recv(65_536)
        if not piece:
            return None
        body += piece
    return headers, body


def answer(conn: socket.socket, status: str = "204 No Content", *, headers: str = "") -> None:
    """One answer, and the end of the connection."""
    head = f"HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n"
    conn.sendall(head.encode())


@dataclass
class Receiver:
    """Keeps what comes; answers 204, or what `status` says.

    Attributes:
        key: what signatures are checked by as they come; those that are none are counted.
        at_once: the most requests that were under way together, by event.
    """

    url: str = ""
    status: str = "204 No Content"
    answer_headers: str = ""
    pause_s: float = 0.0
    key: str | None = None
    refused: int = 0
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    at_once: Counter[str] = field(default_factory=Counter)
    changed: threading.Condition = field(default_factory=threading.Condition)
    _now: Counter[str] = field(default_factory=Counter)

    def serve(self, conn: socket.socket) -> None:
        request = read_request(conn)
        if request is None:
            return
        event = request[0].get("webhook-id")
        if event is None:  # a stranger, who asks for what had this port before
            answer(conn, "404 Not Found")
            return
        with self.changed:
            self._now[event] += 1
            self.at_once[event] = max(self.at_once[event], self._now[event])
        if self.pause_s:
            threading.Event().wait(self.pause_s)
        with self.changed:
            self._now[event] -= 1
            if self.key is not None:
                self._check(*request)
            self.got.append(request)
            self.changed.notify_all()
        answer(conn, self.status, headers=self.answer_headers)

    def _check(self, headers: dict[str, str], body: bytes) -> None:
        try:
            Verifier(str(self.key)).verify(body, headers)
        except WebhookVerificationError:
            self.refused += 1

    @property
    def events(self) -> list[dict[str, Any]]:
        with self.changed:
            return [json.loads(body) for _, body in self.got]

    def wait_for(self, count: int, timeout_s: float = 20.0) -> list[dict[str, Any]]:
        """So many requests."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.got) >= count, timeout_s), (count, len(self.got))
        return self.events

    def verified(self, *keys: str) -> list[dict[str, Any]]:
        """Every body, checked by the library of Standard Webhooks with each of the keys."""
        with self.changed:
            return [Verifier(key).verify(body, headers) for headers, body in self.got for key in keys]


@contextmanager
def listening(
    serve: Serve, *, tls: ssl.SSLContext | None = None, port: int = 0, path: str = "/hook"
) -> Iterator[str]:
    """A server of any number of connections; its URL."""
    with socket.create_server(("127.0.0.1", port), backlog=128) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    conn, _ = listener.accept()
                    threading.Thread(target=one, args=(conn,), daemon=True).start()

        def one(conn: socket.socket) -> None:
            with suppress(OSError), conn:
                if tls is None:
                    serve(conn)
                else:
                    with tls.wrap_socket(conn, server_side=True) as wrapped:
                        serve(wrapped)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        scheme = "http" if tls is None else "https"
        try:
            yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}{path}"
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


@contextmanager
def receiving(**fields: Any) -> Iterator[Receiver]:
    """A good receiver."""
    receiver = Receiver(**fields)
    with listening(receiver.serve) as url:
        receiver.url = url
        yield receiver
