"""What one scrape may tell of, and the transaction that it reads in."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, true
from sqlmodel import Session, col


@dataclass(frozen=True, slots=True)
class Scrape:
    """One look at the metadata.

    Args:
        now: by the metadata database's clock.
        stores: the only stores that are told of, and nothing of the service itself; None: everything.
    """

    db: Session
    now: datetime
    stores: Sequence[str] | None = None

    def sees(self, store: Any) -> ColumnElement[bool]:
        """Narrows a query to the stores that are told of."""
        return true() if self.stores is None else col(store).in_(self.stores)

    def age_s(self, at: datetime | None) -> float:
        """Seconds since an instant; 0 where there was none."""
        return 0.0 if at is None else max(0.0, (self.now - at).total_seconds())
