"""An open-loop client of many kinds of requests: what leaves late has waited, and that counts."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

CLIENTS = 60
REQUEST_TIMEOUT_S = 60.0
GET_SHARE, LIST_SHARE = 0.75, 0.17
"""Of all requests; the rest changes something."""
LISTS = (
    "/v1/jobs?page_size=20",
    "/v1/jobs?state=QUEUED&page_size=20",
    "/v1/jobs?kind=PURGE&page_size=20",
    "/v1/stores?page_size=20",
    "/v1/schedules?page_size=20",
)


@dataclass(frozen=True)
class Mix:
    """What is asked for.

    Args:
        jobs: ids that are asked for.
        stores: that are suspended and resumed.
        changes: whether anything is changed; without, reads keep their shares.
    """

    port: int
    token: str
    jobs: Sequence[str]
    stores: Sequence[str]
    rate_per_s: float
    changes: bool = True


@dataclass(frozen=True)
class Answered:
    """One request: from the moment it was due to the last byte of its answer."""

    kind: str
    latency_s: float
    status: int


def run_mix(mix: Mix, seconds: float, seed: int) -> list[Answered]:
    """Ask for so many seconds."""
    return asyncio.run(_run(mix, seconds, seed))


async def _run(mix: Mix, seconds: float, seed: int) -> list[Answered]:
    answers: list[Answered] = []
    start = time.perf_counter() + 0.5
    count = int(seconds * mix.rate_per_s)
    async with asyncio.TaskGroup() as group:
        for client in range(CLIENTS):
            due = [start + turn / mix.rate_per_s for turn in range(client, count, CLIENTS)]
            group.create_task(_client(mix, due, answers, random.Random(f"{seed} {client}")))
    return answers


async def _client(mix: Mix, due: list[float], answers: list[Answered], rng: random.Random) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", mix.port)
    try:
        for moment in due:
            await asyncio.sleep(max(0.0, moment - time.perf_counter()))
            kind, request = _drawn(mix, rng)
            writer.write(request)
            status = await asyncio.wait_for(_status(reader), REQUEST_TIMEOUT_S)
            answers.append(Answered(kind, time.perf_counter() - moment, status))
    finally:
        writer.close()


def _drawn(mix: Mix, rng: random.Random) -> tuple[str, bytes]:
    chance = rng.random() * (1.0 if mix.changes else GET_SHARE + LIST_SHARE)
    if chance < GET_SHARE:
        return "get", _request(mix, "GET", f"/v1/jobs/{rng.choice(mix.jobs)}")
    if chance < GET_SHARE + LIST_SHARE:
        return "list", _request(mix, "GET", rng.choice(LISTS))
    store = rng.choice(mix.stores)
    if rng.random() < 0.5:
        body = {"reason": "the benchmark", "duration": "PT1S"}
        return "change", _request(mix, "POST", f"/v1/stores/{store}:suspend", body)
    return "change", _request(mix, "POST", f"/v1/stores/{store}:resume", {})


def _request(mix: Mix, method: str, path: str, body: dict[str, str] | None = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{mix.port}",
        f"Authorization: Bearer {mix.token}",
    ]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


async def _status(reader: asyncio.StreamReader) -> int:
    """Read one answer to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = head.partition("content-length:")[2].partition("\r\n")[0]
    await reader.readexactly(int(length or 0))
    return int(head.split(" ", 2)[1])
