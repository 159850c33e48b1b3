"""Measures what open consoles cost the service: its processor time with 50 of them, less that with none.

Each console is a signed-in client that holds the stream of its page and asks for the page's live part when
the stream says so, as a browser does. They look at the overview of a few stores: once while nothing happens
(each then looks again every 30 s), and once while a purge runs that tells of its progress.
Exit status 1: more than 10 % of a core while nothing happens.

    python -m benchmarks.console --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.gates import Gate
from benchmarks.process_tree import tree_cpu_s
from tests.console.browsing import SAME_ORIGIN
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.targets import copy_reference

CONSOLES = 50
STORES = 5
SHARE_MAX = 0.10
SETTLE_S = 3.0
PAGE = "/console/"
STREAM = "/console/events"
LIVE = {"HX-Request": "true"}


@dataclass
class Seen:
    """What all consoles together have had."""

    refreshes: int = 0
    bytes: int = 0


async def _console(service: ServiceProcess, seen: Seen) -> None:
    async with httpx.AsyncClient(base_url=service.url, headers=SAME_ORIGIN, timeout=None) as client:
        await client.post("/console/login", data={"token": service.token})
        await client.get(PAGE)
        async with client.stream("GET", STREAM, headers={"Accept": "text/event-stream"}) as stream:
            async for line in stream.aiter_lines():
                if line == "event: refresh":
                    answer = await client.get(PAGE, headers=LIVE)
                    assert answer.status_code == 200, answer.text
                    seen.refreshes += 1
                    seen.bytes += len(answer.content)


async def _share(service: ServiceProcess, consoles: int, seconds: float) -> tuple[float, Seen]:
    """The share of a core that the service takes with so many consoles open."""
    seen = Seen()
    tasks = [asyncio.create_task(_console(service, seen)) for _ in range(consoles)]
    while seen.refreshes < consoles:  # each stream begins with one
        await asyncio.sleep(0.1)
    await asyncio.sleep(SETTLE_S)
    seen.refreshes, seen.bytes = 0, 0
    before, began = tree_cpu_s(service.pid), time.monotonic()
    await asyncio.sleep(seconds)
    took = tree_cpu_s(service.pid) - before
    lasted = time.monotonic() - began
    for task in tasks:
        assert not task.done(), task
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return took / lasted, seen


def _fleet(http: httpx.Client, folder: Path) -> Shop:
    for number in range(STORES):
        path = copy_reference(folder / f"shop-{number}.sqlite")
        body = {"id": f"shop-{number}", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        http.post("/v1/stores", json=body).raise_for_status()
    return Shop(http=http, id="shop-0", path=folder / "shop-0.sqlite")


def _measure(service: ServiceProcess, name: str, seconds: float, *, is_judged: bool) -> Gate:
    alone, _ = asyncio.run(_share(service, 0, seconds))
    crowded, seen = asyncio.run(_share(service, CONSOLES, seconds))
    told = f"{alone:.1%} of a core without, {crowded:.1%} with {CONSOLES} consoles"
    rate, size = seen.refreshes / seconds / CONSOLES, seen.bytes / max(seen.refreshes, 1)
    print(f"{name}: {told}; each looked {rate:.2f} times a second at {size:.0f} bytes")
    return Gate(
        name, 100 * (crowded - alone), 100 * SHARE_MAX, "% of a core", at_least=False, judged=is_judged
    )


def _measure_both(service: ServiceProcess, shop: Shop, seconds: float) -> list[Gate]:
    idle = _measure(service, "nothing happens", seconds, is_judged=True)
    shop.slow_purge(rows_per_s=1)
    return [idle, _measure(service, "a purge tells of its progress", seconds, is_judged=False)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        service = ServiceProcess(folder / "service", settings={"LETHE_ALLOWED_ROOTS": scratch}).start()
        try:
            with service.http() as http:
                gates = _measure_both(service, _fleet(http, folder), asked.seconds)
        finally:
            service.stop()
    for gate in gates:
        print(gate.line())
    return 0 if all(gate.is_met for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
