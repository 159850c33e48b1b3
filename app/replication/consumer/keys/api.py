"""`/v1/stores/{s}/known-keys`: the keys by which a replica believes what others have written."""

from typing import Annotated, Final

from fastapi import Depends, Path, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import DatabaseDep, SettingsDep, database_of, requires, settings_of
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, find_replay, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import NotFound
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.agreements.sessions.api import replica_store
from app.replication.consumer.keys.models import (
    ReplicaKeyForget,
    ReplicaKeyPin,
    ReplicaKeyRead,
    ReplicaKeysRead,
    Rid,
)
from app.replication.replica.replicas import opened_replica, writer_turn
from app.stores.api import StoreId
from spark.replication.replica.named_keys import forget_key, pin_key, read_keys

router = new_router(tags=["replication"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]
PeerRid = Annotated[Rid, Path(description="Replica id of another replica.")]
ALL: Final = "/v1/stores/{store_id}/known-keys"
PURPOSE: Final = "keys"


class KeyNotFound(NotFound):
    """No key of the replica id is known."""


@router.get(
    ALL,
    response_model=ReplicaKeysRead,
    summary="List the keys that a replica knows",
    operation_id="list_known_keys",
    responses=problems(404, 409, 502),
)
def get_keys(
    store_id: StoreId, caller: Reader, database: DatabaseDep, settings: SettingsDep
) -> ReplicaKeysRead:
    """Its own first; keys are public."""
    store = replica_store(database, store_id, caller)
    with opened_replica(database, settings, store, purpose=PURPOSE, create=False) as conn:
        found = read_keys(conn)
    return ReplicaKeysRead(
        own=ReplicaKeyRead(rid=found.rid, key=found.own.hex()),
        known=[ReplicaKeyRead(rid=rid, key=key.hex()) for rid, key in sorted(found.others.items())],
    )


@router.post(
    ALL,
    status_code=201,
    response_model=ReplicaKeyRead,
    summary="Pin the key of another replica",
    operation_id="pin_known_key",
    responses=problems(404, 409, 502),
)
def post_key(
    store_id: StoreId,
    body: ReplicaKeyPin,
    request: Request,
    caller: Admin,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Before it is heard of, so that no peer says another one; 409 KEY_KNOWN where another one is known."""
    replay = find_replay(request, caller, body=body)
    if replay is not None:
        return replay
    database = database_of(request)
    store = replica_store(database, store_id, caller)
    instead_of = None if body.instead_of is None else bytes.fromhex(body.instead_of)
    with opened_replica(database, settings_of(request), store, purpose=PURPOSE) as conn, writer_turn(conn):
        pin_key(conn, body.rid, bytes.fromhex(body.key), instead_of=instead_of)

    def effect(_db: Session) -> Answer:
        shown = ReplicaKeyRead(rid=body.rid, key=body.key)
        return Answer(body=shown, status=201, audit=body.model_dump(mode="json"))

    return mutate(
        request,
        caller,
        effect,
        action=Action.KNOWN_KEY_PIN,
        subject=("store", store_id),
        store=store_id,
        body=body,
    )


@router.post(
    f"{ALL}/{{peer_rid}}:forget",
    response_model=ReplicaKeyRead,
    summary="Forget the key of another replica",
    operation_id="forget_known_key",
    responses=problems(404, 409, 502),
)
def post_forget(
    store_id: StoreId,
    peer_rid: PeerRid,
    body: ReplicaKeyForget,
    request: Request,
    caller: Admin,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Peers that still know it bring it back: forget it there too, or pin the right one here."""
    replay = find_replay(request, caller, body=body)
    if replay is not None:
        return replay
    database = database_of(request)
    store = replica_store(database, store_id, caller)
    with (
        opened_replica(database, settings_of(request), store, purpose=PURPOSE, create=False) as conn,
        writer_turn(conn),
    ):
        key = forget_key(conn, peer_rid)
    if key is None:
        raise KeyNotFound(f"no key of replica {peer_rid} is known here")

    def effect(_db: Session) -> Answer:
        shown = ReplicaKeyRead(rid=peer_rid, key=key.hex())
        return Answer(body=shown, audit=body.model_dump(mode="json") | shown.model_dump(mode="json"))

    return mutate(
        request,
        caller,
        effect,
        action=Action.KNOWN_KEY_FORGET,
        subject=("store", store_id),
        store=store_id,
        body=body,
    )
