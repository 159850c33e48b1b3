"""`/v1/stores/{s}/purges` and `/purge-stats`."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.auth.access import ClockDep, DatabaseDep, SettingsDep, requires
from app.auth.actions import Action
from app.auth.mutation import IdempotencyKeyHeader, find_replay
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.jobs.engines.spark_api import check_room
from app.jobs.job_answer import job_answer
from app.jobs.models import JobRead
from app.jobs.plans.plan_answer import plan_answer, plan_responses
from app.jobs.plans.plans import submit_plan
from app.jobs.queries import list_jobs_of
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.prefer import PreferHeader
from app.kit.problems import problems
from app.purge.cutoff import target_parameters
from app.purge.models import PurgeKind, PurgePlanRead, PurgeRequest, PurgeStatsRead
from app.purge.queries import removed_and_params, stats_of
from app.purge.service import check_fields, prepare, submit_purge, target_fields
from app.purge.tick import list_ticks
from app.stores.api import StoreId, read_row
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import lock_unchanged, note_target, require_kind
from app.sweeps.purging import JOB_PURGE, ChangelogPlanRead, Trimming

router = APIRouter(tags=["purges"])
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.PURGES_WRITE))]
StatsReader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
ValidateOnly = Annotated[bool, Query(description="Plan only; nothing is written to the target.")]
Submit = Callable[[Session, Store], Job]
"""Queues a request that has been looked at, in a transaction of the metadata that holds the store."""


@router.post(
    "/v1/stores/{store_id}/purges",
    status_code=202,
    response_model=JobRead,
    summary="Purge a store, or plan to",
    operation_id="create_purge",
    responses=problems(404, 409, 412, 429, 502) | plan_responses(PurgePlanRead | ChangelogPlanRead),
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


def _queue_plan(request: Request, caller: Caller, store_id: str, body: PurgeRequest) -> Job:
    database: Database = request.app.state.database
    settings, clock = request.app.state.settings, request.app.state.clock
    store = read_row(database, store_id, caller)
    params: BaseModel
    if body.kind is PurgeKind.CHANGELOG:
        params = _prepare_trimming(request, store, body, for_write=False)
    else:
        params, _ = prepare(database, store, body, settings=settings, now=clock.now(), for_write=False)
    with database.transaction() as db:
        return submit_plan(db, store, params, caller=caller, settings=settings, now=clock.now())


def _purge(request: Request, caller: Caller, store_id: str, body: PurgeRequest) -> Response:
    replay = find_replay(request, caller, body=body)
    if replay is not None:
        return replay
    database: Database = request.app.state.database
    store = read_row(database, store_id, caller)
    looked_at = _look_at_changelog if body.kind is PurgeKind.CHANGELOG else _look_at
    submit = looked_at(request, caller, store, body)

    def queue(db: Session) -> Job:
        return submit(db, lock_unchanged(db, store, target_fields))

    audit = {"kind": body.kind, "plan_id": body.plan_id, "reason": body.reason, "force": body.force}
    return job_answer(
        request, caller, queue, action=Action.PURGE_CREATE, store_id=store_id, body=body, audit=audit
    )


def _look_at(request: Request, caller: Caller, store: Store, body: PurgeRequest) -> Submit:
    database: Database = request.app.state.database
    settings, clock = request.app.state.settings, request.app.state.clock
    params, look = prepare(database, store, body, settings=settings, now=clock.now(), for_write=True)
    check_room(request, body.engine)

    def submit(db: Session, current: Store) -> Job:
        if look.inspection is not None:
            found = look.inspection
            note_target(
                db,
                store.id,
                store,
                identity=found.identity,
                parameters=target_parameters(found),
                now=clock.now(),
            )
        return submit_purge(
            db,
            current,
            params,
            look,
            caller=caller,
            reason=body.reason,
            settings=settings,
            now=clock.now(),
        )

    return submit


def _look_at_changelog(request: Request, caller: Caller, store: Store, body: PurgeRequest) -> Submit:
    trimming: Trimming = request.app.state.trimming
    params = _prepare_trimming(request, store, body, for_write=True)

    def submit(db: Session, current: Store) -> Job:
        return trimming.submit(
            db,
            current,
            params,
            caller=caller,
            reason=body.reason,
            settings=request.app.state.settings,
            now=request.app.state.clock.now(),
        )

    return submit


def _prepare_trimming(request: Request, store: Store, body: PurgeRequest, *, for_write: bool) -> BaseModel:
    """Hand a request on to the domain that trims changelogs."""
    trimming: Trimming = request.app.state.trimming
    require_kind(store, StoreKind.REPLICA)
    check_fields(body)
    return trimming.prepare(
        request.app.state.database,
        store,
        body.model_dump(mode="json", exclude_unset=True),
        settings=request.app.state.settings,
        now=request.app.state.clock.now(),
        for_write=for_write,
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
