"""Wires that do what wires do: they cut, delay, double and flip, or let an answer trickle."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass

from tests.journeys.tcp_proxy import CHUNK, TcpProxy

HEAD_END = b"\r\n\r\n"
STARTS = (b"HTTP/1.", b"GET ", b"POST ", b"DELETE ")
DOUBLE_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Faults:
    """How often each happens to a request or to its answer, from 0 to 1.

    Attributes:
        doubles: the whole request arrives twice, over connections of their own; one answer is lost.
        flips, answer_flips: one bit of a request's body, or of an answer's, is another.
        heads: one bit of a request's line or headers is another.
    """

    cuts: float = 0.0
    delays: float = 0.0
    doubles: float = 0.0
    flips: float = 0.0
    answer_flips: float = 0.0
    heads: float = 0.0
    delay_max_s: float = 0.3


class SickWire(TcpProxy):
    """Whole requests go through, or suffer; answers are cut, delayed and damaged.

    Args:
        port: of a service on this machine.
    """

    def __init__(self, port: int, faults: Faults, *, seed: int) -> None:
        self.faults = faults
        self.happened: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._pending = threading.local()
        super().__init__(port)

    def _client_said(self, server: socket.socket, data: bytes) -> bool:
        said = getattr(self._pending, "said", b"") + data
        while (length := _length(said)) is not None and len(said) >= length:
            request, said = said[:length], said[length:]
            if not self._forward(server, request):
                return False
        self._pending.said = said
        return True

    def _server_said(self, client: socket.socket, data: bytes, asked: bytes) -> bool:
        if self._happens("delays"):
            time.sleep(self._random.uniform(0, self.faults.delay_max_s))
        if self._happens("cuts"):
            with contextlib.suppress(OSError):
                client.sendall(data[: len(data) // 2])
            return False
        if self._happens("answer_flips"):
            data = self._flipped(data)
        return super()._server_said(client, data, asked)

    def _forward(self, server: socket.socket, request: bytes) -> bool:
        if self._happens("delays"):
            time.sleep(self._random.uniform(0, self.faults.delay_max_s))
        if self._happens("cuts"):
            with contextlib.suppress(OSError):
                server.sendall(request[: len(request) // 2])
            return False
        if self._happens("flips"):
            request = self._flipped(request)
        if self._happens("heads"):
            request = self._damaged(request, 0, request.index(HEAD_END))
        if self._happens("doubles"):
            self._send_apart(request)
        server.sendall(request)
        return True

    def _happens(self, fault: str) -> bool:
        with self._guard:
            happens = self._random.random() < getattr(self.faults, fault)
            self.happened[fault] += happens
        return happens

    def _flipped(self, said: bytes) -> bytes:
        """Another bit in a body; a chunk without a head is all body."""
        head = said.find(HEAD_END)
        begin = head + len(HEAD_END) if head >= 0 and said.startswith(STARTS) else 0
        return self._damaged(said, begin, len(said))

    def _damaged(self, said: bytes, begin: int, end: int) -> bytes:
        if begin == end:
            return said
        flipped = bytearray(said)
        with self._guard:
            flipped[self._random.randrange(begin, end)] ^= 1 << self._random.randrange(8)
        return bytes(flipped)

    def _send_apart(self, request: bytes) -> bytes:
        """The same request over a connection of its own; the beginning of its answer."""
        try:
            with socket.create_connection(
                ("127.0.0.1", self._server_port), timeout=DOUBLE_TIMEOUT_S
            ) as other:
                other.sendall(request)
                return other.recv(CHUNK)
        except OSError:
            return b""


class DamagingWire(SickWire):
    """Before a request with a body comes a copy of it, once or more, in which one bit is another.

    Attributes:
        answers: how often each status was answered to such a copy.
    """

    def __init__(self, port: int, *, copies: int, seed: int) -> None:
        self.copies = copies
        self.answers: Counter[str] = Counter()
        super().__init__(port, Faults(), seed=seed)

    def _forward(self, server: socket.socket, request: bytes) -> bool:
        for _ in range(self.copies):
            damaged = self._flipped(request)
            if damaged == request:
                break
            status = self._send_apart(damaged)[len(b"HTTP/1.1 ") :][:3].decode()
            with self._guard:
                self.answers[status] += 1
        return super()._forward(server, request)


class TricklingWire(TcpProxy):
    """The answers to requests that hold a word come a byte at a time."""

    def __init__(self, port: int, word: bytes, *, pause_s: float = 0.2) -> None:
        self._word = word
        self._pause_s = pause_s
        super().__init__(port)

    def _request_of(self, data: bytes, asked: bytes) -> bytes:
        return data if data.startswith((b"GET ", b"POST ", b"DELETE ")) else asked

    def _server_said(self, client: socket.socket, data: bytes, asked: bytes) -> bool:
        if self._word not in asked[:200]:
            return super()._server_said(client, data, asked)
        for at in range(len(data)):
            client.sendall(data[at : at + 1])
            if self._closed.wait(self._pause_s):
                return False
        return True


def _length(said: bytes) -> int | None:
    """How long the first request is; None: its head is not all there."""
    end = said.find(HEAD_END)
    if end < 0:
        return None
    for line in said[:end].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return end + len(HEAD_END) + int(value)
    return end + len(HEAD_END)
