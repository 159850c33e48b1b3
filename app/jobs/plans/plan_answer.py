"""The answer of a request with `validate_only`: its plan, or the PLAN job where that takes longer."""

from collections.abc import Callable
from types import UnionType
from typing import Any, Final

from fastapi import Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from app.auth.access import clock_of, settings_of, tell_changed
from app.errors import Conflict, Unavailable
from app.jobs.api import job_headers, watch_of
from app.jobs.models import JobRead, read_job
from app.jobs.rows import Job
from app.jobs.states import TERMINAL, JobState
from app.jobs.streaming import wait_for_change
from app.kit.prefer import wait_seconds

RETRY_AFTER_S: Final = "5"


def plan_responses(plan: type[BaseModel] | UnionType) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of the 200 of an operation with `validate_only`."""
    return {200: {"model": plan, "description": "The plan (`validate_only`)"}}


async def plan_answer(request: Request, queue: Callable[[], Job], *, prefer: str | None) -> Response:
    """Queue a PLAN job and wait for its end, as long as the client prefers.

    Args:
        queue: submits the job in a transaction of its own and returns it committed; runs in a thread. What
            it raises is the answer.
        prefer: the header; without `wait=N` the wait is the one of the settings.
    Returns: 200 with the plan, or 202 with the job that is still at work.
    Raises:
        InvalidHeader: a negative wait; nothing is queued.
        Unavailable: the planning failed, and may succeed later.
        Conflict: it failed for good, or was aborted; `code` is the job's.
    Source: api.md, Plan.
    """
    settings = settings_of(request)
    wait_s = wait_seconds(prefer, default_s=settings.plan_wait_default_s, max_s=settings.wait_max_s)
    queued = await run_in_threadpool(_queued, request, queue)
    answer = _answer(*await wait_for_end(request, *queued, timeout_s=wait_s))
    if prefer is not None and "wait" in prefer:
        answer.headers["Preference-Applied"] = f"wait={wait_s}"
    return answer


def _queued(request: Request, queue: Callable[[], Job]) -> tuple[JobRead, int]:
    job = queue()
    tell_changed(request, job.id)
    return read_job(job), job.version


async def wait_for_end(
    request: Request, job: JobRead, version: int, *, timeout_s: float
) -> tuple[JobRead, int]:
    """The job as it ended, or as it is when the time is over or the service stops; and its row version."""
    clock, watch = clock_of(request), watch_of(request)
    deadline = clock.boottime_s() + timeout_s
    while job.state not in TERMINAL and not watch.is_closed:
        left_s = deadline - clock.boottime_s()
        if left_s <= 0:
            break
        job, version = await wait_for_change(watch, job, version, wait_for="state", timeout_s=left_s)
    return job, version


def _answer(job: JobRead, version: int) -> Response:
    if job.state == JobState.SUCCEEDED:
        return JSONResponse(job.result)
    if job.state in TERMINAL:
        error = job.error
        code = error.code if error else "PLAN_ABORTED"
        detail, extra = error.detail if error else "the plan was aborted", {"job_id": job.id}
        if error and error.retryable:
            raise Unavailable(detail, code=code, extra=extra, headers={"Retry-After": RETRY_AFTER_S})
        raise Conflict(detail, code=code, extra=extra)
    body = job.model_dump(mode="json")
    return JSONResponse(body, status_code=202, headers=job_headers(job.id, version))
