"""`/v1/stores/{s}/replication-sessions:compare`: what a session would decide now; none is begun."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import Depends

from app.auth.access import DatabaseDep, SettingsDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.agreements.errors import peer_problem
from app.replication.agreements.service import address_of, get_agreement
from app.replication.agreements.sessions.api import replica_store
from app.replication.agreements.sessions.models import CompareRead, CompareRequest, ReplicaVectorsRead
from app.replication.decide.models import AnchorRead
from app.replication.peer.answers import PeerError, PeerReplica, shown_ruv
from app.replication.peer.client import PeerClient
from app.replication.replica.replicas import opened_replica
from app.stores.api import StoreId
from spark.formats.csn import Csn
from spark.replication.proofs.judging import Judged, judge_remote
from spark.replication.records import Snapshot
from spark.replication.replica.replica import snapshot
from spark.replication.supplier.backlog import count_missing
from spark.replication.supplier.decide import (
    Consumer,
    Decision,
    Outcome,
    Reason,
    Strategy,
    Supplier,
    Window,
    decide,
)
from spark.targets.connection import Connection

router = new_router(tags=["replication"])
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
COMPARE_TIMEOUT_S = 10.0


@router.post(
    "/v1/stores/{store_id}/replication-sessions:compare",
    response_model=CompareRead,
    summary="Compare a replica with a consumer",
    operation_id="compare_replicas",
    responses=problems(404, 409, 502),
)
def post_compare(
    store_id: StoreId, body: CompareRequest, caller: Reader, database: DatabaseDep, settings: SettingsDep
) -> CompareRead:
    """Asks the consumer for its RUV, without its lease; nothing is sent or changed on either side."""
    store = replica_store(database, store_id, caller)
    with database.reading() as db:
        agreement = get_agreement(db, store_id, body.agreement_id)
    address = address_of(agreement, settings, database)
    strategy = Strategy(body.strategy or agreement.strategy)
    with opened_replica(database, settings, store, purpose="compare") as conn:
        shown = snapshot(conn).vectors.ruv
        try:
            with PeerClient(address, answer_timeout_s=COMPARE_TIMEOUT_S) as client:
                theirs = client.ruv()
                asked = {rid: shown[rid] for rid in _ahead(shown, theirs)}
                points = client.ruv(at=list(asked.values())).points if asked else {}
        except PeerError as error:
            raise peer_problem(error) from error
        with conn.transaction(read_only=True):
            found = judge_remote(conn, asked, points, theirs.rid, theirs.history, theirs.ruv or {})
            return _compared(conn, snapshot(conn), theirs, strategy, found)


def _ahead(shown: Mapping[int, Csn], theirs: PeerReplica) -> list[int]:
    return [rid for rid, csn in (theirs.ruv or {}).items() if rid in shown and csn > shown[rid]]


def _outcome(decision: Decision, found: Judged) -> str:
    if decision.reason is not None and decision.reason is not Reason.PURGED:
        return decision.outcome.value
    if found.is_duplicate:
        return "DUPLICATE_RID"
    if found.diverged:
        return "DIVERGED"
    is_level = decision.outcome is Outcome.UP_TO_DATE
    return "UNPROVEN" if is_level and found.unproven else decision.outcome.value


def _compared(
    conn: Connection, ours: Snapshot, theirs: PeerReplica, strategy: Strategy, found: Judged
) -> CompareRead:
    vectors = ours.vectors
    decision = decide(
        Supplier(vectors.ruv, vectors.min, vectors.purged, ours.replica.generation),
        Consumer(theirs.ruv, theirs.generation),
        strategy=strategy,
    )
    missing = count_missing(conn, _lacked(decision, vectors.ruv, theirs.ruv or {}))
    anchor = decision.anchor
    return CompareRead(
        outcome=_outcome(decision, found),
        diverged=list(found.diverged),
        unproven=list(found.unproven),
        reason=None if decision.reason is None else decision.reason.value,
        need=list(decision.need),
        blocked_rids=list(decision.blocked_rids),
        anchor=None if anchor is None else AnchorRead(csn=anchor.csn, inclusive=anchor.inclusive),
        windows={str(rid): (each.after, each.upto) for rid, each in decision.windows.items()},
        missing={str(rid): missing[rid] for rid in sorted(missing)},
        missing_total=sum(missing.values()),
        consumer_ahead={
            str(rid): csn for rid, csn in sorted((theirs.ruv or {}).items()) if csn > vectors.ruv.get(rid, "")
        },
        supplier=ReplicaVectorsRead(
            rid=ours.replica.rid,
            status=ours.replica.status.value,
            generation=ours.replica.generation,
            ruv=shown_ruv(vectors.ruv),
            purged=shown_ruv(vectors.purged),
        ),
        consumer=ReplicaVectorsRead(
            rid=theirs.rid,
            status=theirs.status,
            generation=theirs.generation,
            ruv=None if theirs.ruv is None else shown_ruv(theirs.ruv),
            purged=shown_ruv(theirs.purged),
        ),
    )


def _lacked(decision: Decision, ours: Mapping[int, Csn], theirs: Mapping[int, Csn]) -> dict[int, Window]:
    """What the consumer lacks, of which only what is still in the changelog can be counted."""
    return {rid: Window(theirs.get(rid), ours[rid]) for rid in decision.need}
