"""From an acquire as it came over the wire to what the consumer's tables are asked."""

from app.replication.consumer.models import AcquireRequest
from app.settings import Settings
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
    )
