"""`/v1/stores/{s}/events` and `/confirmations`: what a node of Slony-I knows, and telling it more."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.auth.access import (
    Condition,
    DatabaseDep,
    SettingsDep,
    clock_of,
    database_of,
    owner_of,
    requires,
    settings_of,
)
from app.auth.actions import Action
from app.auth.mutation import Answer, Begun, Conclude, IdempotencyKeyHeader, find_replay, mutate_waiting
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable
from app.events.lags import note_lags
from app.events.models import (
    EVENT_TYPE,
    ConfirmRead,
    ConfirmRequest,
    EventCreate,
    EventDetail,
    EventRead,
    MatrixRead,
)
from app.events.nodes import opened_node, refuse_copy
from app.events.queries import EventFilters, event_read, get_event, get_matrix, list_events, start_of
from app.events.service import check_confirmation, confirm_at
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.kit.values import Instant
from app.stores.api import StoreId, read_row
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind
from spark.events.events import create_sync
from spark.events.records import Confirmed
from spark.formats.slony import NODE_MAX, SEQNO_MAX

router = new_router(tags=["events"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.EVENTS_WRITE))]
FORCE = Condition(Scope.ADMIN, "`force` is true")
Confirmer = Annotated[Caller, Depends(requires(Scope.EVENTS_WRITE, FORCE))]

EVENTS = "/v1/stores/{store_id}/events"
CONFIRMATIONS = "/v1/stores/{store_id}/confirmations"
FILTERS_MAX: Final = 100
ACTING_MAX_S: Final = 120.0
"""Nobody waits for an answer of a target any longer: connecting and statements have shorter limits."""

Origin = Annotated[int, Path(ge=0, le=NODE_MAX, description="Node that made the event.")]
Number = Annotated[int, Path(ge=0, le=SEQNO_MAX, description="ev_seqno.")]
OriginFilter = Annotated[
    list[Annotated[int, Query(ge=0, le=NODE_MAX)]],
    Query(alias="origin", max_length=FILTERS_MAX, description="Only events of these nodes."),
]
TypeFilter = Annotated[
    list[Annotated[str, Query(pattern=EVENT_TYPE)]],
    Query(alias="type", max_length=FILTERS_MAX, description="Only events of these types, such as SYNC."),
]
SeqnoFilter = Annotated[int | None, Query(ge=0, le=SEQNO_MAX, description="Bound, inclusive.")]
TimeFilter = Annotated[Instant | None, Query(description="Bound of `created_at`, exclusive.")]


def slony_store(database: Database, store_id: str, caller: Caller) -> Store:
    """The row of a store of kind SLONY that the caller may see.

    Raises: StoreNotFound, StoreForbidden, StoreKindWrong.
    """
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.SLONY)
    return store


@router.get(
    EVENTS,
    response_model=Page[EventRead],
    summary="List a node's events",
    operation_id="list_events",
    responses=problems(404, 409, 502),
)
def get_events(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
    origins: OriginFilter = [],  # noqa: B006
    types: TypeFilter = [],  # noqa: B006
    from_seqno: SeqnoFilter = None,
    upto_seqno: SeqnoFilter = None,
    created_after: TimeFilter = None,
    created_before: TimeFilter = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[EventRead]:
    """In the order of origin and seqno. Asks the node: what it has cleaned away is not there any more."""
    store = slony_store(database, store_id, caller)
    filters = EventFilters(origins, types, from_seqno, upto_seqno, created_after, created_before)
    filters.check()
    after = start_of(page_token, filters, store_id)
    with opened_node(store, settings, database, purpose="events") as (conn, catalog):
        return list_events(conn, catalog, filters, store_id=store_id, after=after, page_size=page_size)


@router.get(
    EVENTS + "/{origin}/{seqno}",
    response_model=EventDetail,
    summary="Look at an event",
    operation_id="get_event",
    responses=problems(404, 409, 502),
)
def get_one_event(
    store_id: StoreId,
    origin: Origin,
    seqno: Number,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
) -> EventDetail:
    """With who has confirmed it, as this node knows; a confirmation is one of all older events too."""
    store = slony_store(database, store_id, caller)
    with opened_node(store, settings, database, purpose="events") as (conn, catalog):
        return get_event(conn, catalog, origin, seqno)


@router.get(
    CONFIRMATIONS,
    response_model=MatrixRead,
    summary="Who has confirmed what",
    operation_id="list_confirmations",
    responses=problems(404, 409, 502),
)
def get_confirmations(
    store_id: StoreId, caller: Reader, database: DatabaseDep, settings: SettingsDep
) -> MatrixRead:
    """Every pair of origin and receiver; who never confirmed anything is infinitely behind, not absent."""
    store = slony_store(database, store_id, caller)
    with opened_node(store, settings, database, purpose="confirmations") as (conn, catalog):
        return get_matrix(conn, catalog, seen=partial(_note, database, store.id))


def _note(database: Database, store_id: str, rows: Sequence[Confirmed]) -> None:
    """Keep the lags for `/metrics`; without metadata the answer is as good."""
    with suppress(MetadataUnavailable, MetadataBusy), database.transaction() as db:
        note_lags(db, store_id, rows, now=database.now(db))


@router.post(
    EVENTS,
    status_code=201,
    response_model=EventRead,
    summary="Make a SYNC",
    operation_id="create_event",
    responses=problems(404, 409, 502),
)
async def post_event(
    store_id: StoreId,
    body: EventCreate,
    request: Request,
    caller: Writer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """On this node, by its cluster's own function; 409 FUNCTIONS_MISSING where that is not installed."""
    replay = await run_in_threadpool(find_replay, request, caller, body=body)
    if replay is not None:
        return replay
    store = await run_in_threadpool(slony_store, database_of(request), store_id, caller)

    def act() -> Answer:
        settings, database = settings_of(request), database_of(request)
        opened = opened_node(store, settings, database, purpose="sync", read_only=False)
        with opened as (conn, catalog):
            refuse_copy(database, settings, store, conn, catalog)
            event = create_sync(conn, catalog)
        location = f"/v1/stores/{store_id}/events/{event.origin}/{event.seqno}"
        return Answer(body=event_read(event), status=201, headers={"Location": location})

    making = _AtTarget(request, store_id, subject_id=body.type, audit={"type": body.type}, act=act)
    return await mutate_waiting(
        request,
        caller,
        begin=making.begin,
        wait=making.wait,
        owner=owner_of(request),
        action=Action.EVENT_CREATE,
        subject_type="event",
        store=store_id,
        body=body,
    )


@router.post(
    CONFIRMATIONS,
    response_model=ConfirmRead,
    summary="Confirm an event for its receiver",
    operation_id="confirm_event",
    responses=problems(404, 409, 502),
)
async def post_confirmation(
    store_id: StoreId,
    body: ConfirmRequest,
    request: Request,
    caller: Confirmer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """It confirms all older events of the origin too. Confirmed again it changes nothing.

    Only what the receiver's own catalog holds is confirmed: else 409 NOT_PROCESSED_BY_RECEIVER, or
    RECEIVER_NOT_ASKED where the receiver is no registered store that answers.
    """
    if body.force:
        caller.require(FORCE.scope)
    replay = await run_in_threadpool(find_replay, request, caller, body=body)
    if replay is not None:
        return replay
    database, settings = database_of(request), settings_of(request)
    store = await run_in_threadpool(slony_store, database, store_id, caller)
    await run_in_threadpool(check_confirmation, database, settings, store, body)
    making = _AtTarget(
        request,
        store_id,
        subject_id=f"{body.origin}/{body.receiver}/{body.seqno}",
        audit=body.model_dump(),
        act=lambda: Answer(body=confirm_at(database, settings, store, body)),
    )
    return await mutate_waiting(
        request,
        caller,
        begin=making.begin,
        wait=making.wait,
        owner=owner_of(request),
        action=Action.EVENT_CONFIRM,
        subject_type="confirmation",
        store=store_id,
        body=body,
    )


@dataclass(frozen=True, slots=True)
class _AtTarget:
    """A change of a catalog: the audit row in a transaction before it, its answer in one after it."""

    request: Request
    store_id: str
    subject_id: str
    audit: dict[str, Any]
    act: Callable[[], Answer]

    def begin(self, _db: Session) -> Begun:
        """What will be done is written down before it is done."""
        until = clock_of(self.request).now() + timedelta(seconds=ACTING_MAX_S)
        return Begun(subject_id=self.subject_id, until=until, audit=self.audit)

    async def wait(self, _begun: Begun) -> Conclude:
        """Do it."""
        answer = await run_in_threadpool(self.act)
        return lambda _db: answer
