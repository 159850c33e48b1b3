"""Which supplier may bring what to a replica that holds a part of the keys, or is to become one.

Rules:
- what a replica holds and what a supplier sends are the same part, or nothing begins;
- only a blank replica becomes PARTIAL, by a total initialisation; one that holds everything never does, and a
  PARTIAL one never holds anything else: that is another replica;
- a PARTIAL replica supplies nobody, whatever it says of itself: what was withheld from it is taken by PARTIAL
  replicas alone.
"""

from __future__ import annotations

from spark.formats.arrow import np, pa, pc
from spark.formats.changes.checks import byte_lengths
from spark.formats.part import Part, shown_part
from spark.formats.replica import ReplicaTables
from spark.replication.proofs.chain import CHAIN_BYTES
from spark.replication.records import RecordKind, ReplicaRow, ReplicaStatus, SessionMode
from spark.replication.session_errors import PartDiffers, SupplierPartial
from spark.replication.sessions.calls import Acquire
from spark.targets.connection import Connection


def refuse_part(conn: Connection, tables: ReplicaTables, replica: ReplicaRow, request: Acquire) -> None:
    """Refuse a supplier that is PARTIAL itself, or sends other keys than this replica holds.

    Under the locks of the acquire. Raises: SupplierPartial, PartDiffers.
    """
    if request.holds is not None:
        raise SupplierPartial("the supplier holds some keys only: let one that holds all supply this replica")
    if request.part == replica.part:
        return
    facts = {"consumer": shown_part(replica.part), "supplier": shown_part(request.part)}
    if replica.part is not None:
        detail = "this replica holds other keys than the agreement sends: use its `keys`, or a new replica"
        raise PartDiffers(detail, facts)
    if request.mode is SessionMode.TOTAL and not _is_blank(conn, tables, replica):
        detail = "this replica holds, or was to hold, all keys: only a new one takes a part of them"
        raise PartDiffers(detail, facts)
    if request.mode is not SessionMode.TOTAL and replica.status is not ReplicaStatus.EMPTY:
        detail = "this replica holds all keys, the agreement sends some: use a new replica"
        raise PartDiffers(detail, facts)


def require_part_of_changes(part: Part | None, batch: pa.RecordBatch) -> None:
    """Refuse changes that a replica of this part must not get: they come from a supplier that errs.

    Raises: PartDiffers: nothing of the batch may be applied.
    """
    kinds = batch.column("kind")
    is_withheld = np.asarray(pc.equal(kinds, RecordKind.WITHHELD.value))
    if part is None:
        if is_withheld.any():
            raise PartDiffers("changes without their keys are for PARTIAL replicas; this one holds all keys")
        return
    is_change = np.asarray(pc.equal(kinds, RecordKind.CHANGE.value))
    if (is_change & ~part.covers(batch)).any():
        raise PartDiffers("a change of keys that this replica does not hold", {"consumer": part.document()})
    if (is_withheld & (byte_lengths(batch.column("payload")) != CHAIN_BYTES)).any():
        raise PartDiffers("a change without its keys has a digest, and no other length")


def require_part_of_entries(part: Part | None, batch: pa.RecordBatch) -> None:
    """Refuse entries of keys that a replica of this part does not hold.

    Raises: PartDiffers: nothing of the batch may be applied.
    """
    if part is not None and not part.covers(batch).all():
        raise PartDiffers("an entry of keys that this replica does not hold", {"consumer": part.document()})


def _is_blank(conn: Connection, tables: ReplicaTables, replica: ReplicaRow) -> bool:
    if replica.status is ReplicaStatus.INITIALIZING or replica.restored_upto is not None:
        return False
    names = (tables.ruv, tables.entries, tables.changelog)
    return not any(conn.execute(f"select 1 from {name} limit 1") for name in names)
