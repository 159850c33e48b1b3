"""`/v1/stores/{s}/events:wait`: wait until an event is confirmed."""

from typing import Annotated

from fastapi import Depends, Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from app.auth.access import SettingsDep, database_of, requires, settings_of
from app.auth.actions import Action
from app.auth.mutation import IdempotencyKeyHeader, find_replay
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import TooMany
from app.events.waits.models import WaitRequest
from app.events.waits.service import check_request, prepare_wait, submit_wait
from app.jobs.api import job_headers
from app.jobs.job_answer import job_answer
from app.jobs.models import JobRead, read_job
from app.jobs.plans.plan_answer import wait_for_end
from app.jobs.queries import get_job
from app.jobs.rows import Job
from app.jobs.states import TERMINAL
from app.kit.http.routing import new_router
from app.kit.prefer import PreferHeader, wait_seconds
from app.kit.problems import problems
from app.stores.api import StoreId, read_row
from app.stores.rows import StoreKind
from app.stores.service import get_store, require_kind

router = new_router(tags=["events"])
Waiter = Annotated[Caller, Depends(requires(Scope.EVENTS_WAIT))]
JOBS = "/v1/jobs/"


@router.post(
    "/v1/stores/{store_id}/events:wait",
    status_code=202,
    response_model=JobRead,
    summary="Wait until events are confirmed",
    operation_id="wait_for_event",
    responses=problems(404, 409, 429, 502, 503)
    | {200: {"model": JobRead, "description": "The job has ended within `Prefer: wait=N`"}},
)
async def post_wait(
    store_id: StoreId,
    body: WaitRequest,
    request: Request,
    caller: Waiter,
    settings: SettingsDep,
    prefer: PreferHeader = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with a job; with `Prefer: wait=N` 200 with the job as it ended, if it did within N seconds.

    SUCCEEDED: every active receiver has a confirmation that is new enough; FAILED WAIT_TIMEOUT: not all had
    one in time. The job tells every ten seconds who is outstanding, as its event `outstanding`. Nothing is
    changed at the target.
    """
    wait_s = wait_seconds(prefer, default_s=0, max_s=settings.wait_max_s)
    check_request(body, wait_s=wait_s)
    submitted = await run_in_threadpool(_submitted, request, caller, store_id, body)
    if wait_s == 0 or submitted.status_code != 202:
        return submitted
    job, version = await _waited(request, submitted.headers["Location"].removeprefix(JOBS), wait_s)
    status = 200 if job.state in TERMINAL else 202
    headers = job_headers(job.id, version, status=status) | {"Preference-Applied": f"wait={wait_s}"}
    if replayed := submitted.headers.get("Idempotency-Replayed"):
        headers["Idempotency-Replayed"] = replayed
    return JSONResponse(job.model_dump(mode="json"), status_code=status, headers=headers)


def _submitted(request: Request, caller: Caller, store_id: str, body: WaitRequest) -> Response:
    """The job in a transaction of its own, and its 202; a repeated request gets that of its key."""
    database, settings = database_of(request), settings_of(request)
    replay = find_replay(request, caller, body=body)
    if replay is not None:
        return replay
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.SLONY)
    prepared = prepare_wait(database, settings, store, body, caller=caller)

    def queue(db: Session) -> Job:
        return submit_wait(
            db,
            get_store(db, store_id),
            prepared,
            reason=body.reason,
            caller=caller,
            settings=settings,
            now=database.now(db),
        )

    return job_answer(request, caller, queue, action=Action.EVENT_WAIT, store_id=store_id, body=body)


async def _waited(request: Request, job_id: str, wait_s: int) -> tuple[JobRead, int]:
    """The job as it ended, or as it is when the time is over, the service stops, or too many wait already."""

    def read() -> tuple[JobRead, int]:
        with database_of(request).reading() as db:
            job = get_job(db, job_id)
            return read_job(job), job.version

    job, version = await run_in_threadpool(read)
    try:
        return await wait_for_end(request, job, version, timeout_s=wait_s)
    except TooMany:  # the job is there, and whoever asked may look at it
        return job, version
