"""A TCP proxy between Lethe and PostgreSQL that can lose the answer to a COMMIT, or the COMMIT itself."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from typing import Literal

from tests.journeys.tcp_proxy import CHUNK, TcpProxy

Fate = Literal["PASS", "LOSE_ANSWER", "LOSE_COMMIT"]
ANSWER_TIMEOUT_S = 10.0


class CommitLosingProxy(TcpProxy):
    """Forwards everything; at each COMMIT it asks what is to become of it.

    LOSE_ANSWER: the server commits, the client sees its connection die. LOSE_COMMIT: the connection dies
    before the server has seen the word.

    Args:
        server_port: of PostgreSQL on this machine.
        fate: asked with the number of the COMMIT, counted from 1, of all connections.
    """

    def __init__(self, server_port: int, fate: Callable[[int], Fate]) -> None:
        self._fate = fate
        self.commits = 0
        self.lost: Counter[str] = Counter()
        super().__init__(server_port)

    def _client_said(self, server: socket.socket, data: bytes) -> bool:
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
