"""What a job has taken of Spark: kept over leases and attempts, and shown when it is asked for by its id."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from app.auth.scopes import Scope
from app.jobs.engines.use_notes import KEPT_MAX, UseNotes, name_on_spark, together
from app.jobs.queries import CHECKPOINT_USE, get_job, look_at_use
from app.jobs.rows import Job, JobCheckpoint
from app.jobs.watch import JobWatch
from app.main import create_app
from tests.app.auth.requests import make_token
from tests.app.jobs.workbench import Workbench


def use(number: int, **values: Any) -> dict[str, Any]:
    return {
        "groups": [f"lethe-{number}"],
        "stages": [number],
        "tasks": 2,
        "task_s": 1.5,
        "cpu_s": 0.5,
        "memory_bytes": 100 * number,
    } | values


def test_a_lease_replaces_its_own_figures_and_adds_to_those_before(bench: Workbench) -> None:
    job_id = bench.submit()
    context = bench.context()
    first = UseNotes(context)
    first.note(use(1))
    first.note(use(1, tasks=3))
    assert bench.checkpoint(job_id, CHECKPOINT_USE) == use(1, tasks=3)
    UseNotes(context).note(use(2))
    assert bench.checkpoint(job_id, CHECKPOINT_USE) == {
        "groups": ["lethe-1", "lethe-2"],
        "stages": [1, 2],
        "tasks": 5,
        "task_s": 3.0,
        "cpu_s": 1.0,
        "memory_bytes": 200,
    }


def test_only_the_newest_groups_and_stages_are_named() -> None:
    earlier = use(1, stages=list(range(KEPT_MAX)))
    found = together(earlier, use(2, stages=[KEPT_MAX, 3]))
    assert found["stages"] == [*range(1, KEPT_MAX), KEPT_MAX]
    assert len(found["stages"]) == KEPT_MAX


def test_a_job_shows_it_only_where_spark_worked(bench: Workbench) -> None:
    job_id = bench.submit()
    context = bench.context()
    UseNotes(context).note(use(1))

    def shown() -> Any:
        with bench.database.reading() as db:
            job = get_job(db, job_id)
            db.expunge(job)
        return asyncio.run(look_at_use(bench.database, job))

    assert shown() is None
    context.write(lambda db: context.change(db, {"engine": "SPARK"}))
    assert shown().model_dump(mode="json") == {
        "groups": ["lethe-1"],
        "stages": [1],
        "tasks": 2,
        "task_time": "PT1.5S",
        "cpu_time": "PT0.5S",
        "memory_bytes": 100,
    }


def test_a_job_on_spark_without_figures_yet_shows_none(bench: Workbench) -> None:
    job_id = bench.submit()
    context = bench.context()
    context.write(lambda db: context.change(db, {"engine": "SPARK"}))
    with bench.database.reading() as db:
        assert db.get(JobCheckpoint, (job_id, CHECKPOINT_USE)) is None
        job = get_job(db, job_id)
        db.expunge(job)
    assert asyncio.run(look_at_use(bench.database, job)) is None


def test_whoever_has_waited_for_the_job_sees_it_too(bench: Workbench) -> None:
    job_id = bench.submit()
    context = bench.context()
    context.write(lambda db: context.change(db, {"engine": "SPARK"}))
    UseNotes(context).note(use(1))
    app = create_app(bench.settings, bench.database, clock=bench.clock)
    token = make_token(bench.database, bench.clock, scopes=[Scope.JOBS_READ])
    headers = {"Authorization": f"Bearer {token}", "Prefer": "wait=10"}

    async def ask() -> httpx.Response:
        watch: JobWatch = app.state.watch
        await watch.start()
        try:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://lethe") as client:
                query = {"wait_for": "progress"}
                asked = asyncio.create_task(client.get(f"/v1/jobs/{job_id}", headers=headers, params=query))
                while not watch._seen:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(UseNotes(context).note, use(2))
                return await asked
        finally:
            await watch.close()

    answer = asyncio.run(ask())
    assert answer.headers["preference-applied"] == "wait=10"
    assert answer.json()["spark"]["groups"] == ["lethe-1", "lethe-2"]


def test_name_has_id_kind_and_store(bench: Workbench) -> None:
    job_id = bench.submit()
    context = bench.context()
    job: Job = context.job
    parts = name_on_spark(context).split(" ")
    assert parts[:2] == [job_id, job.kind]
    assert parts[2:] == ([job.store] if job.store else [])
