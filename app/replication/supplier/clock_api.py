"""`/v1/stores/{s}/clock`: whether a replica makes CSNs ahead of the clock, and its return to it."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import Depends, Request
from sqlmodel import Session, col, select
from starlette.responses import Response

from app.auth.access import ClockDep, DatabaseDep, SettingsDep, clock_of, database_of, requires, settings_of
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, find_replay, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.agreements.errors import peer_problem
from app.replication.agreements.service import address_of
from app.replication.agreements.sessions.api import replica_store
from app.replication.peer.answers import PeerError
from app.replication.peer.client import PeerClient
from app.replication.peer.clock import ahead_max_s_of, seconds_of
from app.replication.replica.replicas import find_expected, opened_replica, writer_turn
from app.replication.rows import Agreement, AgreementState
from app.replication.supplier.models import ClockRead, ClockRepairRead, ClockRepairRequest, ClockStandingRead
from app.settings import Settings
from app.stores.api import StoreId
from app.stores.rows import Store
from spark.formats.csn import Csn
from spark.replication.replica.clock_repair import Repaired, Standing, read_standing, repair_clock

router = new_router(tags=["replication"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]
ASK_TIMEOUT_S: Final = 10.0
CLOCK: Final = "/v1/stores/{store_id}/clock"


@router.get(
    CLOCK,
    response_model=ClockRead,
    summary="Look at the clock of a replica's CSNs",
    operation_id="get_replica_clock",
    responses=problems(404, 409, 502),
)
def get_clock(
    store_id: StoreId, caller: Reader, database: DatabaseDep, settings: SettingsDep, clock: ClockDep
) -> ClockRead:
    """Nothing is changed."""
    store = replica_store(database, store_id, caller)
    with database.reading() as db:
        ahead_max_s = ahead_max_s_of(db, store)
    now = clock.now()
    with opened_replica(database, settings, store, purpose="clock", create=False) as conn:
        seen, found = read_standing(conn, now_s=seconds_of(now))
    return ClockRead(
        now=now,
        status=seen.replica.status.value,
        standing=_shown(found),
        ahead_max=timedelta(seconds=ahead_max_s),
    )


@router.post(
    f"{CLOCK}:repair",
    response_model=ClockRepairRead,
    summary="Bring a replica's CSNs back to the clock",
    operation_id="repair_replica_clock",
    responses=problems(404, 409, 502),
)
def post_repair(
    store_id: StoreId,
    body: ClockRepairRequest,
    request: Request,
    caller: Admin,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Takes back only seconds that no change has used: every CSN to come stays above all that were given.

    Consumers are asked what they have of this replica, so that one whose target was restored gives no CSN
    again; one that does not answer is 503. Where a change is ahead itself, CSNs stand still right above it
    until the clock has come there.
    """
    replay = find_replay(request, caller, body=body)
    if replay is not None:
        return replay
    database, settings = database_of(request), settings_of(request)
    store = replica_store(database, store_id, caller)
    asked = [] if body.without_consumers else _consumers(database, store)
    known = [*_remembered(database, store), *_told_by(asked, store, settings, database)]
    now = clock_of(request).now()
    with (
        opened_replica(database, settings, store, purpose="clock", create=False) as conn,
        writer_turn(conn),
    ):
        done = repair_clock(conn, known=known, now_s=seconds_of(now))
    answer = _repaired(done, [each.id for each in asked], now=now)

    def effect(_db: Session) -> Answer:
        audit = body.model_dump(mode="json") | answer.model_dump(mode="json")
        return Answer(body=answer, audit=audit)

    return mutate(
        request,
        caller,
        effect,
        action=Action.STORE_REPAIR_CLOCK,
        subject=("store", store_id),
        store=store_id,
        body=body,
    )


def _consumers(database: Database, store: Store) -> list[Agreement]:
    with database.reading() as db:
        query = select(Agreement).where(
            Agreement.store == store.id, col(Agreement.state) != AgreementState.REMOVED
        )
        return list(db.exec(query).all())


def _remembered(database: Database, store: Store) -> list[Csn]:
    """What was answered or sent of the replica's own, as the metadata knows it."""
    expected = find_expected(database, store.id)
    return [] if expected is None or expected.own_max is None else [Csn(expected.own_max)]


def _told_by(asked: list[Agreement], store: Store, settings: Settings, database: Database) -> list[Csn]:
    """What consumers have of the replica's own changes.

    Raises: ServiceError: one of them does not tell.
    """
    found = []
    for agreement in asked:
        try:
            with PeerClient(
                address_of(agreement, settings, database), answer_timeout_s=ASK_TIMEOUT_S
            ) as client:
                theirs = (client.ruv().ruv or {}).get(store.rid or 0)
        except PeerError as error:
            raise peer_problem(error) from error
        if theirs is not None:
            found.append(theirs)
    return found


def _repaired(done: Repaired, asked: list[str], *, now: datetime) -> ClockRepairRead:
    return ClockRepairRead(
        now=now,
        before=_shown(done.before),
        after=_shown(done.after),
        floor=done.floor,
        level_at=max(now, _moment(done.after.timestamp)),
        consumers_asked=asked,
    )


def _shown(found: Standing) -> ClockStandingRead:
    return ClockStandingRead(
        next_at=_moment(found.timestamp),
        ahead=timedelta(seconds=found.ahead_s),
        by_peers=timedelta(seconds=found.by_peers_s),
    )


def _moment(timestamp: int) -> datetime:
    return datetime.fromtimestamp(timestamp, UTC)
