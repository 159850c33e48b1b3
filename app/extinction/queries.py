"""Reading extinctions."""

from collections.abc import Sequence

from sqlmodel import Session, col, select

from app.extinction.errors import ExtinctionNotFound
from app.extinction.models import AttestedRead, ExtinctionRead
from app.extinction.records import extinction_of
from app.extinction.rows import ENDED, ExtinctionRow, ExtinctionState
from app.extinction.verdicts import shown
from app.kit.pagination import Page, read_page
from app.stores.rows import Store, StoreKind


def get_extinction(db: Session, store_id: str, extinction_id: str) -> ExtinctionRow:
    """The row of an extinction at a store.

    Raises: ExtinctionNotFound.
    """
    row = db.get(ExtinctionRow, (store_id, extinction_id))
    if row is None:
        raise ExtinctionNotFound("there is no such extinction at this store")
    return row


def list_extinctions(
    db: Session, store: Store, *, states: Sequence[ExtinctionState], page_size: int, page_token: str
) -> Page[ExtinctionRead]:
    """Extinctions of a store, newest first."""
    filters = {"list": "extinctions", "store": store.id, "states": sorted(states)}
    query = select(ExtinctionRow).where(ExtinctionRow.store == store.id)
    if states:
        query = query.where(col(ExtinctionRow.state).in_(list(states)))
    return read_page(
        db,
        query,
        col(ExtinctionRow.id),
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=lambda row: read_extinction(row, store),
    )


def read_extinction(row: ExtinctionRow, store: Store) -> ExtinctionRead:
    """An extinction as clients see it."""
    fields = shown(extinction_of(row), in_base64=store.kind == StoreKind.REPLICA)
    names = ("state", "origin", "reason", "requested_by", "csn", "records", "bytes", "hint", "job_id")
    times = ("created_at", "logged_at", "done_at")
    values = {name: getattr(row, name) for name in (*names, *times)}
    attested = None
    if row.attested_at is not None:
        attested = AttestedRead(by=row.attested_by or "", at=row.attested_at, reason=row.attest_reason or "")
    return ExtinctionRead(
        **fields,
        **values,
        store=row.store,
        active=row.state not in ENDED,
        java_filter=row.has_java_filter,
        attested=attested,
    )
