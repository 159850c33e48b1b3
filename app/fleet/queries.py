"""Reads of the feed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlmodel import Session, col, select

from app.feed.numbering import NAME
from app.feed.rows import FeedEvent, FeedNumber
from app.stores.rows import Store


@dataclass(frozen=True, slots=True)
class NumberedEvent:
    """An event that has its number, and the labels that its store has now."""

    number: int
    event: FeedEvent
    labels: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reach:
    """From where to where numbers can be told: those above `forgotten`, up to `last`."""

    forgotten: int
    last: int

    def holds(self, number: int) -> bool:
        """Whether everything after a number can still be told."""
        return self.forgotten <= number <= self.last


def reach_of(db: Session) -> Reach:
    """What the feed has now."""
    row = db.get(FeedNumber, NAME)
    return Reach(0, 0) if row is None else Reach(row.forgotten, row.last)


def events_after(db: Session, number: int, *, limit: int) -> list[NumberedEvent]:
    """Events after a number, by number."""
    query = (
        select(FeedEvent, Store.labels)
        .join(Store, col(Store.id) == col(FeedEvent.store), isouter=True)
        .where(col(FeedEvent.number) > number)
        .order_by(col(FeedEvent.number))
        .limit(limit)
    )
    return [NumberedEvent(event.number or 0, event, labels or {}) for event, labels in db.execute(query)]
