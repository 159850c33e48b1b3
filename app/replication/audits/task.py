"""The task of an audit: what this replica and a consumer hold, compared; nothing is written."""

from collections.abc import Mapping
from typing import Any

from app.errors import ServiceError
from app.jobs.engines.choice import Engines
from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from app.jobs.running.suspension import awake_store
from app.jobs.writing import EVENT_WARNING
from app.replication.agreements.service import address_of, part_of
from app.replication.agreements.submitted import agreement_as_submitted
from app.replication.audits.models import (
    AuditParams,
    AuditResult,
    CsnRange,
    EntriesAuditRead,
    NotCompared,
    RidAuditRead,
)
from app.replication.audits.narrowing import Budget
from app.replication.audits.on_engine import Readers
from app.replication.audits.service import audit_changes, audit_entries, common_range
from app.replication.audits.sides import Sides, sides_of
from app.replication.peer.answers import PeerError, PeerReplica, shown_ruv
from app.replication.peer.client import PeerClient
from app.replication.rows import Agreement
from app.replication.supplier.signals import (
    failed_by_peer,
    is_waited_for,
    supplying_replica,
    waiting_for_peer,
)
from app.stores.rows import Store
from spark.formats.part import Part
from spark.replication.records import Snapshot
from spark.replication.replica.replica import snapshot
from spark.replication.session_errors import PartDiffers
from spark.replication.supplier.decide import Reason


def run_audit(context: JobContext, *, engines: Engines) -> Mapping[str, Any]:
    """Compare both sides, and return the result that clients see.

    Raises: JobSignal.
    """
    store = awake_store(context)
    params = AuditParams.model_validate(context.job.params)
    agreement = _agreement(context, store, params)
    part, readers = part_of(agreement), Readers(context, store, engines, params.engine)
    with supplying_replica(context, store) as conn, _client(context, agreement) as client:
        forget = context.on_cancel(client.cut)
        try:
            theirs = client.ruv()
            with conn.transaction(read_only=True):
                ours = snapshot(conn)
            with sides_of(context, conn, client, part=part) as sides:
                result = compare_sides(sides, readers, params, ours, theirs)
        except PeerError as error:
            context.check()  # an order to stop cuts the connections
            if is_waited_for(error):
                consumer = f"{client.address.url} {client.address.store}"
                raise waiting_for_peer(context, error, consumer=consumer, failures=1) from error
            raise failed_by_peer(error) from error
        finally:
            forget()
    if not result.agrees:
        differing = len(result.differing) + len(result.entries.differing)
        context.note(EVENT_WARNING, {"code": "REPLICAS_DIFFER", "count": differing})
    return result.model_dump(mode="json")


def _agreement(context: JobContext, store: Store, params: AuditParams) -> Agreement:
    """The agreement, whose consumer must be that of the submission."""
    return agreement_as_submitted(
        context, store, params.agreement_id, consumer=params.consumer, target=params.target
    )


def _client(context: JobContext, agreement: Agreement) -> PeerClient:
    try:
        return PeerClient(address_of(agreement, context.settings, context.database))
    except (ServiceError, PeerError) as error:
        raise JobFailed(error.code, error.detail) from error


def compare_sides(
    sides: Sides, readers: Readers, params: AuditParams, ours: Snapshot, theirs: PeerReplica
) -> AuditResult:
    """Compare what both sides hold in common, as they have described themselves.

    Raises: JobSignal; PeerError; ServiceError, TargetError, ReplicationRefused.
    """
    vectors = ours.vectors
    reason = _incomparable(ours, theirs, sides.part)
    if reason is not None:
        return _refused(reason, ours, theirs)
    budget = Budget()
    pieces = _common(params, ours, theirs)
    ranges = {rid: piece for rid, piece in pieces.items() if not isinstance(piece, NotCompared)}
    entries = EntriesAuditRead(not_compared=NotCompared.NOT_ASKED_FOR)
    with readers.lent(sides, ranges, entries=params.entries):
        changes = audit_changes(sides, ranges, budget)
        if params.entries:
            entries = audit_entries(sides, budget)
    rows = [
        RidAuditRead(rid=rid, not_compared=piece) if isinstance(piece, NotCompared) else changes[rid][0]
        for rid, piece in pieces.items()
    ]
    differing = [each for _, found in changes.values() for each in found]
    agrees = all(row.agrees is not False for row in rows) and entries.agrees is not False
    is_level = dict(vectors.ruv) == dict(theirs.ruv or {})
    was_compared = all(row.not_compared in (None, NotCompared.NOTHING_IN_COMMON) for row in rows)
    return AuditResult(
        agrees=agrees,
        complete=is_level and was_compared and entries.agrees is not None and params.range is None,
        reason=None,
        supplier_ruv=shown_ruv(vectors.ruv),
        consumer_ruv=None if theirs.ruv is None else shown_ruv(theirs.ruv),
        rids=rows,
        entries=entries,
        differing=differing,
        truncated=not agrees and budget.is_spent,
    )


def _common(params: AuditParams, ours: Snapshot, theirs: PeerReplica) -> dict[int, CsnRange | NotCompared]:
    """What is compared of each replica id, in their order."""
    vectors, asked = ours.vectors, params.range
    rids = sorted({*vectors.ruv, *(theirs.ruv or {})} if asked is None else asked)
    return {rid: common_range(rid, vectors, theirs, None if asked is None else asked[rid]) for rid in rids}


def _incomparable(ours: Snapshot, theirs: PeerReplica, part: Part | None) -> str | None:
    """Why the sides are of different worlds."""
    if theirs.ruv is None:
        return Reason.NO_RUV.value
    if ours.replica.generation != theirs.generation:
        return Reason.GENERATION_MISMATCH.value
    return PartDiffers.code if (ours.replica.part, theirs.part) != (None, part) else None


def _refused(reason: str, ours: Snapshot, theirs: PeerReplica) -> AuditResult:
    return AuditResult(
        agrees=False,
        complete=False,
        reason=reason,
        supplier_ruv=shown_ruv(ours.vectors.ruv),
        consumer_ruv=None if theirs.ruv is None else shown_ruv(theirs.ruv),
        rids=[],
        entries=EntriesAuditRead(not_compared=NotCompared.RUVS_DIFFER),
        differing=[],
        truncated=False,
    )
