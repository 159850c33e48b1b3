"""`/v1/stores/{s}/log-switches`."""

from typing import Annotated

from fastapi import Depends, Query, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import ClockDep, DatabaseDep, SettingsDep, requires
from app.auth.actions import Action
from app.auth.mutation import IdempotencyKeyHeader, find_replay
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.events.cleanup.service import look_early, target_fields
from app.events.cleanup.switch.models import JOB_SWITCH, LogStatusRead, SwitchRequest
from app.events.cleanup.switch.report import status_read
from app.events.cleanup.switch.service import submit_switch, switch_resource
from app.events.nodes import opened_node
from app.jobs.job_answer import job_answer
from app.jobs.models import JobRead
from app.jobs.queries import list_jobs_of
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.stores.api import StoreId, read_row
from app.stores.rows import StoreKind
from app.stores.service import lock_unchanged, require_kind
from spark.events.cleaning.log_switch import read_log_status
from spark.targets.connection import target_now

router = new_router(tags=["events"])
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.EVENTS_WRITE))]
StoreReader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]


@router.post(
    "/v1/stores/{store_id}/log-switches",
    status_code=202,
    response_model=JobRead,
    summary="Switch the log tables of a node",
    operation_id="create_log_switch",
    responses=problems(404, 409, 429, 502),
)
def post_switch(
    store_id: StoreId,
    body: SwitchRequest,
    request: Request,
    caller: Writer,
    database: DatabaseDep,
    settings: SettingsDep,
    clock: ClockDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with the job. A log table is emptied only when every origin's rows in it are proved confirmed.

    While it waits for that it holds nothing: no lock, no connection, no claim.
    """
    replay = find_replay(request, caller, body=body)
    if replay is not None:
        return replay
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.SLONY)
    look = look_early(database, store, settings, resource=switch_resource(store))

    def queue(db: Session) -> Job:
        found = lock_unchanged(db, store, target_fields)
        return submit_switch(db, found, body, look, caller=caller, settings=settings, now=clock.now())

    audit = {"action": body.action, "reason": body.reason}
    return job_answer(
        request, caller, queue, action=Action.LOG_SWITCH_CREATE, store_id=store_id, body=body, audit=audit
    )


@router.get(
    "/v1/stores/{store_id}/log-switches",
    response_model=Page[JobRead],
    summary="List a store's log switches",
    operation_id="list_log_switches",
    responses=problems(404),
)
def get_switches(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    state: Annotated[list[JobState], Query(max_length=20)] = [],  # noqa: B006
) -> Page[JobRead]:
    """The jobs that switch this store's log tables, newest first."""
    store = read_row(database, store_id, caller)
    return list_jobs_of(database, store, JOB_SWITCH, states=state, page_size=page_size, page_token=page_token)


@router.get(
    "/v1/stores/{store_id}/log-switches/status",
    response_model=LogStatusRead,
    summary="Get the state of a node's log tables",
    operation_id="get_log_status",
    responses=problems(404, 409, 502),
)
def get_log_status(
    store_id: StoreId, caller: StoreReader, database: DatabaseDep, settings: SettingsDep
) -> LogStatusRead:
    """Which table is written, whether the other is to be emptied, and who or what holds that back.

    Asks the target.
    """
    store = read_row(database, store_id, caller)
    with opened_node(store, settings, database, purpose="log-status") as (conn, catalog):
        return status_read(store.id, catalog, read_log_status(conn, catalog), as_of=target_now(conn))
