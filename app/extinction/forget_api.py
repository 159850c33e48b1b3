"""`/v1/stores/{s}/extinction-availability:forget`: a supplier that is gone for good is in no one's way.

Only an admin knows that it will not come again. The metadata keeps the request first, then the target
forgets: a request that dies between the two goes on there when it is repeated with its Idempotency-Key.
"""

from datetime import timedelta
from functools import partial
from typing import Annotated, Final

from fastapi import Depends, Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.auth.access import clock_of, database_of, owner_of, requires, settings_of
from app.auth.actions import Action
from app.auth.mutation import Answer, Begun, Conclude, IdempotencyKeyHeader, find_replay, mutate_waiting
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import ServiceError
from app.extinction.errors import PeerIsConsumer, SupplierNotFound
from app.extinction.models import AvailabilityRead, ForgetRequest, read_availability
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.agreements.sessions.api import replica_store
from app.replication.replica.refusals import NoReplicaYet
from app.replication.replica.replicas import opened_replica, writer_turn
from app.stores.api import StoreId
from app.stores.rows import Store
from app.stores.service import lock_unchanged
from spark.replication.sessions.peers import LackingPeer, PeerRole, availability, forget_supplier, role_of

router = new_router(tags=["extinction"])
Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]
FORGET_MAX: Final = timedelta(seconds=30)
"""So long another instance takes a request for alive."""


@router.post(
    "/v1/stores/{store_id}/extinction-availability:forget",
    response_model=AvailabilityRead,
    summary="Forget a supplier that is gone for good",
    operation_id="forget_supplier",
    responses=problems(404, 409, 502),
)
async def post_forget(
    store_id: StoreId,
    body: ForgetRequest,
    request: Request,
    caller: Admin,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """REPLICA stores: extinctions wait for it no more; the answer is the availability without it.

    One that acquires again is noted anew. Extinctions that it has announced are awaited still.
    """
    replay = await run_in_threadpool(find_replay, request, caller, body=body)
    if replay is not None:
        return replay
    store = await run_in_threadpool(replica_store, database_of(request), store_id, caller)
    forgetting = _Forgetting(request, store, body)
    await run_in_threadpool(forgetting.look)
    return await mutate_waiting(
        request,
        caller,
        begin=forgetting.begin,
        wait=forgetting.wait,
        owner=owner_of(request),
        action=Action.SUPPLIER_FORGET,
        subject_type="supplier",
        store=store_id,
        body=body,
    )


class _Forgetting:
    """A look at the target, the request in the metadata, and then the target forgets."""

    def __init__(self, request: Request, store: Store, body: ForgetRequest) -> None:
        self._request = request
        self._store = store
        self._body = body
        self._refusal: ServiceError | None = None

    def look(self) -> None:
        """Find out what the name is. What `begin` refuses, a request that is taken up may have forgotten.

        Raises: ServiceError: the target cannot be asked.
        """
        request, name = self._request, self._body.supplier
        try:
            with opened_replica(
                database_of(request), settings_of(request), self._store, purpose="extinctions", create=False
            ) as conn:
                role = role_of(conn, name)
        except NoReplicaYet:
            role = None
        if role is PeerRole.CONSUMER:
            self._refusal = PeerIsConsumer(name)
        elif role is None:
            self._refusal = SupplierNotFound()

    def begin(self, db: Session) -> Begun:
        """Who wants it, and why.

        Raises: SupplierNotFound, PeerIsConsumer, StoreChanged.
        """
        if self._refusal is not None:
            raise self._refusal
        lock_unchanged(db, self._store, lambda store: (store.kind, store.url))
        until = clock_of(self._request).now() + FORGET_MAX
        return Begun(self._body.supplier, until, audit={"reason": self._body.reason})

    async def wait(self, begun: Begun) -> Conclude:
        """Let the target forget; another request may have done it meanwhile."""
        lacking = await run_in_threadpool(self._forget)
        return partial(self._answer, lacking)

    def _forget(self) -> tuple[LackingPeer, ...]:
        request = self._request
        with opened_replica(
            database_of(request), settings_of(request), self._store, purpose="extinctions", create=False
        ) as conn:
            with writer_turn(conn):
                forget_supplier(conn, self._body.supplier)
            return availability(conn)

    def _answer(self, lacking: tuple[LackingPeer, ...], _db: Session) -> Answer:
        return Answer(body=read_availability(lacking))
