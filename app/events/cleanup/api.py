"""`/v1/stores/{s}/event-cleanups`."""

from functools import partial
from typing import Annotated

from fastapi import Depends, Query, Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.auth.access import ClockDep, DatabaseDep, clock_of, database_of, requires, settings_of
from app.auth.actions import Action
from app.auth.mutation import IdempotencyKeyHeader, find_replay
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.events.cleanup.models import JOB_CLEANUP, CleanupPlanRead, CleanupRequest
from app.events.cleanup.service import prepare, submit_cleanup, target_fields
from app.events.cleanup.tick import CleanupTickRead, read_tick
from app.jobs.engines.spark_api import check_room
from app.jobs.job_answer import job_answer
from app.jobs.models import JobRead
from app.jobs.plans.plan_answer import plan_answer, plan_responses
from app.jobs.plans.plans import submit_plan
from app.jobs.queries import list_jobs_of
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.prefer import PreferHeader
from app.kit.problems import problems
from app.stores.api import StoreId, read_row
from app.stores.rows import StoreKind
from app.stores.service import lock_unchanged, require_kind

router = new_router(tags=["events"])
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.EVENTS_WRITE))]
StoreReader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
ValidateOnly = Annotated[bool, Query(description="Plan only; nothing is written to the target.")]


@router.post(
    "/v1/stores/{store_id}/event-cleanups",
    status_code=202,
    response_model=JobRead,
    summary="Remove the events that every node has confirmed, or plan to",
    operation_id="create_event_cleanup",
    responses=problems(404, 409, 412, 429, 502) | plan_responses(CleanupPlanRead),
)
async def post_cleanup(
    store_id: StoreId,
    body: CleanupRequest,
    request: Request,
    caller: Writer,
    prefer: PreferHeader = None,
    validate_only: ValidateOnly = False,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with the job. With `validate_only` the same checks and a plan: 200, or 202 with the PLAN job.

    Of each origin the newest SYNC that all receivers have confirmed stays, and everything above it: what the
    cluster's own cleanup keeps, and what a log switch needs.
    """
    if not validate_only:
        return await run_in_threadpool(_clean, request, caller, store_id, body)
    queue = partial(_queue_plan, request, caller, store_id, body)
    return await plan_answer(request, queue, prefer=prefer)


def _queue_plan(request: Request, caller: Caller, store_id: str, body: CleanupRequest) -> Job:
    database = database_of(request)
    settings, clock = settings_of(request), clock_of(request)
    store = read_row(database, store_id, caller)
    params, _ = prepare(database, store, body, settings=settings, now=clock.now(), for_write=False)
    with database.transaction() as db:
        return submit_plan(db, store, params, caller=caller, settings=settings, now=clock.now())


def _clean(request: Request, caller: Caller, store_id: str, body: CleanupRequest) -> Response:
    replay = find_replay(request, caller, body=body)
    if replay is not None:
        return replay
    database = database_of(request)
    settings, clock = settings_of(request), clock_of(request)
    store = read_row(database, store_id, caller)
    params, look = prepare(database, store, body, settings=settings, now=clock.now(), for_write=True)
    check_room(request, body.engine)

    def queue(db: Session) -> Job:
        found = lock_unchanged(db, store, target_fields)
        return submit_cleanup(
            db, found, params, look, caller=caller, reason=body.reason, settings=settings, now=clock.now()
        )

    audit = {"via": body.via, "rule": body.rule, "plan_id": body.plan_id, "reason": body.reason}
    return job_answer(
        request, caller, queue, action=Action.EVENT_CLEANUP_CREATE, store_id=store_id, body=body, audit=audit
    )


@router.get(
    "/v1/stores/{store_id}/event-cleanups",
    response_model=Page[JobRead],
    summary="List a store's event cleanups",
    operation_id="list_event_cleanups",
    responses=problems(404),
)
def get_cleanups(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    state: Annotated[list[JobState], Query(max_length=20)] = [],  # noqa: B006
) -> Page[JobRead]:
    """The jobs that clean this store's events, newest first."""
    store = read_row(database, store_id, caller)
    return list_jobs_of(
        database, store, JOB_CLEANUP, states=state, page_size=page_size, page_token=page_token
    )


@router.get(
    "/v1/stores/{store_id}/event-cleanups/recurring",
    response_model=CleanupTickRead | None,
    summary="Get the cleanup that Lethe submits by itself",
    operation_id="get_recurring_event_cleanup",
    responses=problems(404, 409),
)
def get_recurring(
    store_id: StoreId, caller: StoreReader, database: DatabaseDep, clock: ClockDep
) -> CleanupTickRead | None:
    """When the next one comes, and what became of the last; null: `start.cleanup_thread` is off."""
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.SLONY)
    with database.reading() as db:
        return read_tick(db, store, now=clock.now())
