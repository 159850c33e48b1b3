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
DOUBLE_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Faults:
    """How often each happens to a request or to its answer, from 0 to 1.

    Attributes:
        doubles: the whole request arrives twice, over connections of their own; one answer is lost.
        flips: one bit of a body is another.
    """

    cuts: float = 0.0
    delays: float = 0.0
    doubles: float = 0.0
    flips: float = 0.0
    delay_max_s: float = 0.3


class SickWire(TcpProxy):
    """Whole requests go through, or suffer; answers are cut and delayed.

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
        if self._happens("doubles"):
            self._send_apart(request)
        server.sendall(request)
        return True

    def _happens(self, fault: str) -> bool:
        with self._guard:
            happens = self._random.random() < getattr(self.faults, fault)
            self.happened[fault] += happens
        return happens

    def _flipped(self, request: bytes) -> bytes:
        begin = request.index(HEAD_END) + len(HEAD_END)
        if begin == len(request):
            return request
        flipped = bytearray(request)
        flipped[self._random.randrange(begin, len(request))] ^= 1 << self._random.randrange(8)
        return bytes(flipped)

    def _send_apart(self, request: bytes) -> None:
        """The same request over a connection of its own, to the beginning of its answer."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._server_port), timeout=DOUBLE_TIMEOUT_S) as other,
        ):
            other.sendall(request)
            other.recv(CHUNK)


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
