"""What changes of a store itself, told in the feed."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlmodel import Session

from app.feed.writing import STORE, announce_change


class StoreChange(StrEnum):
    """What has changed."""

    ADDED = "ADDED"
    CHANGED = "CHANGED"
    REMOVED = "REMOVED"
    SUSPENDED = "SUSPENDED"
    RESUMED = "RESUMED"
    HEALTH = "HEALTH"


def tell_change(db: Session, store_id: str, change: StoreChange, *, now: datetime, **data: Any) -> None:
    """Write the event of a change; the store's row, or that of its health, is locked."""
    announce_change(
        db,
        "store",
        kind=STORE,
        store=store_id,
        subject=f"stores/{store_id}",
        data={"change": str(change), **data},
        now=now,
    )
