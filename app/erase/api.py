"""`/v1/stores/{s}/erasure-cycles` and `/log-entries`."""

from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import Depends, Path, Query, Request
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
    tell_changed,
)
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, find_replay, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.erase.entries import read_log_entry
from app.erase.models import (
    CycleFileRead,
    CycleRead,
    CycleRequest,
    ErasurePlanRead,
    LogEntryRead,
    StatsRead,
)
from app.erase.queries import get_cycle, list_cycles, list_files, newest_cycle, read_cycle
from app.erase.reviewed import check_early, find_plan
from app.erase.rows import CycleState, FileState
from app.erase.service import (
    directory_of,
    look_early,
    params_of,
    submit_cycle,
    target_of,
)
from app.erase.stats import stats_of_store
from app.jobs.api import accepted
from app.jobs.engines.choice import check_engine
from app.jobs.engines.spark_api import check_room
from app.jobs.models import JobRead
from app.jobs.plans.plan_answer import plan_answer, plan_responses
from app.jobs.plans.plans import submit_plan
from app.jobs.rows import Job
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.prefer import PreferHeader
from app.kit.problems import problems
from app.stores.api import StoreId, read_row
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import lock_unchanged, require_kind

router = new_router(tags=["erasure"])
CycleId = Annotated[
    str, Path(pattern=r"^(cyc_[0-9a-z]{26}|current)$", description="`current` is the newest cycle.")
]
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
StoreReader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.ERASURE_WRITE))]
ValidateOnly = Annotated[bool, Query(description="Plan only; nothing is written.")]
LogFile = Annotated[str, Path(pattern=r"^[0-7][0-9a-f]{7}\.jdb$")]
Offset = Annotated[int, Path(ge=0, le=0xFFFFFFFF)]


@router.post(
    "/v1/stores/{store_id}/erasure-cycles",
    status_code=202,
    response_model=JobRead,
    summary="Begin an erasure cycle, or plan one",
    operation_id="create_erasure_cycle",
    responses=problems(404, 409, 412, 429) | plan_responses(ErasurePlanRead),
)
async def post_cycle(
    store_id: StoreId,
    body: CycleRequest,
    request: Request,
    caller: Writer,
    prefer: PreferHeader = None,
    validate_only: ValidateOnly = False,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with the job, whose subject is the cycle. With `validate_only` a plan: 200, or 202 with its job."""
    if not validate_only:
        return await run_in_threadpool(_begin, request, caller, store_id, body)
    queue = partial(_queue_plan, request, caller, store_id, body)
    return await plan_answer(request, queue, prefer=prefer)


def _queue_plan(request: Request, caller: Caller, store_id: str, body: CycleRequest) -> Job:
    database = database_of(request)
    settings, clock = settings_of(request), clock_of(request)
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.JE)
    check_engine(body.engine, settings)
    look_early(store, settings)
    with database.transaction() as db:
        params = params_of(db, store, body, is_plan=True)
        return submit_plan(db, store, params, caller=caller, settings=settings, now=clock.now())


def _begin(request: Request, caller: Caller, store_id: str, body: CycleRequest) -> Response:
    replay = find_replay(request, caller, body=body)
    if replay is not None:
        return replay
    database = database_of(request)
    settings, clock = settings_of(request), clock_of(request)
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.JE)
    check_engine(body.engine, settings)
    identity = look_early(store, settings)
    with database.reading() as db:
        reviewed = find_plan(db, store, body, now=clock.now())
    if reviewed is not None and identity is not None:
        check_early(database, reviewed, directory_of(store, settings), max_drift=body.max_drift)
    check_room(request, body.engine)

    def effect(db: Session) -> Answer:
        current = lock_unchanged(db, store, target_of)
        job, cycle = submit_cycle(
            db,
            current,
            params_of(db, current, body, reviewed=reviewed),
            identity=identity,
            caller=caller,
            reason=body.reason,
            settings=settings,
            now=clock.now(),
        )
        audit = {"erasure_cycle_id": cycle.id, "reason": body.reason, "kinds": cycle.kinds}
        audit |= {"plan_id": body.plan_id} if body.plan_id else {}
        return replace(accepted(job), subject_id=cycle.id, audit=audit)

    response = mutate(
        request,
        caller,
        effect,
        action=Action.ERASURE_CYCLE_CREATE,
        subject=("erasure-cycle", ""),
        store=store_id,
        body=body,
    )
    tell_changed(request, store_id)
    return response


def _je_store(database: Database, store_id: str, caller: Caller) -> Store:
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.JE)
    return store


@router.get(
    "/v1/stores/{store_id}/erasure-cycles",
    response_model=Page[CycleRead],
    summary="List a store's erasure cycles",
    operation_id="list_erasure_cycles",
    responses=problems(404, 409),
)
def get_cycles(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    clock: ClockDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    state: Annotated[list[CycleState], Query(max_length=20)] = [],  # noqa: B006
) -> Page[CycleRead]:
    """Newest first; they are remembered as long as their jobs."""
    store = _je_store(database, store_id, caller)
    with database.reading() as db:
        return list_cycles(
            db, store, states=state, page_size=page_size, page_token=page_token, now=clock.now()
        )


@router.get(
    "/v1/stores/{store_id}/erasure-cycles/current/stats",
    response_model=StatsRead,
    summary="The eleven statistics of the eraser",
    operation_id="get_erasure_stats",
    responses=problems(404, 409),
)
def get_stats(store_id: StoreId, caller: Reader, database: DatabaseDep) -> StatsRead:
    """The figures by JE's own names: of the newest cycle, and of all cycles of the store."""
    _je_store(database, store_id, caller)
    with database.reading() as db:
        return stats_of_store(db, store_id, newest_cycle(db, store_id))


@router.get(
    "/v1/stores/{store_id}/erasure-cycles/{cycle_id}",
    response_model=CycleRead,
    summary="Look at an erasure cycle",
    operation_id="get_erasure_cycle",
    responses=problems(404, 409),
)
def get_one_cycle(
    store_id: StoreId, cycle_id: CycleId, caller: Reader, database: DatabaseDep, clock: ClockDep
) -> CycleRead:
    """How far it is, what its plan says, and what it waits for."""
    store = _je_store(database, store_id, caller)
    with database.reading() as db:
        return read_cycle(db, get_cycle(db, store_id, cycle_id), store, now=clock.now())


@router.get(
    "/v1/stores/{store_id}/erasure-cycles/{cycle_id}/files",
    response_model=Page[CycleFileRead],
    summary="List the files of an erasure cycle",
    operation_id="list_erasure_files",
    responses=problems(404, 409),
)
def get_files(
    store_id: StoreId,
    cycle_id: CycleId,
    caller: Reader,
    database: DatabaseDep,
    clock: ClockDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    state: Annotated[list[FileState], Query(max_length=20)] = [],  # noqa: B006
) -> Page[CycleFileRead]:
    """Ascending: state, what is and is not erased and why, hashes, and what it has cost."""
    _je_store(database, store_id, caller)
    with database.reading() as db:
        cycle = get_cycle(db, store_id, cycle_id)
        return list_files(
            db, cycle, states=state, page_size=page_size, page_token=page_token, now=clock.now()
        )


@router.get(
    "/v1/stores/{store_id}/log-entries/{file}/{offset}",
    response_model=LogEntryRead,
    summary="Look at one entry of the log: is it erased?",
    operation_id="get_log_entry",
    responses=problems(404, 409),
)
def get_log_entry(
    store_id: StoreId,
    file: LogFile,
    offset: Offset,
    caller: StoreReader,
    database: DatabaseDep,
    settings: SettingsDep,
) -> LogEntryRead:
    """What JE calls isEntryErased. Reads the environment where this service runs."""
    store = _je_store(database, store_id, caller)
    return read_log_entry(directory_of(store, settings), file, offset)
