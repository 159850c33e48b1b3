"""`/v1/schedules`: verbs that come by a cron, and all that recurs besides, in one list."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final

from fastapi import Depends, Path, Query, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import Condition, DatabaseDep, SettingsDep, database_of, requires
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.rows import StoreName
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.conditional import shown
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.schedules.listing import list_schedules, read_schedule
from app.schedules.models import NextRuns, ScheduleCreate, ScheduleRead
from app.schedules.rows import Schedule
from app.schedules.service import (
    create_schedule,
    get_schedule,
    next_runs,
    pause_schedule,
    remove_schedule,
    resume_schedule,
)

router = new_router(tags=["schedules"])
ScheduleId = Annotated[str, Path(pattern=r"^sch_[0-9a-z]{26}$")]
VERBS: Final = (
    Condition(Scope.PURGES_WRITE, "`verb` is PURGE"),
    Condition(Scope.EVENTS_WRITE, "`verb` is EVENT_CLEANUP, EVENT_SYNC or LOG_SWITCH"),
    Condition(Scope.ERASURE_WRITE, "`verb` is ERASURE"),
    Condition(Scope.REPLICATION_WRITE, "`verb` is REPLICATION_SESSION, AUDIT or SLONY_FEED"),
    Condition(Scope.DATA_READ, "`verb` is SLONY_FEED"),
    Condition(Scope.EVIDENCE_VERIFY, "`verb` is ERASURE_VERIFY or ARCHIVE_VERIFY"),
    Condition(Scope.ADMIN, "a REPLICATION_SESSION has `discard_consumer_changes`"),
)
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.SCHEDULES_WRITE))]
Author = Annotated[Caller, Depends(requires(Scope.SCHEDULES_WRITE, *VERBS))]
RUNS_MAX: Final = 100
RunCount = Annotated[int, Query(ge=1, le=RUNS_MAX)]


@router.post(
    "/v1/schedules",
    status_code=201,
    response_model=ScheduleRead,
    summary="Write a schedule",
    operation_id="create_schedule",
    responses=problems(404, 409),
)
def post_schedule(
    body: ScheduleCreate,
    request: Request,
    caller: Author,
    settings: SettingsDep,
    database: DatabaseDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """It acts with the rights that this token has whenever it comes: once revoked, it is refused.

    The body is looked at as the POST of its verb would, now and each time. What differs wants a new schedule.
    """

    def effect(db: Session) -> Answer:
        row = create_schedule(db, body, caller=caller, settings=settings, now=database.now(db))
        return Answer(
            body=read_schedule(db, row),
            status=201,
            headers={"Location": f"/v1/schedules/{row.id}"},
            subject_id=row.id,
            audit=body.model_dump(mode="json"),
        )

    return mutate(
        request,
        caller,
        effect,
        action=Action.SCHEDULE_CREATE,
        subject=("schedule", ""),
        store=body.store,
        body=body,
    )


@router.get(
    "/v1/schedules",
    response_model=Page[ScheduleRead],
    summary="List all that recurs",
    operation_id="list_schedules",
    responses=problems(),
)
def get_schedules(
    caller: Reader,
    database: DatabaseDep,
    store: Annotated[StoreName | None, Query(description="Only of this store.")] = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Response:
    """Schedules, and read only what recurs by a parameter or an agreement: `source` names it."""
    with database.reading() as db:
        found = list_schedules(db, caller, store=store, page_size=page_size, page_token=page_token)
    return shown(found)


@router.get(
    "/v1/schedules/{schedule_id}",
    response_model=ScheduleRead,
    summary="Look at a schedule",
    operation_id="get_schedule",
    responses=problems(404),
)
def get_one_schedule(schedule_id: ScheduleId, caller: Reader, database: DatabaseDep) -> ScheduleRead:
    """When it comes next, and what became of its last due time and of that job."""
    with database.reading() as db:
        return read_schedule(db, get_schedule(db, schedule_id, caller))


@router.get(
    "/v1/schedules/{schedule_id}/next-runs",
    response_model=NextRuns,
    summary="When a schedule comes",
    operation_id="list_next_runs",
    responses=problems(404),
)
def get_next_runs(
    schedule_id: ScheduleId, caller: Reader, database: DatabaseDep, count: RunCount = 10
) -> NextRuns:
    """As if it were not paused, and its jobs took no time."""
    with database.reading() as db:
        row, now = get_schedule(db, schedule_id, caller), database.now(db)
    return next_runs(row, count=count, now=now)


@router.post(
    "/v1/schedules/{schedule_id}:pause",
    response_model=ScheduleRead,
    summary="Pause a schedule",
    operation_id="pause_schedule",
    responses=problems(404),
)
def post_pause(
    schedule_id: ScheduleId,
    request: Request,
    caller: Writer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """What comes meanwhile is left out for good; its running job goes on. Again is harmless."""

    def pause(db: Session, now: datetime) -> Schedule:
        return pause_schedule(db, schedule_id, caller=caller, now=now)

    return _change(request, caller, schedule_id, Action.SCHEDULE_PAUSE, pause)


@router.post(
    "/v1/schedules/{schedule_id}:resume",
    response_model=ScheduleRead,
    summary="Resume a schedule",
    operation_id="resume_schedule",
    responses=problems(404),
)
def post_resume(
    schedule_id: ScheduleId,
    request: Request,
    caller: Author,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """From its next time on. It wants the scope of its verb, as to write it did. Again is harmless."""

    def resume(db: Session, now: datetime) -> Schedule:
        return resume_schedule(db, schedule_id, caller=caller, now=now)

    return _change(request, caller, schedule_id, Action.SCHEDULE_RESUME, resume)


def _change(
    request: Request,
    caller: Caller,
    schedule_id: str,
    action: Action,
    change: Callable[[Session, datetime], Schedule],
) -> Response:
    database = database_of(request)

    def effect(db: Session) -> Answer:
        row = change(db, database.now(db))
        return Answer(body=read_schedule(db, row), store=row.store)

    return mutate(request, caller, effect, action=action, subject=("schedule", schedule_id))


@router.delete(
    "/v1/schedules/{schedule_id}",
    status_code=204,
    response_class=Response,
    summary="Remove a schedule",
    operation_id="remove_schedule",
    responses=problems(404),
)
def delete_schedule(
    schedule_id: ScheduleId,
    request: Request,
    caller: Writer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Its jobs stay, and those that run go on."""

    def effect(db: Session) -> Answer:
        row = remove_schedule(db, schedule_id, caller=caller, now=database_of(request).now(db))
        return Answer(status=204, store=row.store, audit={"verb": row.verb, "cron": row.cron})

    return mutate(request, caller, effect, action=Action.SCHEDULE_REMOVE, subject=("schedule", schedule_id))
