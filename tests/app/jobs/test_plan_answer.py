"""What a request with `validate_only` answers, by how far its PLAN job has come."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from sqlmodel import select
from starlette.responses import Response

from app.db import Database
from app.jobs.plans.plan_answer import plan_answer
from app.jobs.plans.plans import JOB_PLAN
from app.jobs.rows import Job
from app.jobs.service import JobRequest, submit
from app.jobs.states import JobState
from app.kit.prefer import PreferHeader
from app.main import create_app
from app.settings import Settings

PATH = "/v1/toy-plan"
GONE = {"code": "TARGET_UNREACHABLE", "title": "away", "detail": "nobody answers", "retryable": True}
WRONG = {"code": "TARGET_TABLES_MISSING", "title": "none", "detail": "no tables", "retryable": False}


def _build(settings: Settings, database: Database, **fields: Any) -> FastAPI:
    app = create_app(settings, database)

    @app.post(PATH)
    async def post_plan(request: Request, prefer: PreferHeader = None) -> Response:
        def queue() -> Job:
            asked = JobRequest(kind=JOB_PLAN, store=None, params={}, requested_by="ann")
            with database.transaction() as db:
                job = submit(db, asked, now=database.now(db), queued_max=10)
                job.sqlmodel_update(fields)
                return job

        return await plan_answer(request, queue, prefer=prefer)

    return app


def _ask(app: FastAPI, prefer: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://lethe") as client:
            return await client.post(PATH, headers={"Prefer": prefer})

    return asyncio.run(ask())


def test_plan_that_is_made_is_the_answer(settings: Settings, database: Database) -> None:
    app = _build(settings, database, state=JobState.SUCCEEDED, result={"rows": 3})
    answer = _ask(app, "wait=5")
    assert (answer.status_code, answer.json()) == (200, {"rows": 3})
    assert answer.headers["preference-applied"] == "wait=5"


def test_plan_that_takes_longer_is_told_by_its_job(settings: Settings, database: Database) -> None:
    answer = _ask(_build(settings, database), "wait=0")
    job = answer.json()
    assert (answer.status_code, job["kind"], job["state"]) == (202, "PLAN", "QUEUED")
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert (answer.headers["etag"], answer.headers["retry-after"]) == ('"1"', "2")
    assert answer.headers["preference-applied"] == "wait=0"


@pytest.mark.parametrize(
    ("state", "error", "status", "code"),
    [
        (JobState.FAILED, GONE, 503, "TARGET_UNREACHABLE"),
        (JobState.FAILED, WRONG, 409, "TARGET_TABLES_MISSING"),
        (JobState.ABORTED, None, 409, "PLAN_ABORTED"),
    ],
)
def test_plan_that_was_not_made_is_a_problem_that_names_its_job(
    settings: Settings,
    database: Database,
    state: JobState,
    error: dict[str, Any] | None,
    status: int,
    code: str,
) -> None:
    answer = _ask(_build(settings, database, state=state, error=error), "wait=5")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["job_id"].startswith("job_")
    if error is not None:
        assert answer.json()["detail"] == error["detail"]


def test_negative_wait_is_refused_before_a_job_is_made(settings: Settings, database: Database) -> None:
    answer = _ask(_build(settings, database), "wait=-1")
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_HEADER")
    with database.reading() as db:
        assert db.exec(select(Job)).all() == []
