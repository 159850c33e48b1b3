"""The chain of a batch's records: computed, proved, and cut down to those that are applied."""

from __future__ import annotations

from spark.formats.arrow import pa
from spark.formats.changes.checks import csn_column, rids_of
from spark.formats.replica import tables_of
from spark.replication.consumer.arrival import Arrival, Sorted
from spark.replication.proofs.judging import prove_batch
from spark.replication.proofs.values import BatchProof
from spark.replication.records import Snapshot
from spark.targets.connection import Connection


def chain_of_applied(
    conn: Connection,
    found: Snapshot,
    arrival: Arrival,
    sorted_out: Sorted,
    proof: BatchProof | None,
    *,
    is_trusted: bool,
) -> pa.Array:
    """The chain of the records that are applied, which are those that the supplier's proof stands for.

    In the transaction that applies them.

    Args:
        found: this replica before them.
    Raises: HistoryDiverged, ChangesUnproven.
    """
    lasts = {rid: advance.last for rid, advance in sorted_out.advances.items()}
    records = sorted_out.applied
    is_whole = not sorted_out.refused and not sorted_out.halted
    if not is_whole:
        records = arrival.new_of(found.vectors.ruv, lasts)
    chain = prove_batch(
        conn,
        tables_of(conn),
        found.replica.rid,
        records,
        lasts,
        found.vectors.ruv,
        proof,
        is_trusted=is_trusted,
    )
    if is_whole:
        return chain
    is_applied = [
        csn <= lasts[rid].encode()
        for rid, csn in zip(
            rids_of(records.column("csn")).tolist(), csn_column(records.column("csn")).tolist(), strict=True
        )
    ]
    return chain.filter(pa.array(is_applied, pa.bool_()))
