"""200 clients that wait beside 50 that work: no error, no starved pool, bounded threads and connections."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.http.metadata_rows import MetadataRows
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, wait_for

POLLERS = 80
STREAMERS = 80
LIBRARY_WAITERS = 40
WORKERS = 50
WORK_S = 3.0
PAUSE_S = 0.35
# app/settings.py: 24 threads of the API, 10 connections to the metadata; beside them the runner's jobs with
# their keepers and workers, and the service's own few.
THREADS_MAX = 24 + 24
CONNECTIONS_MAX = 10

READ_MAX_S, READ_POSTGRESQL_MAX_S = 1.0, 3.0
"""Of the median; with PostgreSQL as metadata a burst of requests queues for its ten connections."""

MakeShop = Callable[..., Shop]


class Crowd:
    """All clients of one run, and what they met."""

    def __init__(self, service: ServiceProcess, job_id: str, shop: Shop) -> None:
        self.service = service
        self.job_id = job_id
        self.shop = shop
        self.latencies_s: dict[str, list[float]] = {}
        self.faults: list[str] = []
        self.ends: list[str] = []
        self.working = True

    def client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.service.token}"}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        return httpx.AsyncClient(base_url=self.service.url, headers=headers, timeout=30, limits=limits)

    async def poll(self, http: httpx.AsyncClient) -> None:
        """Wait for the job's end by long polls."""
        while True:
            answer = await http.get(f"/v1/jobs/{self.job_id}", headers={"Prefer": "wait=20"})
            if answer.status_code != 200:
                self.faults.append(f"poll {answer.status_code} {answer.text[:200]}")
                return
            if answer.json()["state"] == "ABORTED":
                self.ends.append("poll")
                return

    async def follow(self, http: httpx.AsyncClient) -> None:
        """Read the stream to its end; no event may be missing."""
        headers = {"Accept": "text/event-stream"}
        ids: list[int] = []
        async with http.stream("GET", f"/v1/jobs/{self.job_id}/events", headers=headers) as answer:
            ids.extend([int(line[4:]) async for line in answer.aiter_lines() if line.startswith("id: ")])
        if answer.status_code == 200 and ids == list(range(1, len(ids) + 1)):
            self.ends.append("stream")
        else:
            self.faults.append(f"stream {answer.status_code} {ids[:5]}")

    async def work(self, http: httpx.AsyncClient, number: int) -> None:
        """Look at jobs, list, and change something now and then."""
        await asyncio.sleep(PAUSE_S * number / WORKERS)
        turn = number
        while self.working:
            turn += 1
            if turn % 10 == 0:
                body = {"reason": f"worker {number}", "duration": "PT1S"}
                await self._timed("write", http.post(f"/v1/stores/{self.shop.id}:suspend", json=body))
            elif turn % 10 == 5:
                await self._timed("list", http.get("/v1/jobs?page_size=20"))
            else:
                await self._timed("read", http.get(f"/v1/jobs/{self.job_id}"))
            await asyncio.sleep(PAUSE_S)

    async def _timed(self, kind: str, request: Awaitable[httpx.Response]) -> None:
        started = time.perf_counter()
        answer = await request
        self.latencies_s.setdefault(kind, []).append(time.perf_counter() - started)
        if answer.status_code >= 400:
            self.faults.append(f"{kind} {answer.status_code} {answer.text[:200]}")

    def wait_by_library(self) -> None:
        """Wait as the client library does."""
        with self.service.library() as lethe:
            job = lethe.jobs.wait(self.job_id, timeout_s=60)
            self.ends.append("library" if job.state == "ABORTED" else f"library {job.state}")


async def _observe(crowd: Crowd, connections: Callable[[], int]) -> tuple[int, int]:
    """The most threads and metadata connections that were seen."""
    threads = opened = 0
    while crowd.working:
        threads = max(threads, crowd.service.thread_count())
        opened = max(opened, await asyncio.to_thread(connections))
        await asyncio.sleep(0.25)
    return threads, opened


async def _gather(crowd: Crowd, connections: Callable[[], int]) -> tuple[int, int]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(LIBRARY_WAITERS) as pool:
        async with crowd.client() as waiting, crowd.client() as working:
            waiters: list[Any] = [crowd.poll(waiting) for _ in range(POLLERS)]
            waiters += [crowd.follow(waiting) for _ in range(STREAMERS)]
            waiters += [loop.run_in_executor(pool, crowd.wait_by_library) for _ in range(LIBRARY_WAITERS)]
            waiters = [asyncio.ensure_future(item) for item in waiters]
            await asyncio.sleep(1.5)  # all of them wait now
            workers = [asyncio.ensure_future(crowd.work(working, number)) for number in range(WORKERS)]
            observed = asyncio.ensure_future(_observe(crowd, connections))
            await asyncio.sleep(WORK_S)
            crowd.working = False
            await asyncio.gather(*workers)
            most = await observed
            answer = await working.post(f"/v1/jobs/{crowd.job_id}:abort", json={})
            assert answer.status_code in (200, 202)
            await asyncio.wait_for(asyncio.gather(*waiters), 30)
    return most


def _connections(service: ServiceProcess) -> Callable[[], int]:
    if service.metadata_url is None:
        return lambda: service.open_files("lethe.db")
    query = (
        "select count(*) from pg_stat_activity where datname = current_database() "
        "and application_name = 'lethe:metadata'"
    )
    return lambda: int(MetadataRows(service).query(query)[0][0])


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_crowd_of_waiting_clients_does_not_starve_those_that_work(
    service: ServiceProcess, http: httpx.Client, make_shop: MakeShop
) -> None:
    shop, idle = make_shop(), make_shop()
    job_id = shop.slow_purge(rows_per_s=30)
    wait_for(http, job_id, "RUNNING")
    crowd = Crowd(service, job_id, idle)
    threads, connections = asyncio.run(_gather(crowd, _connections(service)))
    lines = [
        f"{kind}: {len(found)} requests, median {statistics.median(found) * 1000:.0f} ms, "
        f"p99 {sorted(found)[int(len(found) * 0.99)] * 1000:.0f} ms, worst {max(found) * 1000:.0f} ms"
        for kind, found in sorted(crowd.latencies_s.items())
    ]
    print("\n" + "\n".join(lines), f"\nthreads {threads}, metadata connections {connections}")
    assert crowd.faults == []
    assert sorted(crowd.ends) == sorted(
        ["poll"] * POLLERS + ["stream"] * STREAMERS + ["library"] * LIBRARY_WAITERS
    )
    assert threads <= THREADS_MAX
    assert connections <= CONNECTIONS_MAX * (2 if _is_shared(service) else 1)
    read_max_s = READ_POSTGRESQL_MAX_S if service.metadata_url else READ_MAX_S
    assert statistics.median(crowd.latencies_s["read"]) < read_max_s


def _is_shared(service: ServiceProcess) -> bool:
    """Whether other services of the session may hold connections to the same metadata."""
    return service.metadata_url is not None
