"""What a session shows of this replica's history, and how it judges the consumer's.

Rules:
- nothing is sent before both sides have compared their histories;
- a TOTAL shows that it has all that the consumer has before the consumer is emptied.
Source: decisions/0016.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from app.jobs.errors import JobFailed
from app.replication.replica.replicas import writer_turn
from app.replication.supplier.ground import Ground
from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.proofs.identity import introduction, sign_introduction
from spark.replication.proofs.judging import judge_consumer
from spark.replication.proofs.shown_proofs import shown_history
from spark.replication.proofs.values import History
from spark.replication.records import Snapshot
from spark.replication.session_errors import SessionRefused

if TYPE_CHECKING:
    from app.replication.supplier.lease import Lease

WITHOUT_PROOFS: Final = (
    "this consumer proves nothing of its history: upgrade it, or set LETHE_REPLICATION_UNPROVEN_PEERS here"
)


def introduced_history(ground: Ground, seen: Snapshot, ruv: Mapping[int, Csn], *, is_total: bool) -> History:
    """What an acquire shows; of a copy also that nothing of the consumer's is lost by it.

    Raises: PeerError.
    """
    covers: Mapping[int, Csn] | None = None
    if is_total and not ground.params.discard_consumer_changes:
        covers = ground.client.ruv().ruv
    return shown_history(ground.conn, ruv, seen.replica.rid, covers=covers)


def introduced(ground: Ground, seen: Snapshot, csn_now: Csn) -> str:
    """The signature that it is this replica which acquires."""
    said = introduction(
        seen.replica.rid,
        store=ground.client.address.store,
        session_id=ground.record.row.id,
        csn_now=str(csn_now),
    )
    return sign_introduction(ground.conn, tables_of(ground.conn), said).hex()


def compare_histories(ground: Ground, lease: "Lease", seen: Snapshot) -> frozenset[int]:
    """Compare the consumer's history with this replica's, after the acquire; what cannot be compared.

    Raises: JobFailed.
    """
    acquired = lease.acquired
    if acquired.history is None:
        return frozenset()
    is_same = lease.generation == seen.replica.generation
    ruv = dict(ground.record.ruv) if is_same else {}
    try:
        with writer_turn(ground.conn):
            found = judge_consumer(
                ground.conn,
                seen,
                acquired.consumer.rid,
                acquired.history,
                ruv,
                is_trusted=acquired.consumer.rid in ground.context.settings.replication_trusted_suppliers,
            )
    except SessionRefused as error:
        raise JobFailed(error.code, error.detail) from error
    return acquired.unproven.union(found)
