"""The confirmations and log tables of a node, kept by its checks: who looks at a page asks no node.

Rules:
- a check that cannot read the node, or not write it down, keeps nothing: what was seen before stays, with
  its time, and the check's findings stand;
- so many pairs and so many origins and sessions are kept at most; the others are at the node itself.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from sqlmodel import Session

from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable
from app.events.cleanup.switch.models import LogStatusRead
from app.events.cleanup.switch.report import status_read
from app.events.lags import note_lags
from app.events.models import PAIRS_MAX, ConfirmationRead, NodeStateRead
from app.events.queries import confirmation_read
from app.events.rows import NodeLook
from app.stores.rows import Store
from app.stores.service import target_of_row
from spark.events.cleaning.records import LogStatusRead as LogLook
from spark.events.records import Catalog, Confirmed

LISTED_MAX: Final = 100


def keep_look(
    database: Database,
    store: Store,
    catalog: Catalog,
    pairs: Sequence[Confirmed],
    log: LogLook | None,
    *,
    as_of: datetime,
    now: datetime,
) -> None:
    """Keep what a check has seen, and note how far receivers are behind.

    Args:
        as_of: by the node's own clock.
    """
    active = set(catalog.active)
    items = [confirmation_read(each, is_active=each.receiver in active) for each in pairs[:PAIRS_MAX]]
    values = {
        "at": now,
        "target": target_of_row(store),
        "local_node": catalog.local_node,
        "confirmations": [each.model_dump(mode="json") for each in items],
        "log_status": None if log is None else _bounded(status_read(store.id, catalog, log, as_of=as_of)),
    }
    with suppress(MetadataUnavailable, MetadataBusy), database.transaction(is_news=False) as db:
        kept = db.get(Store, store.id, with_for_update=True)
        if kept is None or target_of_row(kept) != target_of_row(store):
            return  # removed, or led to another node, while this one was asked
        row = db.get(NodeLook, store.id) or NodeLook(store=store.id, at=now, local_node=0)
        for name, value in values.items():
            setattr(row, name, value)
        db.add(row)
        note_lags(db, store.id, pairs, now=now)


def _bounded(status: LogStatusRead) -> dict[str, Any]:
    less = {"origins": status.origins[:LISTED_MAX], "blockers": status.blockers[:LISTED_MAX]}
    return status.model_copy(update=less).model_dump(mode="json")


def read_look(db: Session, store: Store) -> NodeStateRead:
    """What the last check of a node has kept; nothing, where the store was led to another node since."""
    row = db.get(NodeLook, store.id)
    if row is None or row.target != target_of_row(store):
        return NodeStateRead(
            store=store.id, checked_at=None, local_node=None, confirmations=[], log_status=None
        )
    return NodeStateRead(
        store=store.id,
        checked_at=row.at,
        local_node=row.local_node,
        confirmations=[ConfirmationRead.model_validate(each) for each in row.confirmations],
        log_status=None if row.log_status is None else LogStatusRead.model_validate(row.log_status),
    )
