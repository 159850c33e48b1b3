"""`/v1/replicas/{store}`: a replica as its suppliers reach it, the consumer's side of every session.

Between services: no Idempotency-Key, for every request may be repeated as it is. Nothing here names a URL.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

from fastapi import Depends, Path, Query, Request
from pydantic import StringConstraints
from starlette.concurrency import run_in_threadpool

from app.auth.access import ClockDep, DatabaseDep, SettingsDep, requires, requires_one_of
from app.auth.actions import Action
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.clock import Clock
from app.db import Database
from app.errors import Conflict
from app.kit.http.routing import new_router
from app.kit.ids import new_id
from app.kit.problems import problems
from app.replication.consumer.acquire import require_introduced, wanted_of
from app.replication.consumer.applying import applying
from app.replication.consumer.batches import media_type_of, read_body
from app.replication.consumer.dead_letters.parking import ParkingLot
from app.replication.consumer.discards.grants import GrantConsent, naming_the_grant
from app.replication.consumer.errors import peer_problem
from app.replication.consumer.examples import ROW
from app.replication.consumer.fields import SESSION_ID
from app.replication.consumer.models import (
    AcquiredRead,
    AcquireRequest,
    AppliedRead,
    CompleteTotalRequest,
    LeaseRead,
    PeerLimits,
    PeerReplicaRead,
    PointRead,
    ReleasedRead,
    RenewLeaseRequest,
    ReplicaRuvRead,
    shown_vector,
)
from app.replication.consumer.service import Consumer, answered
from app.replication.peer.content_digest import DigestedRoute
from app.replication.replica.models import shown_keys
from app.settings import Settings
from app.stores.api import StoreId, read_row
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind
from spark.formats.changes.batch import ARROW_MEDIA_TYPE, NDJSON_MEDIA_TYPE
from spark.formats.csn import Csn
from spark.formats.ruv import Ruv, RuvElement, format_ruv
from spark.replication.consumer.apply import Applied
from spark.replication.errors import ReplicaMissing
from spark.replication.proofs.history_points import find_points
from spark.replication.proofs.shown_proofs import shown_history
from spark.replication.records import ReplicaStatus, Snapshot
from spark.replication.replica.replica import snapshot
from spark.replication.session_errors import ProofsMissing
from spark.replication.sessions.begin import CAPABILITIES
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Completion, acquire, complete_total, release, renew
from spark.targets.connection import Connection

router = new_router(tags=["replicas"], route_class=DigestedRoute)
SessionId = Annotated[str, Path(pattern=SESSION_ID)]
Peer = Annotated[Caller, Depends(requires(Scope.REPLICATION_PEER))]
Reader = Annotated[Caller, Depends(requires_one_of(Scope.REPLICATION_PEER, Scope.DATA_READ))]
Epoch = Annotated[int, Query(ge=1, le=2**62, description="As the lease was granted.")]
AT_MAX: Final = 200
CsnQuery = Annotated[str, StringConstraints(pattern="^[0-9a-f]{20}$")]
BatchSeq = Annotated[int, Query(ge=1, le=2**62, description="From 1 in each epoch, one after the other.")]
REPLICA = "/v1/replicas/{store_id}"
WITHOUT_PROOFS: Final = (
    "this supplier proves nothing of its history: upgrade it, or set LETHE_REPLICATION_UNPROVEN_PEERS here"
)
ONE = f"{REPLICA}/sessions/{{session_id}}"
_BATCH_BODY = {
    "requestBody": {
        "required": True,
        "description": "csn, prev, kind, database, key, payload; of a copy: database, key, value, csn, "
        "is_tombstone. Arrow IPC with zstd buffers, or NDJSON with bytes in base64.",
        "content": {
            ARROW_MEDIA_TYPE: {
                "schema": {"type": "string", "format": "binary"},
                "example": "an Arrow IPC stream",
            },
            NDJSON_MEDIA_TYPE: {"schema": {"type": "string"}, "example": ROW},
        },
    }
}


def parking_of(request: Request) -> ParkingLot:
    """The batches that this process holds."""
    found: ParkingLot = request.app.state.parking
    return found


def consumer_of(
    store_id: StoreId, caller: Peer, database: DatabaseDep, settings: SettingsDep, clock: ClockDep
) -> Consumer:
    """The replica behind the path.

    Raises: StoreForbidden, StoreNotFound, StoreKindWrong.
    """
    return _consumer(read_row(database, store_id, caller), database, settings, clock)


def seen_by(
    store_id: StoreId, caller: Reader, database: DatabaseDep, settings: SettingsDep, clock: ClockDep
) -> Consumer:
    """The replica behind the path, for whoever may read its changes.

    Raises: StoreForbidden, StoreNotFound, StoreKindWrong.
    """
    return _consumer(read_row(database, store_id, caller), database, settings, clock)


ConsumerDep = Annotated[Consumer, Depends(consumer_of)]


@router.post(
    f"{REPLICA}/sessions",
    status_code=201,
    response_model=AcquiredRead,
    summary="Acquire a replica",
    operation_id="acquire_replica",
    responses=problems(404, 409, 502),
)
def post_session(
    request: Request,
    store_id: StoreId,
    body: AcquireRequest,
    caller: Peer,
    database: DatabaseDep,
    settings: SettingsDep,
    clock: ClockDep,
) -> AcquiredRead:
    """Gives the lease to one supplier; the same session gets it again at once, in a new epoch.

    TOTAL empties the replica, unless the copy of the same session was cut off: it goes on behind
    `total.resume_after`. What only this replica has goes with `discard_consumer_changes` and a grant of an
    admin here (409 DISCARD_NOT_GRANTED), which is spent by it. A generation that differs is no error here:
    the supplier decides by the answer.
    """
    consumer = _consumer(read_row(database, store_id, caller), database, settings, clock)
    wanted = wanted_of(body, settings)
    if wanted.history is None and not settings.replication_unproven_peers:
        raise peer_problem(ProofsMissing(WITHOUT_PROOFS))
    with answered():
        require_introduced(body, store_id)
    consent = GrantConsent(
        database,
        store_id,
        caller=caller,
        supplier_rid=body.supplier.rid,
        session_id=body.session_id,
        request_id=request.state.request_id,
    )
    ahead_max_s = consumer.ahead_max_s
    with naming_the_grant(store_id, body.supplier.rid):
        found = consumer.begin(
            body.session_id,
            lambda conn: acquire(
                conn, wanted, now_s=consumer.now_s, ahead_max_s=ahead_max_s, consent=consent
            ),
        )
    asked = body.model_dump(mode="json", include={"mode", "discard_consumer_changes"})
    supplier = {"supplier": body.supplier.store, "supplier_rid": body.supplier.rid, "epoch": found.epoch}
    consumer.note(request, caller, Action.REPLICA_ACQUIRE, body.session_id, asked | supplier)
    return AcquiredRead.of(body.session_id, found, mode=body.mode, limits=_limits(settings))


@router.post(
    f"{ONE}/batches",
    response_model=AppliedRead,
    summary="Send a batch",
    operation_id="send_replica_batch",
    responses=problems(404, 409, 410, 415, 502),
    openapi_extra=_BATCH_BODY,
)
async def post_batch(
    request: Request,
    session_id: SessionId,
    caller: Peer,
    consumer: ConsumerDep,
    settings: SettingsDep,
    epoch: Epoch,
    batch_seq: BatchSeq,
) -> AppliedRead:
    """Applies changes and moves the RUV in one transaction, or changes nothing.

    A batch that comes too early waits for those before it, for 5 s at most. One that was applied before is
    answered again. Changes that the RUV covers are passed over and counted.
    """
    ticket = Ticket(session_id, epoch, batch_seq)
    with (
        answered(),
        parking_of(request).place(
            (consumer.store.id, session_id), token=caller.token_id, epoch=epoch, batch_seq=batch_seq
        ) as place,
    ):
        body, media_type = await read_body(request), media_type_of(request)

        def read() -> Callable[[Connection], Applied]:
            ahead_max_s = consumer.ahead_max_s
            return applying(
                ticket, body, media_type, settings, now_s=lambda: consumer.now_s, ahead_max_s=ahead_max_s
            )

        transact = await run_in_threadpool(read)
        found = await place.in_turn(partial(run_in_threadpool, consumer.attempt, transact))
        if found.rejected:  # also of a batch that came again: after the first one nobody may have told
            refused = [each.csn for each in found.rejected]
            await run_in_threadpool(consumer.tell_refused, session_id, refused)
        return AppliedRead.of(found)


@router.post(
    f"{ONE}/lease",
    response_model=LeaseRead,
    summary="Renew the lease of a replica",
    operation_id="renew_replica_lease",
    responses=problems(404, 409, 410, 502),
)
def post_lease(session_id: SessionId, body: RenewLeaseRequest, consumer: ConsumerDep) -> LeaseRead:
    """Every batch renews it too."""
    ticket, lease_s = Ticket(session_id, body.epoch), body.lease.total_seconds()
    return LeaseRead(expires_at=consumer.write(lambda conn: renew(conn, ticket, lease_s=lease_s)))


@router.post(
    f"{ONE}:complete-total",
    response_model=ReplicaRuvRead,
    summary="End the copy of a total initialisation",
    operation_id="complete_replica_total",
    responses=problems(404, 409, 410, 502),
)
def post_complete_total(
    session_id: SessionId, body: CompleteTotalRequest, consumer: ConsumerDep
) -> ReplicaRuvRead:
    """The replica takes the RUV and the generation with which the copy was begun; changes follow.

    It is not readable before the session is released with `complete=true`.
    """
    ruv = consumer.write(
        lambda conn: complete_total(
            conn,
            Ticket(session_id, body.epoch, body.batch_seq),
            ruv=body.ruv,
            generation=body.generation,
            now_s=consumer.now_s,
            buried=body.buried,
        )
    )
    return ReplicaRuvRead(ruv=shown_vector(ruv))


@router.delete(
    ONE,
    response_model=ReleasedRead,
    summary="Release a replica",
    operation_id="release_replica",
    responses=problems(404, 409, 410, 502),
)
def delete_session(
    request: Request,
    session_id: SessionId,
    caller: Peer,
    consumer: ConsumerDep,
    epoch: Epoch,
    complete: Annotated[
        bool, Query(description="TOTAL: changes made during the copy have followed; readable now.")
    ] = False,
    batch_seq: Annotated[
        int, Query(ge=0, le=2**62, description="With `complete`: the last batch that was answered.")
    ] = 0,
) -> ReleasedRead:
    """Again and again the same answer."""
    completion = Completion(new_id("inc"), consumer.adopt) if complete else None
    found = consumer.write(
        lambda conn: release(
            conn, Ticket(session_id, epoch, batch_seq), now_s=consumer.now_s, complete=completion
        )
    )
    detail = {"epoch": epoch, "complete": complete, "status": found.replica.status.value}
    consumer.note(request, caller, Action.REPLICA_RELEASE, session_id, detail)
    return ReleasedRead(ruv=shown_vector(found.ruv), status=found.replica.status.value)


@router.get(
    f"{REPLICA}/ruv",
    response_model=PeerReplicaRead,
    summary="Get the RUV of a replica",
    operation_id="get_replica_ruv",
    responses=problems(404, 409, 502),
)
def get_ruv(
    consumer: Annotated[Consumer, Depends(seen_by)],
    at: Annotated[
        list[CsnQuery] | None,
        Query(max_length=AT_MAX, description="CSNs whose place in this history is wanted: `points`."),
    ] = None,
) -> PeerReplicaRead:
    """Without a session, and without making anything. `ruv` is null where there is none, or half a copy."""
    wanted = {csn.rid: csn for csn in map(Csn, at or ())}
    try:
        return consumer.read(lambda conn: _with_history(conn, wanted))
    except Conflict as error:
        if error.code != ReplicaMissing.code:
            raise
        return _untouched(consumer.store)


def _with_history(conn: Connection, wanted: dict[int, Csn]) -> PeerReplicaRead:
    with conn.transaction(read_only=True):
        found = snapshot(conn)
        read = _shown(found)
        if read.ruv is None:
            return read
        read.history = shown_history(conn, found.vectors.ruv, found.replica.rid).document()
        read.points = {
            str(rid): PointRead(
                csn=wanted[rid],
                place=point.where.value,
                chain=None if point.chain is None else point.chain.hex(),
            )
            for rid, point in find_points(conn, wanted).items()
        }
    return read


def _untouched(store: Store) -> PeerReplicaRead:
    """A replica as its first use will make it."""
    assert store.rid is not None, "a store of kind REPLICA has a RID"
    has_generation = store.generation is not None
    status = ReplicaStatus.ONLINE if has_generation else ReplicaStatus.EMPTY
    generation = None if store.generation is None else Csn(store.generation)
    return PeerReplicaRead(
        rid=store.rid,
        status=status.value,
        generation=store.generation,
        incarnation="",
        ruv={} if has_generation else None,
        min={},
        purged={},
        lines=format_ruv(Ruv(generation)) if has_generation else [],
        capabilities=list(CAPABILITIES),
    )


def _consumer(store: Store, database: Database, settings: Settings, clock: Clock) -> Consumer:
    require_kind(store, StoreKind.REPLICA)
    return Consumer(database, settings, clock, store)


def _limits(settings: Settings) -> PeerLimits:
    return PeerLimits(
        batch_rows=settings.replication_batch_rows,
        batch_bytes=settings.replication_batch_max_bytes,
        in_flight=settings.replication_in_flight,
    )


def _shown(found: Snapshot) -> PeerReplicaRead:
    replica, vectors = found.replica, found.vectors
    is_whole = replica.generation is not None and replica.status is not ReplicaStatus.INITIALIZING
    elements = [
        # Nothing was logged here since a total initialisation: the line needs a first CSN all the same.
        RuvElement(rid, "", vectors.min.get(rid, csn), csn, vectors.last_modified_s.get(rid))
        for rid, csn in sorted(vectors.ruv.items(), key=lambda item: (item[0] != replica.rid, item[0]))
    ]
    generation = None if replica.generation is None else Csn(replica.generation)
    return PeerReplicaRead(
        rid=replica.rid,
        status=replica.status.value,
        generation=replica.generation if is_whole else None,
        incarnation=replica.incarnation,
        ruv=shown_vector(vectors.ruv) if is_whole else None,
        min=shown_vector(vectors.min) if is_whole else {},
        purged=shown_vector(vectors.purged) if is_whole else {},
        lines=format_ruv(Ruv(generation, tuple(elements))) if is_whole else [],
        capabilities=list(CAPABILITIES),
        part=shown_keys(replica.part),
        buried=replica.buried,
    )
