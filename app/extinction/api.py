"""`/v1/stores/{s}/extinctions`, their filter, the status of keys, and whether extinctions are available."""

from functools import partial
from typing import Annotated, Final

from fastapi import Depends, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from app.auth.access import (
    ClockDep,
    DatabaseDep,
    SettingsDep,
    clock_of,
    database_of,
    owner_of,
    requires,
    settings_of,
    tell_changed,
)
from app.auth.actions import Action
from app.auth.mutation import (
    IdempotencyKeyHeader,
    find_replay,
    mutate_waiting,
)
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.extinction.discarding import Discarding, check_request, discard_in_environment
from app.extinction.models import (
    AvailabilityRead,
    ExtinctionBundleRead,
    ExtinctionPlanRead,
    ExtinctionRead,
    ExtinctionRequest,
    PlanParams,
    StatusAnswer,
    StatusQuery,
    read_availability,
)
from app.extinction.queries import get_extinction, list_extinctions, read_extinction
from app.extinction.reviewed import target_fields
from app.extinction.rows import ExtinctionState
from app.extinction.service import (
    database_of as bytes_of_database,
)
from app.extinction.service import (
    read_request,
    require_extinctions,
)
from app.extinction.target import ask_availability
from app.extinction.verdicts import View, view_of
from app.jobs.models import JobRead
from app.jobs.plans.plan_answer import plan_answer, plan_responses
from app.jobs.plans.plans import submit_plan
from app.jobs.rows import Job
from app.kit.conditional import IfNoneMatch, conditional_answer, etag
from app.kit.http.routing import new_router
from app.kit.ids import new_id
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.prefer import PreferHeader
from app.kit.problems import problems
from app.stores.api import StoreId, read_row
from app.stores.models import StoreKind
from app.stores.rows import Store

router = new_router(tags=["extinction"])
ExtinctionId = Annotated[str, Path(pattern=r"^ext_[0-9a-z]{26}$")]
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.EXTINCTIONS_WRITE))]
ValidateOnly = Annotated[bool, Query(description="Plan only; nothing is written.")]
ALL: Final = "/v1/stores/{store_id}/extinctions"


@router.post(
    ALL,
    status_code=202,
    response_model=JobRead,
    summary="Discard records whose keys will never be used again",
    operation_id="create_extinction",
    responses=problems(404, 409, 412, 429, 502) | plan_responses(ExtinctionPlanRead),
)
async def post_extinction(
    store_id: StoreId,
    body: ExtinctionRequest,
    request: Request,
    caller: Writer,
    prefer: PreferHeader = None,
    validate_only: ValidateOnly = False,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """discardExtinctRecords: committed when it answers, 202 with the job that does the rest.

    Its subject is the extinction. With `validate_only` a plan: how many records match now.
    """
    if validate_only:
        queue = partial(_queue_plan, request, caller, store_id, body)
        return await plan_answer(request, queue, prefer=prefer)
    replay = await run_in_threadpool(find_replay, request, caller, body=body)
    if replay is not None:
        return replay
    store = await run_in_threadpool(read_row, database_of(request), store_id, caller)
    if store.kind == StoreKind.JE:
        return await run_in_threadpool(discard_in_environment, request, caller, store, body)
    making = Discarding(request, caller, store, body)
    await run_in_threadpool(making.look)
    response = await mutate_waiting(
        request,
        caller,
        begin=making.begin,
        wait=making.wait,
        owner=owner_of(request),
        action=Action.EXTINCTION_CREATE,
        subject_type="extinction",
        store=store_id,
        body=body,
    )
    tell_changed(request, store_id)
    return response


def _queue_plan(request: Request, caller: Caller, store_id: str, body: ExtinctionRequest) -> Job:
    store = read_row(database_of(request), store_id, caller)
    check_request(request, store, body, is_plan=True)
    extinction = read_request(store, body, new_id("ext"))
    params = PlanParams(extinction=extinction.to_json().decode(), target=target_fields(store))
    now = clock_of(request).now()
    with database_of(request).transaction() as db:
        return submit_plan(db, store, params, caller=caller, settings=settings_of(request), now=now)


@router.get(
    ALL,
    response_model=Page[ExtinctionRead],
    summary="List a store's extinctions",
    operation_id="list_extinctions",
    responses=problems(404, 409),
)
def get_extinctions(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    state: Annotated[list[ExtinctionState], Query(max_length=20)] = [],  # noqa: B006
) -> Page[ExtinctionRead]:
    """Newest first; they are never forgotten while the store is registered."""
    store = _extinctions_store(database, store_id, caller)
    with database.reading() as db:
        return list_extinctions(db, store, states=state, page_size=page_size, page_token=page_token)


def _extinctions_store(database: DatabaseDep, store_id: str, caller: Caller) -> Store:
    store = read_row(database, store_id, caller)
    require_extinctions(store)
    return store


@router.get(
    f"{ALL}/filter",
    response_model=ExtinctionBundleRead,
    summary="Get a store's whole extinction filter",
    operation_id="get_extinction_filter",
    responses=problems(404, 409) | {304: {"description": "Still the filter of If-None-Match"}},
)
def get_filter(
    store_id: StoreId, request: Request, caller: Reader, if_none_match: IfNoneMatch = None
) -> Response:
    """To be evaluated elsewhere. An answer is as old as it is: discard only what every evaluator knows."""
    view = _view(request, _extinctions_store(database_of(request), store_id, caller))
    return conditional_answer(view.bundle, view.version, if_none_match)


def _view(request: Request, store: Store) -> View:
    return view_of(
        database_of(request),
        settings_of(request),
        store,
        starting=request.app.state.readiness.status == "starting",
        now=clock_of(request).now(),
    )


@router.get(
    f"{ALL}/{{extinction_id}}",
    response_model=ExtinctionRead,
    summary="Look at an extinction",
    operation_id="get_extinction",
    responses=problems(404, 409) | {304: {"description": "Still the version of If-None-Match"}},
)
def get_one_extinction(
    store_id: StoreId,
    extinction_id: ExtinctionId,
    caller: Reader,
    database: DatabaseDep,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """`active` is isRecordExtinctionActive: true until its work at this store is over."""
    store = _extinctions_store(database, store_id, caller)
    with database.reading() as db:
        row = get_extinction(db, store_id, extinction_id)
    return conditional_answer(read_extinction(row, store), row.version, if_none_match)


@router.post(
    "/v1/stores/{store_id}/extinction-status:query",
    response_model=StatusAnswer,
    summary="Judge keys",
    operation_id="query_extinction_status",
    responses=problems(404, 409),
)
def query_status(store_id: StoreId, body: StatusQuery, request: Request, caller: Reader) -> Response:
    """getExtinctionStatus of up to 10,000 keys. MAYBE_EXTINCT where nobody knows now, and why is said."""
    store = _extinctions_store(database_of(request), store_id, caller)
    database = bytes_of_database(store, body.database, pointer="/database")
    view = _view(request, store)
    statuses = view.index.status_many(database, body.keys)
    because = [each.model_dump() for each in view.bundle.maybe_because]
    answer = {"statuses": statuses, "version": view.version, "maybe_because": because}
    return JSONResponse(answer, headers={"ETag": etag(view.version)})


@router.get(
    "/v1/stores/{store_id}/extinction-availability",
    response_model=AvailabilityRead,
    summary="Whether extinctions may be used",
    operation_id="get_extinction_availability",
    responses=problems(404, 409, 502),
)
def get_availability(
    store_id: StoreId, caller: Reader, database: DatabaseDep, settings: SettingsDep, clock: ClockDep
) -> AvailabilityRead:
    """isRecordExtinctionAvailable: all known peers have announced that they know them; JE has no peers."""
    store = _extinctions_store(database, store_id, caller)
    if store.kind == StoreKind.JE:
        return read_availability(())
    return read_availability(ask_availability(database, settings, store))
