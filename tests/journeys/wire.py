"""A TCP proxy between Lethe and PostgreSQL that can lose the answer to a COMMIT, or the COMMIT itself."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Literal

Fate = Literal["PASS", "LOSE_ANSWER", "LOSE_COMMIT"]
ANSWER_TIMEOUT_S = 10.0
CHUNK = 65_536


class CommitLosingProxy:
    """Forwards everything; at each COMMIT it asks what is to become of it.

    LOSE_ANSWER: the server commits, the client sees its connection die. LOSE_COMMIT: the connection dies
    before the server has seen the word.

    Args:
        server_port: of PostgreSQL on this machine.
        fate: asked with the number of the COMMIT, counted from 1, of all connections.
    """

    def __init__(self, server_port: int, fate: Callable[[int], Fate]) -> None:
        self._server_port = server_port
        self._fate = fate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.commits = 0
        self.lost: Counter[str] = Counter()
        self._guard = threading.Lock()
        self._closed = threading.Event()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Refuse new connections; those that are open end with their peers."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(5)

    def __enter__(self) -> CommitLosingProxy:
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
            while True:
                for key, _ in selector.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(CHUNK)
                    if not data:
                        return
                    if source is server:
                        client.sendall(data)
                    elif not self._pass_on(server, data):
                        return

    def _pass_on(self, server: socket.socket, data: bytes) -> bool:
        """Forward what the client said; False: the connection dies now."""
        fate: Fate = "PASS"
        if b"COMMIT\0" in data.upper():
            with self._guard:
                self.commits += 1
                fate = self._fate(self.commits)
                if fate != "PASS":
                    self.lost[fate] += 1
        if fate == "LOSE_COMMIT":
            return False
        server.sendall(data)
        if fate == "LOSE_ANSWER":
            server.settimeout(ANSWER_TIMEOUT_S)
            assert b"COMMIT" in server.recv(CHUNK)  # the tag of CommandComplete: it has happened
            return False
        return True
