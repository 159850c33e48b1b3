"""What one caller may see at one moment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, false, or_, true
from sqlmodel import col

from app.auth.service import Caller
from app.jobs.rows import Job


@dataclass(frozen=True, slots=True)
class Sight:
    """Narrows queries to what a caller may see.

    Args:
        now: the one instant of all of an answer.
        asked: a query of the stores that are asked for, where it is not about all of them.
    """

    caller: Caller
    now: datetime
    asked: Select[Any] | None = None

    @property
    def is_limited(self) -> bool:
        """Whether the caller sees some stores only."""
        return self.caller.stores is not None

    @property
    def stores(self) -> Sequence[str] | None:
        """The stores that it sees; None: all."""
        return self.caller.visible_stores()

    def of(self, asked: Select[Any] | None) -> "Sight":
        """The same for a question about some stores; jobs and instances of none are no part of its answer."""
        return replace(self, asked=asked)

    def sees(self, store: Any) -> ColumnElement[bool]:
        """Whether a row's store is seen."""
        seen = true() if self.stores is None else col(store).in_(self.stores)
        return seen if self.asked is None else and_(seen, col(store).in_(self.asked))

    def sees_job(self) -> ColumnElement[bool]:
        """Whether a job is seen: of a store, or an own one of none."""
        if self.stores is None or self.asked is not None:
            return self.sees(Job.store)
        is_own = and_(col(Job.store).is_(None), col(Job.token_id) == self.caller.token_id)
        return or_(col(Job.store).in_(self.stores), is_own)

    def sees_instances(self) -> ColumnElement[bool]:
        """Whether processes of the service are seen."""
        return false() if self.is_limited or self.asked is not None else true()
