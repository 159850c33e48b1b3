"""Ports for servers that tests start: below those that the kernel gives to clients, and of each worker's own.

Between the moment a port is found and the moment its server listens, a client's connection or a server of
another worker could take a port that the kernel has chosen.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from functools import cache
from typing import Final

FIRST: Final = 12_000
EACH: Final = 1_000
RANGES: Final = 20
assert FIRST + EACH * RANGES <= 32_768, "where those of clients begin"


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now, and that this process has not given out of late."""
    while True:
        port = next(_ports_of(os.getpid()))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


@cache
def _ports_of(process: int) -> Iterator[int]:
    """The ports of this worker in an order of the process's own, again and again."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    # Processes without workers differ by their number, as two runs at once do.
    number = int(worker) if worker.isdecimal() else process
    first = FIRST + EACH * (number % RANGES)
    ports = random.Random(process).sample(range(first, first + EACH), EACH)

    def again() -> Iterator[int]:
        while True:
            yield from ports

    return again()
