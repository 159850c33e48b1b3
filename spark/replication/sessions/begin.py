"""The beginning of a total initialisation at its consumer: what it would discard is not discarded unasked."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from spark.formats.replica import ReplicaTables
from spark.replication.proofs.judging import require_covered
from spark.replication.records import ReplicaRow, ReplicaStatus, Vectors
from spark.replication.replica.local_write import forget_given_up
from spark.replication.replica.part_row import put_part
from spark.replication.replica.replica import save_replica
from spark.replication.session_errors import (
    ConsumerAhead,
    DiscardNotGranted,
    GenerationMismatch,
    HistoryDiverged,
)
from spark.replication.sessions.calls import Acquire
from spark.replication.sessions.peers import CAPABILITY
from spark.replication.sessions.row import SessionRow, TotalCopy
from spark.replication.sessions.supplying import require_not_supplying
from spark.targets.connection import Connection

PART_CAPABILITY: Final = "PART"
TOMBSTONES_CAPABILITY: Final = "TOMBSTONES"
"""It keeps the bound up to which its supplier's tombstones were purged."""
CAPABILITIES: Final = (
    "CHANGE",
    "KEEPALIVE",
    "TOTAL",
    "ARROW_ZSTD",
    CAPABILITY,
    "HISTORY",
    PART_CAPABILITY,
    TOMBSTONES_CAPABILITY,
)
"""What this replica takes, as both sides tell at acquire."""


def begin_total(
    conn: Connection,
    tables: ReplicaTables,
    row: SessionRow,
    replica: ReplicaRow,
    vectors: Vectors,
    request: Acquire,
    consent: Callable[[], bool],
) -> SessionRow:
    """Empty a replica for a copy, or go on with the one that this session, or one before it, has begun.

    Raises: GenerationMismatch, ReplicaSupplies, ConsumerAhead, HistoryDiverged, DiscardNotGranted.
    """
    if request.generation is None:
        raise GenerationMismatch(
            "the supplier has no generation yet", {"supplier": None, "consumer": replica.generation}
        )
    if row.total is not None and _resumes(row, row.total, replica, request):
        return replace(row, total=replace(row.total, session_id=request.session_id))
    require_not_supplying(row, replica.status)
    is_discarding = False
    if replica.status is not ReplicaStatus.INITIALIZING:
        try:
            _refuse_ahead(conn, tables, replica, vectors, request)
        except (ConsumerAhead, HistoryDiverged) as ahead:
            _require_consent(ahead, request, consent)
            is_discarding = True
            is_ahead_only = isinstance(ahead, ConsumerAhead) and replica.generation == request.generation
            kept = request.ruv.get(replica.rid) if is_ahead_only else None
            forget_given_up(conn, tables, after=kept)
        else:
            _require_trust(conn, tables, vectors, request, consent)
    _empty(conn, tables)
    if request.part is not None and replica.part is None:  # it is blank: the acquire has looked
        put_part(conn, request.part)
    initializing = replace(replica, generation=None, status=ReplicaStatus.INITIALIZING)
    own = vectors.ruv.get(replica.rid)
    if own is not None and not is_discarding:
        # The supplier has them now; it may be put back before the copy is complete.
        initializing = replace(initializing, restored_upto=max(own, replica.restored_upto or own))
    save_replica(conn, tables, initializing)
    heads = {} if request.history is None else request.history.heads
    total = TotalCopy(
        request.session_id, request.supplier_rid, request.generation, dict(request.ruv), heads=heads
    )
    return replace(row, total=total, cursor=None)


def _resumes(row: SessionRow, total: TotalCopy, replica: ReplicaRow, request: Acquire) -> bool:
    """Whether what was copied is part of what this supplier has still, and nothing of it was lost here."""
    asked = request.resuming
    return (
        replica.status is ReplicaStatus.INITIALIZING
        and not asked.is_anew
        and total.session_id in (request.session_id, *asked.sessions)
        and (total.supplier_rid, total.generation) == (request.supplier_rid, request.generation)
        # Put back from a backup in the middle of its copy: nobody knows what else it has forgotten.
        and (total.is_copied or asked.after is None or (row.cursor or (b"", b"")) >= asked.after)
        and all(csn <= request.ruv.get(rid, "") for rid, csn in total.ruv.items())
    )


def _refuse_ahead(
    conn: Connection, tables: ReplicaTables, replica: ReplicaRow, vectors: Vectors, request: Acquire
) -> None:
    if replica.generation == request.generation:
        ahead = [rid for rid, csn in vectors.ruv.items() if csn > request.ruv.get(rid, "")]
        holds = bool(ahead)
    else:
        ahead = list(vectors.ruv)
        holds = bool(ahead) or bool(conn.execute(f"select 1 from {tables.entries} limit 1"))
    if holds:
        raise ConsumerAhead("the replica holds changes that the supplier lacks", {"rids": sorted(ahead)})
    if request.history is not None:
        require_covered(conn, vectors.ruv, request.history)


def _require_consent(
    ahead: ConsumerAhead | HistoryDiverged, request: Acquire, consent: Callable[[], bool]
) -> None:
    """Raise unless the supplier asks to discard what it lacks, and an admin here has granted it."""
    if not request.discard_consumer_changes:
        raise ahead
    if not consent():
        detail = f"no admin here has granted replica {request.supplier_rid} to discard what it lacks"
        raise DiscardNotGranted(detail, {**ahead.facts, "supplier_rid": request.supplier_rid}) from ahead


def _require_trust(
    conn: Connection, tables: ReplicaTables, vectors: Vectors, request: Acquire, consent: Callable[[], bool]
) -> None:
    """Raise unless the replica is blank, or an admin here takes the supplier's word for what others wrote.

    No replica has signed the entries of a copy, and that the supplier has all that is here it can show with
    what this replica tells every peer.
    """
    is_blank = not vectors.ruv and not conn.execute(f"select 1 from {tables.entries} limit 1")
    if is_blank or request.is_trusted or consent():
        return
    detail = (
        f"no admin here has granted replica {request.supplier_rid} to put a copy in the place of what is here"
    )
    raise DiscardNotGranted(detail, {"rids": sorted(vectors.ruv), "supplier_rid": request.supplier_rid})


def _empty(conn: Connection, tables: ReplicaTables) -> None:
    names = (tables.changelog, tables.entries, tables.ruv, tables.points, tables.signed_heads)
    if conn.dialect.name == "postgresql":
        conn.execute(f"truncate {', '.join(names)}")
        return
    for name in names:
        conn.execute(f"delete from {name}")
