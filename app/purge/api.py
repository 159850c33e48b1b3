"""`/v1/stores/{s}/purges` and `/purge-stats`."""

from functools import partial
from typing import Annotated

from fastapi import Depends, Query, Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.auth.access import (
    ClockDep,
    DatabaseDep,
    SettingsDep,
    clock_of,
    database_of,
    requires,
    settings_of,
)
from app.auth.actions import Action
from app.auth.mutation import IdempotencyKeyHeader, find_replay
from app.auth.scopes import Scope
from app.auth.service import Caller
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
from app.purge.models import AnyPurgePlan, PurgeRequest, PurgeStatsRead
from app.purge.queries import removed_and_params, stats_of
from app.purge.service import target_fields
from app.purge.tick import list_ticks
from app.stores.api import StoreId, read_row
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import lock_unchanged, require_kind
from app.sweeps.purging import JOB_PURGE, Looked, Purgings, check_fields, submit_looked

router = new_router(tags=["purges"])
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.PURGES_WRITE))]
StatsReader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
ValidateOnly = Annotated[bool, Query(description="Plan only; nothing is written to the target.")]


@router.post(
    "/v1/stores/{store_id}/purges",
    status_code=202,
    response_model=JobRead,
    summary="Purge a store, or plan to",
    operation_id="create_purge",
    responses=problems(404, 409, 412, 429, 502) | plan_responses(AnyPurgePlan),
)
async def post_purge(
    store_id: StoreId,
    body: PurgeRequest,
    request: Request,
    caller: Writer,
    prefer: PreferHeader = None,
    validate_only: ValidateOnly = False,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with the job. With `validate_only` the same checks and a plan: 200, or 202 with the PLAN job."""
    if not validate_only:
        return await run_in_threadpool(_purge, request, caller, store_id, body)
    queue = partial(_queue_plan, request, caller, store_id, body)
    return await plan_answer(request, queue, prefer=prefer)


def _look(request: Request, store: Store, body: PurgeRequest, *, for_write: bool) -> Looked:
    """Check a request, and look at its target.

    Raises: ServiceError.
    """
    purgings: Purgings = request.app.state.purgings
    purging = purgings[body.kind]
    require_kind(store, purging.store_kind)
    check_fields(purgings, body.kind, body.model_fields_set)
    return purging.look(
        database_of(request),
        store,
        body.model_dump(mode="json", exclude_unset=True),
        settings=settings_of(request),
        now=clock_of(request).now(),
        for_write=for_write,
    )


def _queue_plan(request: Request, caller: Caller, store_id: str, body: PurgeRequest) -> Job:
    database, settings, clock = database_of(request), settings_of(request), clock_of(request)
    store = read_row(database, store_id, caller)
    looked = _look(request, store, body, for_write=False)
    with database.transaction() as db:
        return submit_plan(db, store, looked.params, caller=caller, settings=settings, now=clock.now())


def _purge(request: Request, caller: Caller, store_id: str, body: PurgeRequest) -> Response:
    """Check, look, submit."""
    replay = find_replay(request, caller, body=body)
    if replay is not None:
        return replay
    store = read_row(database_of(request), store_id, caller)
    looked = _look(request, store, body, for_write=True)
    check_room(request, body.engine)

    def queue(db: Session) -> Job:
        return submit_looked(
            db,
            lock_unchanged(db, store, target_fields),
            looked,
            caller=caller,
            reason=body.reason,
            settings=settings_of(request),
            now=clock_of(request).now(),
        )

    audit = {"kind": body.kind, "plan_id": body.plan_id, "reason": body.reason, "force": body.force}
    return job_answer(
        request, caller, queue, action=Action.PURGE_CREATE, store_id=store_id, body=body, audit=audit
    )


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
    store = read_row(database, store_id, caller)
    return list_jobs_of(database, store, JOB_PURGE, states=state, page_size=page_size, page_token=page_token)


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
    return stats_of(store, settings, database, removed=removed, params=params, ticks=ticks)
