"""AsyncLethe against a real service: many questions at once, a purge followed to its end, streams."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from lethe_client import (
    AsyncLethe,
    Conflict,
    NotFound,
    PurgeRequest,
    RequestInvalid,
    WaitTimedOut,
)

from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the client sees the API alone."""
    return sqlite_service


def client(service: ServiceProcess) -> AsyncLethe:
    return AsyncLethe(service.url, service.token)


def test_a_purge_is_planned_run_followed_and_its_events_are_heard(
    service: ServiceProcess, shop: Shop
) -> None:
    async def run() -> None:
        async with client(service) as lethe:
            plan = await lethe.purges.plan(shop.id, PurgeRequest(retention_minutes=7200, reason="async"))
            begun = await lethe.purges.create(shop.id, PurgeRequest(plan_id=plan.plan_id, reason="async"))
            states = [job.state async for job in lethe.jobs.follow(begun.id)]
            assert states[-1] == "SUCCEEDED"
            ended = await lethe.jobs.wait(begun.id)
            assert ended.result is not None
            heard = [event.seq async for event in lethe.jobs.events(begun.id)]
            listed = [event.seq async for event in lethe.jobs.event_list(begun.id)]
            assert heard == listed == sorted(heard)
            assert heard

    asyncio.run(run())


def test_many_questions_are_asked_at_once(service: ServiceProcess, shop: Shop) -> None:
    async def run() -> list[Any]:
        async with client(service) as lethe:
            assert await lethe.is_ready()
            stores = asyncio.gather(*(lethe.stores.get(shop.id) for _ in range(30)))
            found = await asyncio.gather(stores, lethe.fleet.whoami(), lethe.fleet.overview(stores=[shop.id]))
            assert shop.id in [each.id async for each in lethe.stores.list()]
            return found

    stores, me, overview = asyncio.run(run())
    assert {store.id for store in stores} == {shop.id}
    assert me.name == "admin"
    assert [each.id for each in overview.stores] == [shop.id]


def test_refusals_are_the_same_errors(service: ServiceProcess, shop: Shop) -> None:
    async def run() -> None:
        async with client(service) as lethe:
            with pytest.raises(NotFound):
                await lethe.stores.get("nowhere")
            with pytest.raises(RequestInvalid, match="retention_minutes"):
                await lethe.purges.create(shop.id, PurgeRequest(retention_minutes=-1))
            with pytest.raises(Conflict):
                await lethe.stores.create(shop.id, f"sqlite:///{shop.path}.other")

    asyncio.run(run())


def test_a_wait_ends_by_its_own_time_or_is_cancelled(service: ServiceProcess, shop: Shop) -> None:
    async def run() -> None:
        async with client(service) as lethe:
            job_id = shop.slow_purge(rows_per_s=20)
            with pytest.raises(WaitTimedOut) as late:
                await lethe.jobs.wait(job_id, timeout_s=0.5)
            assert late.value.job.id == job_id
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(lethe.jobs.wait(job_id), 0.5)
            aborted = await lethe.jobs.abort(job_id, reason="seen enough")
            assert (await lethe.jobs.wait(aborted.id)).state == "ABORTED"

    asyncio.run(run())


def test_the_stream_of_all_events_is_left_while_it_goes_on(service: ServiceProcess, shop: Shop) -> None:
    async def first(lethe: AsyncLethe, job_id: str) -> str:
        async with aclosing(lethe.fleet.events(stores=[shop.id], last_event_id=0)) as stream:  # type: ignore[type-var]
            async for event in stream:
                if event.subject == f"jobs/{job_id}" and event.data.get("state") == "SUCCEEDED":
                    return event.type
        raise AssertionError("the stream has no end")

    async def run() -> str:
        async with client(service) as lethe:
            job = await lethe.purges.create(shop.id, PurgeRequest(retention_minutes=7200, reason="async"))
            return await asyncio.wait_for(first(lethe, job.id), 30)

    assert asyncio.run(run()).startswith("job.")
