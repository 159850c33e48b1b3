"""From an acquire as it came over the wire to what the consumer's tables are asked.

A replica id is what a peer says, and keys are public: that it is the replica which it says, the peer proves
by a signature over this very acquire. Else whoever has a token could come as a supplier whom an admin trusts,
or spend what was granted to another one.
"""

from app.replication.consumer.models import AcquireRequest
from app.replication.replica.models import part_named
from app.settings import Settings
from spark.replication.proofs.identity import introduction, is_introduced
from spark.replication.session_errors import SupplierUnproven
from spark.replication.sessions.session import Acquire


def wanted_of(body: AcquireRequest, settings: Settings) -> Acquire:
    """What a supplier asks for, and what an admin here lets it say."""
    return Acquire(
        session_id=body.session_id,
        mode=body.mode,
        supplier_store=body.supplier.store,
        supplier_rid=body.supplier.rid,
        generation=body.supplier.generation,
        ruv=body.supplier.ruv,
        csn_now=body.supplier.csn_now,
        lease_s=body.lease.total_seconds(),
        discard_consumer_changes=body.discard_consumer_changes,
        capabilities=frozenset(body.supplier.capabilities),
        extinctions=body.supplier.extinctions,
        history=body.supplier.history,
        is_trusted=body.supplier.rid in settings.replication_trusted_suppliers,
        resuming=body.resuming.wanted(),
        part=part_named(body.part),
        holds=part_named(body.supplier.holds),
    )


def require_introduced(body: AcquireRequest, store_id: str) -> None:
    """Refuse a supplier that shows a key which it does not have; who shows none is let in, or not, elsewhere.

    Raises: SupplierUnproven.
    """
    supplier = body.supplier
    if supplier.history is None:
        return
    said = introduction(
        supplier.rid, store=store_id, session_id=body.session_id, csn_now=str(supplier.csn_now)
    )
    signature = bytes.fromhex(supplier.signature or "")
    if not is_introduced(supplier.history.key, said, signature):
        detail = f"the acquire is not signed by the key of replica {supplier.rid} that it shows"
        raise SupplierUnproven(detail, {"rid": supplier.rid})
