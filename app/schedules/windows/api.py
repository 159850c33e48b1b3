"""`/v1/windows`: when destructive jobs may work."""

from typing import Annotated

from fastapi import Depends, Path, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import DatabaseDep, requires, requires_unlimited
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.schedules.windows.models import WindowCreate, WindowRead
from app.schedules.windows.service import create_window, get_window, list_windows, remove_window, show

router = new_router(tags=["schedules"])
WindowId = Annotated[str, Path(pattern=r"^win_[0-9a-z]{26}$")]
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Writer = Annotated[Caller, Depends(requires_unlimited(Scope.WINDOWS_WRITE))]
"""A window may be for any store."""


@router.post(
    "/v1/windows",
    status_code=201,
    response_model=WindowRead,
    summary="Add a window",
    operation_id="create_window",
    responses=problems(409),
)
def post_window(
    body: WindowCreate,
    request: Request,
    caller: Writer,
    database: DatabaseDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """It acts on running jobs within seconds: sweeps, cycles and scans. Sessions, waits and plans go on."""

    def effect(db: Session) -> Answer:
        row = create_window(db, body, caller=caller, now=database.now(db))
        shown = show(row, now=database.now(db))
        return Answer(
            body=shown,
            status=201,
            headers={"Location": f"/v1/windows/{row.id}"},
            subject_id=row.id,
            audit=body.model_dump(mode="json"),
        )

    response = mutate(request, caller, effect, action=Action.WINDOW_CREATE, subject=("window", ""), body=body)
    request.app.state.changed("")
    return response


@router.get(
    "/v1/windows",
    response_model=Page[WindowRead],
    summary="List the windows",
    operation_id="list_windows",
    responses=problems(),
)
def get_windows(
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[WindowRead]:
    """Newest first, with whether they are open now."""
    with database.reading() as db:
        return list_windows(db, page_size=page_size, page_token=page_token, now=database.now(db))


@router.get(
    "/v1/windows/{window_id}",
    response_model=WindowRead,
    summary="Look at a window",
    operation_id="get_window",
    responses=problems(404),
)
def get_one_window(window_id: WindowId, caller: Reader, database: DatabaseDep) -> WindowRead:
    """Whether it is open now, until when, and when it begins next."""
    with database.reading() as db:
        return show(get_window(db, window_id), now=database.now(db))


@router.delete(
    "/v1/windows/{window_id}",
    status_code=204,
    response_class=Response,
    summary="Remove a window",
    operation_id="remove_window",
    responses=problems(404),
)
def delete_window(
    window_id: WindowId,
    request: Request,
    caller: Writer,
    database: DatabaseDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Jobs that it held look again at once."""

    def effect(db: Session) -> Answer:
        remove_window(db, window_id, now=database.now(db))
        return Answer(status=204)

    response = mutate(request, caller, effect, action=Action.WINDOW_REMOVE, subject=("window", window_id))
    request.app.state.changed("")
    return response
