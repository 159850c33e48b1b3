"""`/v1/stores/{s}/event-syncs`."""

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
from app.events.syncs.models import JOB_SYNC, SyncRequest
from app.events.syncs.service import submit_sync, sync_resource
from app.jobs.job_answer import job_answer
from app.jobs.models import JobRead
from app.jobs.queries import list_jobs_of
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.durations import format_duration
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.stores.api import StoreId, read_row
from app.stores.rows import StoreKind
from app.stores.service import lock_unchanged, require_kind
from spark.events.events import require_create_event

router = new_router(tags=["events"])
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.EVENTS_WRITE))]


@router.post(
    "/v1/stores/{store_id}/event-syncs",
    status_code=202,
    response_model=JobRead,
    summary="Make a SYNC of a node that has made none for a while",
    operation_id="create_event_sync",
    responses=problems(404, 409, 429, 502),
)
def post_sync(
    store_id: StoreId,
    body: SyncRequest,
    request: Request,
    caller: Writer,
    database: DatabaseDep,
    settings: SettingsDep,
    clock: ClockDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with the job; it writes nothing where the node's own newest SYNC is younger than `interval`.

    For a node whose slon may be down: what is written meanwhile goes to its subscribers in pieces. It does
    not take the place of a slon.
    """
    replay = find_replay(request, caller, body=body)
    if replay is not None:
        return replay
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.SLONY)
    look = look_early(
        database, store, settings, resource=sync_resource(store), check_catalog=require_create_event
    )

    def queue(db: Session) -> Job:
        found = lock_unchanged(db, store, target_fields)
        return submit_sync(db, found, body, look, caller=caller, settings=settings, now=clock.now())

    audit = {"interval": format_duration(body.interval), "reason": body.reason}
    return job_answer(
        request, caller, queue, action=Action.EVENT_SYNC_CREATE, store_id=store_id, body=body, audit=audit
    )


@router.get(
    "/v1/stores/{store_id}/event-syncs",
    response_model=Page[JobRead],
    summary="List a store's SYNC jobs",
    operation_id="list_event_syncs",
    responses=problems(404),
)
def get_syncs(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    state: Annotated[list[JobState], Query(max_length=20)] = [],  # noqa: B006
) -> Page[JobRead]:
    """The jobs that make a SYNC where one is due, newest first."""
    store = read_row(database, store_id, caller)
    return list_jobs_of(database, store, JOB_SYNC, states=state, page_size=page_size, page_token=page_token)
