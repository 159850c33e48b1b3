"""`/v1/stores/{s}/agreements`: which consumers a store brings its changes to."""

from datetime import timedelta
from functools import partial
from typing import Annotated

from fastapi import Depends, Path, Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from app.auth.access import (
    DatabaseDep,
    SettingsDep,
    clock_of,
    database_of,
    owner_of,
    requires,
    settings_of,
)
from app.auth.actions import Action
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
from app.db import Database
from app.errors import ServiceError
from app.kit.conditional import IfMatch, etag
from app.kit.http.routing import new_router
from app.kit.ids import new_id
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.replication.agreements.errors import AgreementNotFound
from app.replication.agreements.last_session import last_session
from app.replication.agreements.models import (
    AgreementCreate,
    AgreementPatch,
    AgreementRead,
    AgreementStatusRead,
)
from app.replication.agreements.service import (
    change_agreement,
    get_agreement,
    insert_agreement,
    list_agreements,
    note_registered,
    read_agreement,
    refuse_in_use,
    remove_agreement_row,
)
from app.replication.agreements.sessions.api import replica_store
from app.replication.agreements.status import standing_of, status_of
from app.replication.replica.refusals import ReplicaPartial
from app.replication.replica.replicas import opened_replica, writer_turn
from app.replication.rows import Agreement, ReplicationSession
from app.settings import Settings
from app.stores.api import StoreId
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import get_store, require_kind
from spark.replication.agreements import (
    AgreementUnknown,
    read_agreements,
    register_agreement,
    remove_agreement,
)
from spark.replication.replica.replica import find_replica
from spark.targets.connection import target_now

router = new_router(tags=["replication"])
AgreementId = Annotated[str, Path(pattern=r"^agr_[0-9a-z]{26}$")]
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]
ALL = "/v1/stores/{store_id}/agreements"
ONE = f"{ALL}/{{agreement_id}}"
REGISTRATION_MAX_S = 30.0


@router.post(
    ALL,
    status_code=201,
    response_model=AgreementRead,
    summary="Agree to bring a consumer the changes of a store",
    operation_id="create_agreement",
    responses=problems(404, 409),
)
async def post_agreement(
    store_id: StoreId,
    body: AgreementCreate,
    request: Request,
    caller: Admin,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Its target learns of it at once, and trims nothing from then on that the consumer lacks.

    A PARTIAL replica supplies nobody: 409 REPLICA_PARTIAL.

    REGISTERING where the target does not answer now: the service goes on trying. The consumer is not called.
    """
    replay = await run_in_threadpool(find_replay, request, caller, body=body)
    if replay is not None:
        return replay
    store = await run_in_threadpool(replica_store, database_of(request), store_id, caller)
    await run_in_threadpool(_refuse_partial, database_of(request), settings_of(request), store)
    making = _Making(request, store, body, by_label=caller.stores is None)
    return await mutate_waiting(
        request,
        caller,
        begin=making.begin,
        wait=making.wait,
        owner=owner_of(request),
        action=Action.AGREEMENT_CREATE,
        subject_type="agreement",
        store=store_id,
        body=body,
    )


def _refuse_partial(database: Database, settings: Settings, store: Store) -> None:
    """Raise ReplicaPartial where the supplier holds some keys only; its sessions say so too."""
    try:
        with opened_replica(database, settings, store, purpose="agreements", create=False) as conn:
            row = find_replica(conn)
    except ServiceError:
        return
    if row is not None and row.part is not None:
        raise ReplicaPartial


class _Making:
    """An agreement's row, its registration in the target, and the answer."""

    def __init__(self, request: Request, store: Store, body: AgreementCreate, *, by_label: bool) -> None:
        self._by_label = by_label
        self._request = request
        self._store = store
        self._body = body

    def begin(self, db: Session) -> Begun:
        """The row first: what the target knows, the metadata knows too."""
        require_kind(get_store(db, self._store.id, lock=True), StoreKind.REPLICA)
        now = clock_of(self._request).now()
        row = insert_agreement(
            db,
            self._store.id,
            new_id("agr"),
            self._body,
            by_label=self._by_label,
            settings=settings_of(self._request),
            now=now,
        )
        audit = {"consumer": {"url": row.consumer_url, "store": row.consumer_store}}
        return Begun(subject_id=row.id, until=now + timedelta(seconds=REGISTRATION_MAX_S), audit=audit)

    async def wait(self, begun: Begun) -> Conclude:
        """Let the target know."""
        act = partial(
            register_in_target,
            database_of(self._request),
            settings_of(self._request),
            self._store,
            begun.subject_id,
        )
        await run_in_threadpool(act)
        return partial(self._answer, begun.subject_id)

    def _answer(self, agreement_id: str, db: Session) -> Answer:
        row = get_agreement(db, self._store.id, agreement_id)
        location = f"/v1/stores/{row.store}/agreements/{row.id}"
        headers = {"ETag": etag(row.version), "Location": location}
        return Answer(
            body=read_agreement(row, None), status=201, headers=headers, subject_id=row.id, store=row.store
        )


def register_in_target(database: Database, settings: Settings, store: Store, agreement_id: str) -> bool:
    """Let a replica know one of its agreements; whether it does now."""
    try:
        with opened_replica(database, settings, store, purpose="agreements") as conn, writer_turn(conn):
            register_agreement(conn, agreement_id, now_s=int(target_now(conn).timestamp()))
    except ServiceError:
        return False
    with database.transaction() as db:
        note_registered(db, agreement_id)
    return True


@router.get(
    ALL,
    response_model=Page[AgreementRead],
    summary="List a store's agreements",
    operation_id="list_agreements",
    responses=problems(404, 409),
)
def get_agreements(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[AgreementRead]:
    """Without their status, for which the target would be asked."""
    replica_store(database, store_id, caller)
    with database.reading() as db:
        return list_agreements(db, store_id, page_size=page_size, page_token=page_token)


@router.get(
    ONE,
    response_model=AgreementRead,
    summary="Look at an agreement",
    operation_id="get_agreement",
    responses=problems(404, 409),
)
def get_one_agreement(
    store_id: StoreId,
    agreement_id: AgreementId,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
) -> Response:
    """With its status, by what the consumer has acknowledged; the consumer is not asked.

    The ETag is of what an admin chose: PATCH and DELETE want it, and the status changes without it.
    """
    store = replica_store(database, store_id, caller)
    with database.reading() as db:
        row = get_agreement(db, store_id, agreement_id)
        last, is_active = last_session(db, row)
    status = _status(database, settings, store, row, last, is_active=is_active)
    shown = read_agreement(row, status)
    return JSONResponse(shown.model_dump(mode="json"), headers={"ETag": etag(row.version)})


def _status(
    database: Database,
    settings: Settings,
    store: Store,
    row: Agreement,
    last: ReplicationSession | None,
    *,
    is_active: bool,
) -> AgreementStatusRead:
    try:
        with opened_replica(database, settings, store, purpose="agreements") as conn:
            standing = standing_of(conn, row.id)
    except ServiceError as error:
        return status_of(row, last, is_active=is_active, standing=None, target_code=error.code)
    return status_of(row, last, is_active=is_active, standing=standing)


@router.patch(
    ONE,
    response_model=AgreementRead,
    summary="Change an agreement",
    operation_id="change_agreement",
    responses=problems(404, 409, 412, 428),
)
def patch_agreement(
    store_id: StoreId,
    agreement_id: AgreementId,
    body: AgreementPatch,
    request: Request,
    caller: Admin,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """What is left out stays. A session under way keeps its limits; one of another address ends."""
    replica_store(database_of(request), store_id, caller)

    def effect(db: Session) -> Answer:
        row = change_agreement(
            db,
            store_id,
            agreement_id,
            body,
            if_match=if_match,
            by_label=caller.stores is None or body.consumer is None or body.consumer.token is None,
            settings=settings_of(request),
            now=clock_of(request).now(),
        )
        changed = sorted(body.model_dump(exclude_unset=True))
        return Answer(
            body=read_agreement(row, None), headers={"ETag": etag(row.version)}, audit={"changed": changed}
        )

    return mutate(
        request,
        caller,
        effect,
        action=Action.AGREEMENT_CHANGE,
        subject=("agreement", agreement_id),
        store=store_id,
        body=body,
    )


@router.delete(
    ONE,
    status_code=204,
    response_class=Response,
    summary="Remove an agreement",
    operation_id="remove_agreement",
    responses=problems(404, 409, 412, 428, 502),
)
def delete_agreement(
    store_id: StoreId,
    agreement_id: AgreementId,
    request: Request,
    caller: Admin,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Trimming spares what the consumer lacks for 7 days more.

    The target must answer: else it would be spared for ever.

    One that only the target knows, because the metadata is older or the store was registered anew, goes too.
    """
    replay = find_replay(request, caller)
    if replay is not None:
        return replay
    database, settings = database_of(request), settings_of(request)
    store = replica_store(database, store_id, caller)
    try:
        with database.reading() as db:
            get_agreement(db, store_id, agreement_id)
            refuse_in_use(db, agreement_id)
        is_known = True
    except AgreementNotFound:
        if not _is_in_target(database, settings, store, agreement_id):
            raise
        is_known = False

    def effect(db: Session) -> Answer:
        now = clock_of(request).now()
        if is_known:
            remove_agreement_row(db, store_id, agreement_id, if_match=if_match, now=now)
        return Answer(status=204)

    with opened_replica(database, settings, store, purpose="agreements") as conn:
        answer = mutate(
            request,
            caller,
            effect,
            action=Action.AGREEMENT_REMOVE,
            subject=("agreement", agreement_id),
            store=store_id,
        )
        try:
            with writer_turn(conn):
                remove_agreement(conn, agreement_id, now_s=int(target_now(conn).timestamp()))
        except AgreementUnknown:  # it never came as far as the target
            return answer
    return answer


def _is_in_target(database: Database, settings: Settings, store: Store, agreement_id: str) -> bool:
    """Whether a replica minds a consumer of this agreement."""
    with opened_replica(database, settings, store, purpose="agreements") as conn:
        found = {each.agreement_id: each.removed_at_s for each in read_agreements(conn)}
    return agreement_id in found and found[agreement_id] is None
