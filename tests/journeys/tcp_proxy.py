"""A TCP proxy on this machine in whose subclasses connections die at a chosen word."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Self

CHUNK = 65_536
HELD_MAX_S = 20.0
"""Longer than any wait for a silent server takes on a busy machine; for ever was the answer before."""


class TcpProxy:
    """Forwards what both sides say, as `_heard` lets it; open ones end with their peers.

    Args:
        server_port: of a server on this machine.
        host: the address of this machine to listen at.
    """

    def __init__(self, server_port: int, *, host: str = "127.0.0.1") -> None:
        self._server_port = server_port
        self._listener = socket.create_server((host, 0))
        self.port = int(self._listener.getsockname()[1])
        self._guard = threading.Lock()
        self._closed = threading.Event()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def server_port(self) -> int:
        """Whom it stands before."""
        return self._server_port

    def close(self) -> None:
        """Refuse new connections; those that are open end with their peers."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                continue
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
            selector.register(client, selectors.EVENT_READ)
            selector.register(server, selectors.EVENT_READ)
            asked = b""
            while True:
                for key, _ in selector.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(CHUNK)
                    if not data:
                        return
                    if source is client:
                        asked = self._request_of(data, asked)
                        is_open = self._client_said(server, data)
                    else:
                        is_open = self._server_said(client, data, asked)
                    if not is_open:
                        return

    def _request_of(self, _data: bytes, asked: bytes) -> bytes:
        """The beginning of the request that the next answer is to."""
        return asked

    def _client_said(self, server: socket.socket, data: bytes) -> bool:
        """Forward it; False: the connection dies now."""
        server.sendall(data)
        return True

    def _server_said(self, client: socket.socket, data: bytes, _asked: bytes) -> bool:
        """Forward it; False: the connection dies now."""
        client.sendall(data)
        return True


class CuttableProxy(TcpProxy):
    """A server that can die and come back: cut off, it ends what is open and answers nobody."""

    def __init__(self, server_port: int, *, host: str = "127.0.0.1") -> None:
        self._cut = threading.Event()
        self._sides: set[socket.socket] = set()
        super().__init__(server_port)

    def cut(self) -> None:
        """End every connection, and each new one as soon as it comes."""
        self._cut.set()
        for side in list(self._sides):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Answer again."""
        self._cut.clear()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        if self._cut.is_set():
            client.close()
            server.close()
            return
        both = {client, server}
        self._sides |= both
        try:
            super()._carry(client, server)
        finally:
            self._sides -= both


class Silencing(TcpProxy):
    """A server whose kernel lives and acknowledges, and that says nothing more once it is silenced."""

    def __init__(self, server_port: int) -> None:
        self.after_bytes: int | None = None
        super().__init__(server_port)

    def _server_said(self, client: socket.socket, data: bytes, asked: bytes) -> bool:
        if self.after_bytes is None:
            return super()._server_said(client, data, asked)
        said, self.after_bytes = data[: self.after_bytes], max(0, self.after_bytes - len(data))
        return super()._server_said(client, said, asked)

    def fall_silent(self, *, after_bytes: int = 0) -> None:
        """Say so much more, and then nothing."""
        self.after_bytes = after_bytes

    def speak(self) -> None:
        """Say again what new connections are told; what was kept back is lost."""
        self.after_bytes = None


def ended(act: Callable[[], object]) -> object:
    """What becomes of an act in a thread of its own, which has an end: its result, or what it raises."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(act())
        except Exception as error:  # noqa: BLE001 - whoever asked looks at it
            future.set_result(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result(HELD_MAX_S)
