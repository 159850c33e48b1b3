"""One address in front of several instances, as a balancer is: connections go to the first that listens."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

CHUNK = 65_536
CONNECT_MAX_S = 2.0


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Hand on bytes until one side is gone; then both are."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK):
            target.sendall(chunk)
    for side in (source, target):
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)


def _reach(ports: Sequence[int]) -> socket.socket | None:
    for port in ports:
        with contextlib.suppress(OSError):
            found = socket.create_connection(("127.0.0.1", port), timeout=CONNECT_MAX_S)
            found.settimeout(None)
            return found
    return None


def _accept(listener: socket.socket, ports: Sequence[int], kept: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            behind = _reach(ports)
            if behind is None:
                client.close()
                continue
            kept += (client, behind)
            for pair in ((client, behind), (behind, client)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()


@contextmanager
def relaying(ports: Sequence[int]) -> Iterator[str]:
    """The URL of the one address."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, ports, kept), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    for each in kept:
        each.close()
