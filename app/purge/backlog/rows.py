"""What waited at each SymmetricDS store, as tables: the last look, and looks over time."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Column, ForeignKey, Index, String
from sqlmodel import Field, SQLModel

from app.db import JSON_TYPE, UtcDateTime


def _store() -> Any:
    return Field(sa_column=Column(String(63), ForeignKey("stores.id", ondelete="CASCADE"), primary_key=True))


class BacklogLook(SQLModel, table=True):
    """The last look at a store's backlog.

    Attributes:
        at: by our clock, of the last look, whether it could read or not.
        target: the fields of the store that said which database it was.
        read_at, as_of: of the last look that could read, by our clock and by the target's; None: none could.
        problem: code of what kept the last look from reading; None: nothing.
        interval_s: seconds to the next look, when this one was made.
        found: the last look that could read, as BacklogNow.
        grows_since, grew_at: when the growth that is under way was noticed, and noticed last.
    """

    __tablename__ = "backlog_looks"

    store: str = _store()
    at: datetime = Field(sa_type=UtcDateTime)
    target: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    read_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    as_of: datetime | None = Field(default=None, sa_type=UtcDateTime)
    problem: str | None = Field(default=None, max_length=60)
    interval_s: int
    found: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    grows_since: datetime | None = Field(default=None, sa_type=UtcDateTime)
    grew_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class BacklogSample(SQLModel, table=True):
    """What waited, the last look of a piece of time; pieces of two lengths are kept beside each other.

    Attributes:
        step_s: the length.
        at: when it begins; a multiple of `step_s` since 1970.
        taken_at: when the look was made, by our clock.
        rows: of data, as `spark.purge.reading.backlog` counts them.
        is_at_least: there was more than was read.
        pairs: node, channel, batches, errors, rows, oldest_batch of those that were told.
        pairs_total: how many there were.
    """

    __tablename__ = "backlog_samples"
    __table_args__ = (Index("ix_backlog_samples_at", "step_s", "at"),)

    store: str = _store()
    step_s: int = Field(primary_key=True)
    at: datetime = Field(primary_key=True, sa_type=UtcDateTime)
    taken_at: datetime = Field(sa_type=UtcDateTime)
    batches: int = Field(sa_type=BigInteger)
    errors: int = Field(sa_type=BigInteger)
    rows: int = Field(sa_type=BigInteger)
    is_at_least: bool
    pairs: list[dict[str, Any]] = Field(default_factory=list, sa_type=JSON_TYPE)
    pairs_total: int
