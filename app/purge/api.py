"""`/v1/stores/{s}/purges` and `/purge-stats`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from app.auth.access import ClockDep, DatabaseDep, SettingsDep, requires
from app.auth.mutation import Answer, IdempotencyKeyHeader, find_replay, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.errors import Conflict, Unavailable
from app.jobs.api import accepted, watch_of
from app.jobs.models import JobRead, read_job
from app.jobs.queries import JobFilter, list_jobs
from app.jobs.spark_service import SparkService
from app.jobs.states import TERMINAL, JobState
from app.jobs.streaming import wait_for_change
from app.kit.conditional import etag
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.prefer import PreferHeader, wait_seconds
from app.kit.problems import problems
from app.purge.cutoff import target_parameters
from app.purge.models import PurgePlanRead, PurgeRequest, PurgeStatsRead
from app.purge.queries import removed_and_params, stats_of
from app.purge.service import JOB_PURGE, prepare, submit_plan, submit_purge, target_fields
from app.purge.tick import list_ticks
from app.stores.api import StoreId, read_row
from app.stores.models import Store, StoreKind
from app.stores.service import get_store, note_target, require_kind

router = APIRouter(tags=["purges"])
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.PURGES_WRITE))]
StatsReader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
ValidateOnly = Annotated[bool, Query(description="Plan only; nothing is written to the target.")]

PLAN_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": PurgePlanRead, "description": "The plan (`validate_only`)"},
}


@router.post(
    "/v1/stores/{store_id}/purges",
    status_code=202,
    response_model=JobRead,
    summary="Purge a store, or plan to",
    operation_id="create_purge",
    responses=problems(404, 409, 412, 429, 502) | PLAN_RESPONSES,
)
async def post_purge(
    store_id: StoreId,
    body: PurgeRequest,
    request: Request,
    caller: Writer,
    settings: SettingsDep,
    prefer: PreferHeader = None,
    validate_only: ValidateOnly = False,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with the job. With `validate_only` the same checks and a plan: 200, or 202 with the PLAN job."""
    if not validate_only:
        return await run_in_threadpool(_purge, request, caller, store_id, body)
    wait_s = wait_seconds(prefer, default_s=settings.plan_wait_default_s, max_s=settings.wait_max_s)
    job, version = await run_in_threadpool(_queue_plan, request, caller, store_id, body)
    deadline = request.app.state.clock.boottime_s() + wait_s
    while job.state not in TERMINAL and not watch_of(request).is_closed:
        left_s = deadline - request.app.state.clock.boottime_s()
        if left_s <= 0:
            break
        job, version = await wait_for_change(
            watch_of(request), job, version, wait_for="state", timeout_s=left_s
        )
    answer = _plan_answer(job, version)
    if prefer is not None and "wait" in prefer:
        answer.headers["Preference-Applied"] = f"wait={wait_s}"
    return answer


def _plan_answer(job: JobRead, version: int) -> Response:
    if job.state == JobState.SUCCEEDED:
        return JSONResponse(job.result)
    if job.state in TERMINAL:
        error = job.error
        code = error.code if error else "PLAN_ABORTED"
        kind = Unavailable if error and error.retryable else Conflict
        raise kind(error.detail if error else "the plan was aborted", code=code, extra={"job_id": job.id})
    headers = {"Location": f"/v1/jobs/{job.id}", "ETag": etag(version), "Retry-After": "2"}
    return JSONResponse(job.model_dump(mode="json"), status_code=202, headers=headers)


def _queue_plan(request: Request, caller: Caller, store_id: str, body: PurgeRequest) -> tuple[JobRead, int]:
    database: Database = request.app.state.database
    settings, clock = request.app.state.settings, request.app.state.clock
    store = read_row(database, store_id, caller)
    params, _ = prepare(database, store, body, settings=settings, now=clock.now(), for_write=False)
    with database.transaction() as db:
        job = submit_plan(db, store, params, caller=caller, settings=settings, now=clock.now())
    request.app.state.changed(job.id)
    return read_job(job), job.version


def _purge(request: Request, caller: Caller, store_id: str, body: PurgeRequest) -> Response:
    replay = find_replay(request, caller, body=body)
    if replay is not None:
        return replay
    database: Database = request.app.state.database
    settings, clock = request.app.state.settings, request.app.state.clock
    store = read_row(database, store_id, caller)
    params, look = prepare(database, store, body, settings=settings, now=clock.now(), for_write=True)
    spark: SparkService | None = request.app.state.spark
    if body.engine == "SPARK" and spark is not None:
        spark.check_room()

    def effect(db: Session) -> Answer:
        _same_target(get_store(db, store_id, lock=True), store)
        if look.inspection is not None:
            found = look.inspection
            note_target(
                db,
                store_id,
                store,
                identity=found.identity,
                parameters=target_parameters(found),
                now=clock.now(),
            )
        job = submit_purge(
            db,
            get_store(db, store_id),
            params,
            look,
            caller=caller,
            reason=body.reason,
            settings=settings,
            now=clock.now(),
        )
        answer = accepted(job)
        return Answer(
            body=answer.body,
            status=answer.status,
            headers=answer.headers,
            subject_id=job.id,
            audit={"kind": body.kind, "plan_id": body.plan_id, "reason": body.reason, "force": body.force},
        )

    response = mutate(
        request, caller, effect, action="purge.create", subject=("job", ""), store=store_id, body=body
    )
    request.app.state.changed(store_id)
    return response


def _same_target(current: Store, seen: Store) -> None:
    """The store must be what was looked at a moment ago."""
    if target_fields(current) != target_fields(seen):
        raise Conflict("the store has changed meanwhile; try again", code="STORE_CHANGED")


@router.get(
    "/v1/stores/{store_id}/purges",
    response_model=Page[JobRead],
    summary="List a store's purges",
    operation_id="list_purges",
    responses=problems(404),
)
def get_purges(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    state: Annotated[list[JobState], Query(max_length=20)] = [],  # noqa: B006
) -> Page[JobRead]:
    """The jobs that purge this store, newest first."""
    read_row(database, store_id, caller)
    wanted = JobFilter(states=state, kinds=[JOB_PURGE], stores=[store_id])
    with database.reading() as db:
        return list_jobs(db, wanted, page_size=page_size, page_token=page_token)


@router.get(
    "/v1/stores/{store_id}/purge-stats",
    response_model=PurgeStatsRead,
    summary="What a store still holds",
    operation_id="get_purge_stats",
    responses=problems(404, 409, 502),
)
def get_purge_stats(
    store_id: StoreId, caller: StatsReader, database: DatabaseDep, settings: SettingsDep, clock: ClockDep
) -> PurgeStatsRead:
    """Per table: removed by Lethe, the oldest row left, its lag behind the retention; and the next ticks.

    Asks the target.
    """
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.SYMMETRICDS)
    with database.reading() as db:
        removed, params = removed_and_params(db, store)
        ticks = list_ticks(db, store, now=clock.now())
    return stats_of(store, settings, removed=removed, params=params, ticks=ticks)
