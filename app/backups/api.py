"""`/v1/stores/{s}/backup-sessions`: what a backup tool needs, in one call before and one after."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import DatabaseDep, SettingsDep, database_of, requires, settings_of
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.backups.looking import Seen, look
from app.backups.models import (
    BackupCreate,
    BackupEndRead,
    BackupFileRead,
    BackupSessionCreated,
    BackupSessionRead,
    read_session,
)
from app.backups.preparing import Preparation
from app.backups.queries import files_of, get_session, list_files, list_sessions, read_end
from app.backups.rows import BackupSession, BackupState
from app.backups.service import end_session, release_session_files, renew_session
from app.backups.settling import settle_sessions
from app.kit.conditional import IfNoneMatch, conditional_answer, etag
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.protection.access import answer_after_wait, tell_control_file
from app.protection.control import environment_of
from app.protection.files import number_of
from app.protection.models import ReleaseRequest, RenewRequest
from app.protection.queries import due_of
from app.stores.api import StoreId, read_row
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind
from app.stores.targets import environment_directory

router = new_router(tags=["backups"])
SessionId = Annotated[str, Path(pattern=r"^bks_[0-9a-z]{26}$")]
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.BACKUPS_WRITE))]
SESSIONS = "/v1/stores/{store_id}/backup-sessions"
ONE = f"{SESSIONS}/{{session_id}}"
OVER = frozenset({BackupState.ENDED, BackupState.INVALID})


@router.post(
    SESSIONS,
    status_code=201,
    response_model=BackupSessionCreated,
    summary="Begin a backup",
    operation_id="create_backup_session",
    responses=problems(404, 409, 429),
)
async def post_session(
    store_id: StoreId,
    body: BackupCreate,
    request: Request,
    caller: Writer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Protects the files, then waits for the round in work. After the 201 Lethe changes no byte of them.

    503 ERASE_ABORT_TIMEOUT: the eraser could not be stopped in time; the protection is taken back. That is
    the answer of its Idempotency-Key: try again with a new one.
    """
    return await answer_after_wait(
        request,
        caller,
        store_id,
        lambda place: Preparation(request, caller, place, body),
        action=Action.BACKUP_SESSION_CREATE,
        subject_type="backup_session",
        body=body,
        failed=partial(_take_back, request),
    )


def _take_back(request: Request, store: Store) -> None:
    """Let the control file know which protections of a store are over."""
    with database_of(request).reading() as db:
        due = due_of(db, store.id)
    if due:
        tell_control_file(request, store, due)


@router.get(
    SESSIONS,
    response_model=Page[BackupSessionRead],
    summary="List backup sessions",
    operation_id="list_backup_sessions",
    responses=problems(404, 409),
)
def get_sessions(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    state: Annotated[list[BackupState], Query(max_length=6)] = [],  # noqa: B006
) -> Page[BackupSessionRead]:
    """Sessions of a store, newest first."""
    require_kind(read_row(database, store_id, caller), StoreKind.JE)
    settle_sessions(database)
    with database.reading() as db:
        return list_sessions(db, store_id, states=state, page_size=page_size, page_token=page_token)


@router.get(
    ONE,
    response_model=BackupSessionRead,
    summary="Get a backup session",
    operation_id="get_backup_session",
    responses=problems(404) | {304: {"description": "Still the version of If-None-Match"}},
)
def get_one_session(
    store_id: StoreId,
    session_id: SessionId,
    caller: Reader,
    database: DatabaseDep,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Its state, its lease, and whether it was valid."""
    caller.require_store(store_id)
    settle_sessions(database)
    with database.reading() as db:
        row = get_session(db, store_id, session_id)
    return conditional_answer(read_session(row), row.version, if_none_match)


@router.get(
    f"{ONE}/files",
    response_model=Page[BackupFileRead],
    summary="List the files of a backup session",
    operation_id="list_backup_files",
    responses=problems(404),
)
def get_files(
    store_id: StoreId,
    session_id: SessionId,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[BackupFileRead]:
    """In the order in which to copy them: one that grows comes last."""
    store = read_row(database, store_id, caller)
    with database.reading() as db:
        row = get_session(db, store_id, session_id)
        directory = environment_directory(store, settings)
        return list_files(db, row, directory, page_size=page_size, page_token=page_token)


Change = Callable[[Session, BackupSession, datetime], Answer]


def _change(
    request: Request,
    caller: Caller,
    store: Store,
    session_id: str,
    verb: str,
    change: Change,
    *,
    body: object,
) -> Response:
    """Change a session, and let the control file know what its protection does not keep any more."""
    database = database_of(request)

    def effect(db: Session) -> Answer:
        return change(db, get_session(db, store.id, session_id, lock=True), database.now(db))

    answer = mutate(
        request,
        caller,
        effect,
        action=Action(f"backup-session.{verb}"),
        subject=("backup_session", session_id),
        store=store.id,
        body=body,
    )
    _take_back(request, store)
    return answer


def _answer(row: BackupSession) -> Answer:
    return Answer(body=read_session(row), headers={"ETag": etag(row.version)})


@router.post(
    f"{ONE}:renew",
    response_model=BackupSessionRead,
    summary="Renew the lease of a backup",
    operation_id="renew_backup_session",
    responses=problems(404, 409, 410),
)
def post_renew(
    store_id: StoreId,
    session_id: SessionId,
    request: Request,
    caller: Writer,
    body: RenewRequest | None = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """It holds for its lease from now on; 410 once the lease has run out."""
    database = database_of(request)
    store = read_row(database, store_id, caller)
    settle_sessions(database)
    lease = body.lease if body else None
    return _change(
        request,
        caller,
        store,
        session_id,
        "renew",
        lambda db, row, now: _answer(renew_session(db, row, lease=lease, now=now)),
        body=body,
    )


@router.post(
    f"{ONE}:release-files",
    response_model=BackupSessionRead,
    summary="Give back files that are copied",
    operation_id="release_backup_files",
    responses=problems(404, 409, 410),
)
def post_release(
    store_id: StoreId,
    session_id: SessionId,
    body: ReleaseRequest,
    request: Request,
    caller: Writer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Each is compared with what it was, then it may be erased; what was found counts at the end."""
    database = database_of(request)
    store = read_row(database, store_id, caller)
    settle_sessions(database)
    numbers = [number_of(name) for name in body.files]
    seen = look(environment_of(store, settings_of(request)).directory, numbers)
    return _change(
        request,
        caller,
        store,
        session_id,
        "release-files",
        lambda db, row, now: _answer(release_session_files(db, row, numbers, seen, now=now)),
        body=body,
    )


@router.post(
    f"{ONE}:end",
    response_model=BackupEndRead,
    summary="End a backup",
    operation_id="end_backup_session",
    responses=problems(404, 409, 410),
)
def post_end(
    store_id: StoreId,
    session_id: SessionId,
    request: Request,
    caller: Writer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Compares every file, once; asked again it answers the same. 410 with `valid: false` after the lease.

    `valid: true`: nobody, Lethe or not, has changed a file that had to stay as it was.
    """
    database = database_of(request)
    store = read_row(database, store_id, caller)
    settle_sessions(database)
    seen = _look_at_active(request, store, session_id)

    def end(db: Session, row: BackupSession, now: datetime) -> Answer:
        if row.state not in OVER:
            end_session(db, row, seen, now=now)
        return Answer(body=read_end(db, row), headers={"ETag": etag(row.version)}, audit={"valid": row.valid})

    return _change(request, caller, store, session_id, "end", end, body=None)


def _look_at_active(request: Request, store: Store, session_id: str) -> dict[int, Seen]:
    """The files of a session as they are now; nothing is looked at once it has ended.

    Raises: EnvironmentNotHere: nobody here can tell whether they are what they were.
    """
    with database_of(request).reading() as db:
        row = get_session(db, store.id, session_id)
        if row.state != BackupState.ACTIVE:
            return {}
        numbers = [file.number for file in files_of(db, session_id)]
    return look(environment_of(store, settings_of(request)).directory, numbers)
