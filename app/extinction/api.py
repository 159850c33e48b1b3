"""`/v1/stores/{s}/extinctions`, their filter, the status of keys, and whether extinctions are available."""

import base64
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from app.auth.access import (
    ClockDep,
    DatabaseDep,
    SettingsDep,
    clock_of,
    database_of,
    instance_id_of,
    requires,
    settings_of,
)
from app.auth.mutation import (
    Answer,
    Begun,
    Conclude,
    IdempotencyKeyHeader,
    find_replay,
    mutate,
    mutate_waiting,
)
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import ServiceError
from app.extinction.models import (
    AvailabilityRead,
    ExtinctionBundleRead,
    ExtinctionPlanRead,
    ExtinctionRead,
    ExtinctionRequest,
    StatusAnswer,
    StatusQuery,
    read_availability,
)
from app.extinction.queries import get_extinction, list_extinctions, read_extinction
from app.extinction.records import extinction_of, insert_row, note_logged, submit_job
from app.extinction.rows import HOLDING, ExtinctionState
from app.extinction.scan.plan_task import PlanParams
from app.extinction.service import (
    check_target,
    commit_at_target,
    is_at_target,
    read_request,
    refuse_suspended,
    require_extinctions,
)
from app.extinction.service import (
    database_of as bytes_of_database,
)
from app.extinction.target import ask_availability
from app.extinction.verdicts import View, view_of
from app.jobs.api import accepted
from app.jobs.models import JobRead
from app.jobs.plans.plan_answer import plan_answer, plan_responses
from app.jobs.plans.plans import submit_plan
from app.jobs.queries import get_job
from app.jobs.rows import Job
from app.kit.conditional import IfNoneMatch, conditional_answer, etag
from app.kit.ids import new_id
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.prefer import PreferHeader
from app.kit.problems import problems
from app.replication.replica.replicas import note_own_max
from app.stores.api import StoreId, read_row
from app.stores.rows import Store, StoreKind
from app.stores.service import get_store, lock_unchanged
from spark.formats.extinction import Extinction

router = APIRouter(tags=["extinction"])
ExtinctionId = Annotated[str, Path(pattern=r"^ext_[0-9a-z]{26}$")]
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.EXTINCTIONS_WRITE))]
ValidateOnly = Annotated[bool, Query(description="Plan only; nothing is written.")]
ALL: Final = "/v1/stores/{store_id}/extinctions"
COMMIT_MAX: Final = timedelta(seconds=30)
"""So long another instance takes a request for alive."""


@router.post(
    ALL,
    status_code=202,
    response_model=JobRead,
    summary="Discard records whose keys will never be used again",
    operation_id="create_extinction",
    responses=problems(404, 409, 429, 502) | plan_responses(ExtinctionPlanRead),
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
        await run_in_threadpool(_check, request, store, body)
        return await run_in_threadpool(_discard_in_environment, request, caller, store, body)
    making = _Discarding(request, caller, store, body)
    await run_in_threadpool(making.look)
    response = await mutate_waiting(
        request,
        caller,
        begin=making.begin,
        wait=making.wait,
        owner=instance_id_of(request),
        action="extinction.create",
        subject_type="extinction",
        store=store_id,
        body=body,
    )
    request.app.state.changed(store_id)
    return response


def _check(request: Request, store: Store, body: ExtinctionRequest, *, is_plan: bool = False) -> None:
    """Return where the request may be done, as far as can be seen now.

    Raises: ServiceError.
    """
    extinction = read_request(store, body, new_id("ext"))
    refuse_suspended(store, now=clock_of(request).now())
    discards = None if is_plan else extinction
    check_target(database_of(request), settings_of(request), store, body.databases, discards=discards)


def _queue_plan(request: Request, caller: Caller, store_id: str, body: ExtinctionRequest) -> Job:
    store = read_row(database_of(request), store_id, caller)
    _check(request, store, body, is_plan=True)
    extinction = read_request(store, body, new_id("ext"))
    params = PlanParams(extinction=extinction.to_json().decode())
    now = clock_of(request).now()
    with database_of(request).transaction() as db:
        return submit_plan(db, store, params, caller=caller, settings=settings_of(request), now=now)


def _audit(body: ExtinctionRequest) -> dict[str, object]:
    fields = body.model_dump(mode="json", exclude={"start_key", "end_key", "confirm_keys_never_reused"})
    keys = {name: getattr(body, name) for name in ("start_key", "end_key")}
    return fields | {
        name: None if key is None else base64.b64encode(key).decode() for name, key in keys.items()
    }


def _discard_in_environment(
    request: Request, caller: Caller, store: Store, body: ExtinctionRequest
) -> Response:
    """A JE store has no target to commit at: row, job and key share one transaction."""
    settings, now = settings_of(request), clock_of(request).now()

    def effect(db: Session) -> Answer:
        current = get_store(db, store.id, lock=True)
        extinction = read_request(current, body, new_id("ext"))
        refuse_suspended(current, now=now)
        row = insert_row(
            db,
            store.id,
            extinction,
            state=ExtinctionState.RESERVED,
            now=now,
            reason=body.reason,
            requested_by=caller.name,
        )
        note_logged(db, row, now=now)
        job = submit_job(
            db,
            current,
            row,
            settings=settings,
            now=now,
            requested_by=caller.name,
            token_id=caller.token_id,
        )
        return replace(accepted(job), subject_id=row.id, audit=_audit(body))

    response = mutate(
        request,
        caller,
        effect,
        action="extinction.create",
        subject=("extinction", ""),
        store=store.id,
        body=body,
    )
    request.app.state.changed(store.id)
    return response


class _Discarding:
    """An extinction of a REPLICA: reserved, committed at the target, then LOGGED with its job."""

    def __init__(self, request: Request, caller: Caller, store: Store, body: ExtinctionRequest) -> None:
        self._request = request
        self._caller = caller
        self._store = store
        self._body = body
        self._refusal: ServiceError | None = None

    def look(self) -> None:
        """Find out what speaks against it. What `begin` refuses, a request that is taken up may have done."""
        try:
            _check(self._request, self._store, self._body)
        except ServiceError as error:
            self._refusal = error

    def begin(self, db: Session) -> Begun:
        """Reserve: from now on its keys may be extinct.

        Raises: ServiceError: what `look` has found.
        """
        if self._refusal is not None:
            raise self._refusal
        now = clock_of(self._request).now()
        store = lock_unchanged(db, self._store, lambda store: (store.kind, store.url))
        refuse_suspended(store, now=now)
        extinction = read_request(store, self._body, new_id("ext"))
        row = insert_row(
            db,
            store.id,
            extinction,
            state=ExtinctionState.RESERVED,
            now=now,
            reason=self._body.reason,
            requested_by=self._caller.name,
        )
        return Begun(subject_id=row.id, until=now + COMMIT_MAX, audit=_audit(self._body))

    async def wait(self, begun: Begun) -> Conclude:
        """Commit at the target."""
        csn = await run_in_threadpool(self._commit, begun.subject_id)
        return partial(self._conclude, begun.subject_id, csn)

    def _commit(self, extinction_id: str) -> str:
        request = self._request
        extinction = self._reserved(extinction_id)
        database, settings = database_of(request), settings_of(request)
        if self._refusal is not None and not is_at_target(database, settings, self._store, extinction_id):
            raise self._refusal  # it holds for what was reserved, and then cut off
        now = clock_of(request).now()
        return commit_at_target(database, settings, self._store, extinction, now=now)

    def _reserved(self, extinction_id: str) -> Extinction:
        with database_of(self._request).reading() as db:
            return extinction_of(get_extinction(db, self._store.id, extinction_id))

    def _conclude(self, extinction_id: str, csn: str, db: Session) -> Answer:
        """LOGGED, and its job; whoever settles may have been here before."""
        now = clock_of(self._request).now()
        store = get_store(db, self._store.id, lock=True)
        row = get_extinction(db, store.id, extinction_id)
        db.refresh(row)
        note_logged(db, row, now=now, csn=csn)
        note_own_max(db, store.id, csn, now=now)
        assert row.state in HOLDING, "it is committed at the target"
        if row.job_id is not None:
            return replace(accepted(get_job(db, row.job_id)), subject_id=row.id)
        job = submit_job(
            db,
            store,
            row,
            settings=settings_of(self._request),
            now=now,
            requested_by=self._caller.name,
            token_id=self._caller.token_id,
        )
        return replace(accepted(job), subject_id=row.id)


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
