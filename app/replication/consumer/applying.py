"""What a batch that has arrived does at the consumer, in one transaction: changes, or entries of a copy."""

from __future__ import annotations

from collections.abc import Callable

from app.replication.consumer.batches import bound_of, read_batch
from app.settings import Settings
from spark.replication.consumer.apply import Applied, apply_batch, apply_entries
from spark.replication.records import record_schema
from spark.replication.sessions.row import Ticket
from spark.targets.connection import Connection


def applying(
    ticket: Ticket,
    body: bytes,
    media_type: str,
    settings: Settings,
    *,
    now_s: Callable[[], int],
    ahead_max_s: int,
) -> Callable[[Connection], Applied]:
    """Read a body; the transaction that applies it, which may be tried again.

    Args:
        now_s: this service's clock, asked at each try.
    Raises: UnsupportedMediaType, BatchUnreadable, BatchTooLarge.
    """
    batch, proof = read_batch(body, media_type, settings)
    if batch.schema == record_schema():
        trusted = settings.replication_trusted_suppliers
        return lambda conn: apply_batch(
            conn,
            ticket,
            batch,
            now_s=now_s(),
            ahead_max_s=ahead_max_s,
            proof=proof,
            trusted_rids=trusted,
        )
    buried = bound_of(body, media_type)
    return lambda conn: apply_entries(
        conn, ticket, batch, now_s=now_s(), ahead_max_s=ahead_max_s, buried=buried
    )
