"""An open-loop client: requests leave by a fixed schedule, and waiting for a free connection counts.

A closed loop would send less when the service is slow, and so hide what it asks about.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

REQUEST_TIMEOUT_S = 30.0
ENDED = {"SUCCEEDED", "FAILED", "ABORTED", "ABANDONED"}


@dataclass(frozen=True)
class Load:
    """What is asked for, by how many, how often."""

    port: int
    path: str
    token: str
    clients: int
    rate_per_s: float

    @property
    def request(self) -> bytes:
        """The bytes of one request."""
        lines = (
            f"GET {self.path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"Authorization: Bearer {self.token}",
            "Accept: application/json",
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n"


@dataclass(frozen=True)
class Sample:
    """One request: from the moment it was due to the last byte of its answer."""

    latency_s: float
    status: int
    state: str


def run_load(load: Load, seconds: float, until_ended: bool) -> list[Sample]:
    """Ask for `seconds`, or with `until_ended` until the job that is asked for has ended."""
    return asyncio.run(_run(load, seconds, until_ended))


async def _run(load: Load, seconds: float, until_ended: bool) -> list[Sample]:
    samples: list[Sample] = []
    ended = asyncio.Event()
    start = time.perf_counter() + 0.5
    async with asyncio.TaskGroup() as group:
        for client in range(load.clients):
            due = [
                start + turn / load.rate_per_s
                for turn in range(client, int(seconds * load.rate_per_s), load.clients)
            ]
            group.create_task(_client(load, due, samples, ended if until_ended else None))
    return samples


async def _client(load: Load, due: list[float], samples: list[Sample], ended: asyncio.Event | None) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", load.port)
    try:
        for moment in due:
            await asyncio.sleep(max(0.0, moment - time.perf_counter()))
            if ended is not None and ended.is_set():
                return
            writer.write(load.request)
            status, body = await asyncio.wait_for(_answer(reader), REQUEST_TIMEOUT_S)
            state = str(json.loads(body).get("state", ""))
            samples.append(Sample(time.perf_counter() - moment, status, state))
            if ended is not None and state in ENDED:
                ended.set()
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer that tells its length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = head.partition("content-length:")[2].partition("\r\n")[0]
    return int(head.split(" ", 2)[1]), await reader.readexactly(int(length))
