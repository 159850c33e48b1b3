"""The rows of what recurs: one per store and kind, while the store asks for it."""

from datetime import datetime

from sqlmodel import Field as Column
from sqlmodel import SQLModel

from app.db import UtcDateTime


class SweepTick(SQLModel, table=True):
    """When Lethe sweeps a store by itself; there is a row only while the store asks for that.

    Attributes:
        kind: of the sweep: that of a purge, CHANGELOG, EVENT_CLEANUP.
        cron, time_zone: when, by the calendar; else `interval_s`: seconds between two.
    """

    __tablename__ = "sweep_ticks"

    store: str = Column(primary_key=True, max_length=63, foreign_key="stores.id", ondelete="CASCADE")
    kind: str = Column(primary_key=True, max_length=20)
    cron: str | None = Column(default=None, max_length=200)
    time_zone: str | None = Column(default=None, max_length=64)
    interval_s: float | None = None
    next_at: datetime = Column(sa_type=UtcDateTime, index=True)
    last_at: datetime | None = Column(default=None, sa_type=UtcDateTime)
    last_outcome: str | None = Column(default=None, max_length=20)
    last_detail: str | None = Column(default=None, max_length=500)
    last_job_id: str | None = Column(default=None, max_length=40)
