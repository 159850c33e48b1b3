"""`/v1/jobs`: every running thing, live."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Path, Query, Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response, StreamingResponse

from app.auth.access import (
    ClockDep,
    Condition,
    DatabaseDep,
    SettingsDep,
    clock_of,
    database_of,
    is_still_good,
    requires,
    requires_unlimited,
    settings_of,
    tell_changed,
)
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.rows import StoreName
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.jobs.again import retry
from app.jobs.hidden import page_seen_by, require_sight, require_source, seen_by, visible_job
from app.jobs.models import InstanceRead, JobAction, JobEventRead, JobRead, JobSummary, read_job
from app.jobs.queries import (
    JobFilter,
    last_events,
    list_events,
    list_instances,
    list_jobs,
    list_summaries,
    look_at_job,
    look_at_use,
)
from app.jobs.rows import Job
from app.jobs.service import request_abort, request_pause, request_resume
from app.jobs.states import HELD, TERMINAL, JobState
from app.jobs.streaming import resume_point, stream_events, wait_for_change
from app.jobs.watch import JobWatch
from app.kit.conditional import IfNoneMatch, conditional_answer, etag, is_current, shown
from app.kit.http.at_once import at_once
from app.kit.http.routing import new_router
from app.kit.http.sse import CONTENT_TYPE, HEADERS
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.prefer import PreferHeader, wait_seconds
from app.kit.problems import problems
from app.kit.values import Instant, Text

router = new_router(tags=["jobs"])
JobId = Annotated[str, Path(pattern=r"^job_[0-9a-z]{26}$")]
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]
Controller = Annotated[Caller, Depends(requires(Scope.JOBS_CONTROL))]
STARTING = frozenset(
    {
        Scope.DATA_READ,
        Scope.PURGES_WRITE,
        Scope.ERASURE_WRITE,
        Scope.EXTINCTIONS_WRITE,
        Scope.REPLICATION_WRITE,
        Scope.EVENTS_WRITE,
        Scope.EVENTS_WAIT,
        Scope.EVIDENCE_VERIFY,
        Scope.STORES_WRITE,
        Scope.ADMIN,
    }
)
"""What requests need that make jobs."""
AGAIN = tuple(Condition(scope, "the request that made the job needed it") for scope in sorted(STARTING))
Starter = Annotated[Caller, Depends(requires(Scope.JOBS_CONTROL, *AGAIN))]
Overseer = Annotated[Caller, Depends(requires_unlimited(Scope.JOBS_READ))]
RETRY_AFTER_S = "2"
ScopesOf = Callable[[str, Mapping[str, Any]], frozenset[Scope]]


def watch_of(request: Request) -> JobWatch:
    """The watch of this application."""
    watch: JobWatch = request.app.state.watch
    return watch


WatchDep = Annotated[JobWatch, Depends(at_once(watch_of))]


def accepted(job: Job, *, status: int = 202) -> Answer:
    """The answer that every asynchronous request gives."""
    headers = job_headers(job.id, job.version, status=status)
    return Answer(body=read_job(job), status=status, headers=headers, subject_id=job.id, store=job.store)


def job_headers(job_id: str, version: int, *, status: int = 202) -> dict[str, str]:
    """Where a job is, its row version and, with a 202, in how many seconds to look again."""
    headers = {"Location": f"/v1/jobs/{job_id}", "ETag": etag(version)}
    if status == 202:
        headers["Retry-After"] = RETRY_AFTER_S
    return headers


async def _read(database: Database, job_id: str, caller: Caller) -> tuple[JobRead, int]:
    job = await look_at_job(database, job_id)
    require_sight(job, caller)
    shown = read_job(job)
    shown.spark = await look_at_use(database, job)
    return shown, job.version


@router.get(
    "/v1/jobs",
    response_model=Page[JobRead] | Page[JobSummary],
    summary="List jobs",
    operation_id="list_jobs",
    responses=problems(),
)
def get_jobs(
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    state: Annotated[list[JobState], Query(max_length=20)] = [],  # noqa: B006
    kind: Annotated[list[Text], Query(max_length=20)] = [],  # noqa: B006
    store: Annotated[list[StoreName], Query(max_length=100)] = [],  # noqa: B006
    parent: Annotated[Text | None, Query(max_length=40)] = None,
    created_after: Annotated[Instant | None, Query()] = None,
    ended_after: Annotated[Instant | None, Query()] = None,
    view: Annotated[
        Literal["full", "summary"], Query(description="`summary` leaves parameters and results out.")
    ] = "full",
) -> Response:
    """Jobs, newest first; a token limited to stores sees theirs."""
    wanted = JobFilter(
        states=state,
        kinds=kind,
        stores=store,
        parent_id=parent,
        created_after=created_after,
        ended_after=ended_after,
        visible_stores=caller.visible_stores(),
    )
    with database.reading() as db:
        if view == "summary":
            return shown(list_summaries(db, wanted, page_size=page_size, page_token=page_token))
        found = list_jobs(db, wanted, page_size=page_size, page_token=page_token)
    return shown(page_seen_by(caller, found))


@router.get(
    "/v1/jobs/{job_id}",
    response_model=JobRead,
    summary="Get a job, or wait for it",
    operation_id="get_job",
    responses=problems(404, 429) | {304: {"description": "Still the version of If-None-Match"}},
)
async def get_one_job(
    job_id: JobId,
    request: Request,
    caller: Reader,
    prefer: PreferHeader = None,
    if_none_match: IfNoneMatch = None,
    wait_for: Annotated[Literal["state", "progress"], Query()] = "state",
) -> Response:
    """With `Prefer: wait=N` it answers when the job's state (or progress) changes, or after N seconds.

    With If-None-Match it answers at once when the job is not that version any more.
    """
    wait_s = wait_seconds(prefer, default_s=0, max_s=settings_of(request).wait_max_s)
    job, version = await _read(database_of(request), job_id, caller)
    is_news = if_none_match is not None and not is_current(if_none_match, version)
    if wait_s > 0 and job.state not in TERMINAL and not is_news:
        job, version = await wait_for_change(
            watch_of(request), job, version, wait_for=wait_for, timeout_s=wait_s
        )
        job = job.model_copy(update={"spark": await look_at_use(database_of(request), job)})
    applied = {"Preference-Applied": f"wait={wait_s}"} if prefer is not None and wait_s > 0 else {}
    return conditional_answer(seen_by(caller, job), version, if_none_match, headers=applied)


def _require_start(request: Request, caller: Caller, job: Job) -> None:
    """Refuse to start a job again to a token that could not have made it.

    Raises: ScopeMissing, StoreForbidden, JobKindUnknown.
    """
    scopes_of: ScopesOf = request.app.state.scopes_of
    for scope in sorted(scopes_of(job.kind, job.params)):
        caller.require(scope)
    require_source(job.kind, job.params, caller)


def _act(
    request: Request, caller: Caller, job_id: str, body: JobAction | None, verb: str, act: Callable[..., Job]
) -> Response:
    reason = body.reason if body else None

    def effect(db: Session) -> Answer:
        job = visible_job(db, job_id, caller)
        if verb == "resume":
            _require_start(request, caller, job)
        clock = clock_of(request)
        job = act(db, job_id, now=clock.now(), actor=caller.name, reason=reason)
        passing = job.state in HELD and verb != "resume"
        return replace(accepted(job, status=202 if passing else 200), audit={"reason": reason})

    response = mutate(
        request,
        caller,
        effect,
        action=Action(f"job.{verb}"),
        subject=("job", job_id),
        body={"reason": reason},
    )
    tell_changed(request, job_id)
    return response


@router.post(
    "/v1/jobs/{job_id}:pause",
    response_model=JobRead,
    summary="Pause a job",
    operation_id="pause_job",
    responses=problems(404, 409)
    | {202: {"model": JobRead, "description": "PAUSING: the unit in work ends first"}},
)
def post_pause(
    job_id: JobId,
    request: Request,
    caller: Controller,
    body: JobAction | None = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """PAUSED is said only when nothing of the job runs at its target any more."""
    return _act(request, caller, job_id, body, "pause", request_pause)


@router.post(
    "/v1/jobs/{job_id}:resume",
    response_model=JobRead,
    summary="Resume a paused job",
    operation_id="resume_job",
    responses=problems(404, 409),
)
def post_resume(
    job_id: JobId,
    request: Request,
    caller: Starter,
    body: JobAction | None = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """It is queued again and goes on from its checkpoints; one that is still PAUSING is not paused.

    It needs the scopes of the request that made the job, besides `jobs:control`, as `:retry` does.
    """
    return _act(request, caller, job_id, body, "resume", request_resume)


@router.post(
    "/v1/jobs/{job_id}:abort",
    response_model=JobRead,
    summary="Abort a job",
    operation_id="abort_job",
    responses=problems(404, 409)
    | {202: {"model": JobRead, "description": "ABORTING: silence is being proved"}},
)
def post_abort(
    job_id: JobId,
    request: Request,
    caller: Controller,
    body: JobAction | None = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """ABORTED is said only when nothing is being written any more."""
    return _act(request, caller, job_id, body, "abort", request_abort)


@router.post(
    "/v1/jobs/{job_id}:retry",
    status_code=202,
    response_model=JobRead,
    summary="Retry a failed, aborted or abandoned job",
    operation_id="retry_job",
    responses=problems(404, 409, 429),
)
def post_retry(
    job_id: JobId,
    request: Request,
    caller: Starter,
    clock: ClockDep,
    settings: SettingsDep,
    body: JobAction | None = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Makes a new job with the same parameters and `retried_from`.

    It needs the scopes of the request that made the job, besides `jobs:control`. Its reason is that of the
    new job and, of a parent, of its children; without one each has that of the former job.
    """
    reason = body.reason if body else None

    def effect(db: Session) -> Answer:
        _require_start(request, caller, visible_job(db, job_id, caller))
        job = retry(
            db,
            job_id,
            now=clock.now(),
            actor=caller.name,
            token_id=caller.token_id,
            queued_max=settings.jobs_queued_max,
            reason=reason,
        )
        return replace(accepted(job), audit={"reason": reason})

    # No body is an empty one: a client that asks again may send either.
    said, subject = body or JobAction(), ("job", job_id)
    response = mutate(request, caller, effect, action=Action.JOB_RETRY, subject=subject, body=said)
    tell_changed(request, job_id)
    return response


@router.get(
    "/v1/jobs/{job_id}/events",
    response_model=Page[JobEventRead],
    summary="Follow or list a job's events",
    operation_id="get_job_events",
    responses=problems(404, 429)
    | {
        200: {"content": {CONTENT_TYPE: {"schema": {"type": "string"}}}, "description": "A page, or a stream"}
    },
)
async def get_events(
    job_id: JobId,
    request: Request,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
    watch: WatchDep,
    accept: Annotated[str, Header()] = "application/json",
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    last: Annotated[int | None, Query(ge=1, le=200, description="Only so many, the newest.")] = None,
    type: Annotated[list[Text], Query(max_length=10, description="With `last`: only these.")] = [],  # noqa: B006
) -> Response:
    """`Accept: text/event-stream` streams to the job's end, after Last-Event-ID; else a JSON page."""
    job, _ = await _read(database, job_id, caller)
    if CONTENT_TYPE in accept:
        frames = stream_events(
            watch,
            database,
            job,
            after=resume_point(last_event_id),
            keepalive_s=settings.sse_keepalive_s,
            is_good=partial(is_still_good, request, caller),
        )
        return StreamingResponse(frames, media_type=CONTENT_TYPE, headers=HEADERS)

    def page() -> Page[JobEventRead]:
        with database.reading() as db:
            if last is not None:
                return last_events(db, job_id, number=last, types=type)
            return list_events(db, job_id, page_size=page_size, page_token=page_token)

    return JSONResponse((await run_in_threadpool(page)).model_dump(mode="json"))


@router.get(
    "/v1/instances",
    response_model=Page[InstanceRead],
    summary="List the processes that run jobs",
    operation_id="list_instances",
    responses=problems(),
)
def get_instances(
    caller: Overseer,
    database: DatabaseDep,
    settings: SettingsDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[InstanceRead]:
    """Newest first; `alive` means a heartbeat within the lease time."""
    with database.reading() as db:
        return list_instances(
            db,
            now=database.now(db),
            alive_within_s=settings.lease_ttl_s,
            page_size=page_size,
            page_token=page_token,
        )
