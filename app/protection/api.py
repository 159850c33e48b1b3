"""`/v1/stores/{s}/protections`."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import Condition, DatabaseDep, database_of, requires, requires_one_of
from app.auth.actions import Action
from app.auth.mutation import Answer, Begun, Conclude, IdempotencyKeyHeader, mutate, problem_answer
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import ServiceError
from app.kit.conditional import IfNoneMatch, conditional_answer, etag
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.protection.access import Place, answer_after_wait, tell_control_file, wait_until_quiet
from app.protection.control import CONTROL_WAIT_S
from app.protection.errors import (
    ControlFileBusy,
    ProtectionEnded,
    ProtectionExpired,
    ProtectionOfSession,
    ServiceStopping,
)
from app.protection.files import merged, number_of
from app.protection.models import (
    ProtectionCreate,
    ProtectionRead,
    ReleaseRequest,
    RenewRequest,
    ranges_of,
    read_protection,
)
from app.protection.queries import get_protection, list_protections
from app.protection.reconciliation import expire_due
from app.protection.rows import Protection, ProtectionKind, ProtectionState
from app.protection.service import (
    NewProtection,
    create_protection,
    end_protection,
    release_files,
    renew_protection,
    require_active,
)
from app.stores.api import StoreId, read_row
from app.stores.rows import StoreKind
from app.stores.service import require_kind

router = new_router(tags=["protections"])
ProtectionId = Annotated[str, Path(pattern=r"^prt_[0-9a-z]{26}$")]
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
OF_BACKUP = Condition(Scope.BACKUPS_WRITE, "the protection is of kind BACKUP or NETWORK_RESTORE")
Keeper = Annotated[
    Caller,
    Depends(requires_one_of(Scope.BACKUPS_WRITE, Scope.ERASURE_WRITE, conditions=(OF_BACKUP,))),
]
OF_BACKUPS = frozenset({ProtectionKind.BACKUP, ProtectionKind.NETWORK_RESTORE})
PROTECTIONS = "/v1/stores/{store_id}/protections"
ONE = f"{PROTECTIONS}/{{protection_id}}"


def _require_scope_of(caller: Caller, kind: str) -> None:
    """What a backup reads, whoever erases must not be able to give back."""
    if kind in OF_BACKUPS:
        caller.require(OF_BACKUP.scope)


def _answer(row: Protection, *, status: int = 200) -> Answer:
    headers = {"ETag": etag(row.version)}
    if status == 201:
        headers["Location"] = f"/v1/stores/{row.store}/protections/{row.id}"
    return Answer(body=read_protection(row), status=status, headers=headers, subject_id=row.id)


@router.post(
    PROTECTIONS,
    status_code=201,
    response_model=ProtectionRead,
    summary="Protect files",
    operation_id="create_protection",
    responses=problems(404, 409, 429),
)
async def post_protection(
    store_id: StoreId,
    body: ProtectionCreate,
    request: Request,
    caller: Keeper,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """From the answer on no eraser begins a round in these files; `erasure:abort` ends the one in work."""
    _require_scope_of(caller, body.kind)
    return await answer_after_wait(
        request,
        caller,
        store_id,
        lambda place: _Opening(request, caller, place, body),
        action=Action.PROTECTION_CREATE,
        subject_type="protection",
        body=body,
    )


class _Opening:
    """A new protection: its row, its range in the control file, and the answer."""

    def __init__(self, request: Request, caller: Caller, place: Place, body: ProtectionCreate) -> None:
        self._request = request
        self._caller = caller
        self._place = place
        self._new = NewProtection(
            kind=body.kind,
            name=body.name,
            lease=body.lease,
            numbers=None if body.files is None else place.numbers_of(body.files),
            ranges=merged(ranges_of(body.ranges or [])),
        )

    def begin(self, db: Session) -> Begun:
        now = database_of(self._request).now(db)
        row = create_protection(
            db,
            self._place.store.id,
            self._new,
            caller=self._caller,
            now=now,
        )
        until = now + timedelta(seconds=CONTROL_WAIT_S)
        return Begun(row.id, until, audit={"kind": row.kind, "ranges": row.ranges})

    async def wait(self, begun: Begun) -> Conclude:
        error: ServiceError = ControlFileBusy()
        try:  # no file has to be quiet: only the range must stand in the control file
            silence = await wait_until_quiet(
                self._request, self._place.environment, begun.subject_id, [], until=begun.until
            )
            if silence.is_proved:
                return partial(self._conclude, protection_id=begun.subject_id)
        except ServiceStopping:
            raise
        except ServiceError as fault:
            error = fault
        return partial(self._give_up, protection_id=begun.subject_id, error=error)

    def _conclude(self, db: Session, *, protection_id: str) -> Answer:
        row = get_protection(db, self._place.store.id, protection_id, lock=True)
        try:  # a request that was taken up long after its process died may come too late
            require_active(row, now=database_of(self._request).now(db))
        except (ProtectionEnded, ProtectionExpired) as error:
            return problem_answer(self._request, error)
        return _answer(row, status=201)

    def _give_up(self, db: Session, *, protection_id: str, error: ServiceError) -> Answer:
        """Take it back: nothing was promised."""
        row = get_protection(db, self._place.store.id, protection_id, lock=True)
        end_protection(db, row, now=database_of(self._request).now(db))
        return problem_answer(self._request, error)


@router.get(
    PROTECTIONS,
    response_model=Page[ProtectionRead],
    summary="List protections",
    operation_id="list_protections",
    responses=problems(404, 409),
)
def get_protections(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    state: Annotated[list[ProtectionState], Query(max_length=3)] = [],  # noqa: B006
    kind: Annotated[list[ProtectionKind], Query(max_length=4)] = [],  # noqa: B006
) -> Page[ProtectionRead]:
    """Protected sets of a store, newest first."""
    require_kind(read_row(database, store_id, caller), StoreKind.JE)
    expire_due(database)
    with database.reading() as db:
        return list_protections(
            db, store_id, states=state, kinds=kind, page_size=page_size, page_token=page_token
        )


@router.get(
    ONE,
    response_model=ProtectionRead,
    summary="Get a protection",
    operation_id="get_protection",
    responses=problems(404) | {304: {"description": "Still the version of If-None-Match"}},
)
def get_one_protection(
    store_id: StoreId,
    protection_id: ProtectionId,
    caller: Reader,
    database: DatabaseDep,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """What it still covers, and until when."""
    caller.require_store(store_id)
    expire_due(database)
    with database.reading() as db:
        row = get_protection(db, store_id, protection_id)
    return conditional_answer(read_protection(row), row.version, if_none_match)


Change = Callable[[Session, Protection, datetime], Protection]


def _change(
    request: Request,
    caller: Caller,
    store_id: str,
    protection_id: str,
    verb: str,
    change: Change,
    *,
    body: object,
) -> Response:
    """Change a protection that is no backup session's, and let the control file know."""
    caller.require_store(store_id)
    database = database_of(request)

    def effect(db: Session) -> Answer:
        row = get_protection(db, store_id, protection_id, lock=True)
        _require_scope_of(caller, row.kind)
        if row.backup_session_id is not None:
            raise ProtectionOfSession(row.backup_session_id)
        return _answer(change(db, row, database.now(db)))

    response = mutate(
        request,
        caller,
        effect,
        action=Action(f"protection.{verb}"),
        subject=("protection", protection_id),
        store=store_id,
        body=body,
    )
    with database.reading() as db:
        row = get_protection(db, store_id, protection_id)
    if row.control_due:
        tell_control_file(request, read_row(database, store_id, caller), [protection_id])
    return response


@router.post(
    f"{ONE}:renew",
    response_model=ProtectionRead,
    summary="Renew the lease",
    operation_id="renew_protection",
    responses=problems(404, 409, 410),
)
def post_renew(
    store_id: StoreId,
    protection_id: ProtectionId,
    request: Request,
    caller: Keeper,
    body: RenewRequest | None = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """It holds for its lease from now on."""
    lease = body.lease if body else None
    return _change(
        request,
        caller,
        store_id,
        protection_id,
        "renew",
        lambda db, row, now: renew_protection(db, row, lease=lease, now=now),
        body=body,
    )


@router.post(
    f"{ONE}:release-files",
    response_model=ProtectionRead,
    summary="Give back single files",
    operation_id="release_protected_files",
    responses=problems(404, 409, 410),
)
def post_release(
    store_id: StoreId,
    protection_id: ProtectionId,
    body: ReleaseRequest,
    request: Request,
    caller: Keeper,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """They may be erased from now on; a set never grows again."""
    numbers = [number_of(name) for name in body.files]
    return _change(
        request,
        caller,
        store_id,
        protection_id,
        "release-files",
        lambda db, row, now: release_files(db, row, numbers, now=now),
        body=body,
    )


@router.post(
    f"{ONE}:end",
    response_model=ProtectionRead,
    summary="End a protection",
    operation_id="end_protection",
    responses=problems(404, 409, 410),
)
def post_end(
    store_id: StoreId,
    protection_id: ProtectionId,
    request: Request,
    caller: Keeper,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Once or ten times the same answer. 410 where the lease ran out before: somebody may have written."""

    def end(db: Session, row: Protection, now: datetime) -> Protection:
        if row.state != ProtectionState.ENDED:
            require_active(row, now=now)
        return end_protection(db, row, now=now)

    return _change(request, caller, store_id, protection_id, "end", end, body=None)
