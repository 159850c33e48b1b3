"""The rows of the recurring cleanup: one per store, while that is switched on."""

from datetime import datetime

from sqlmodel import Field as Column
from sqlmodel import SQLModel

from app.db import UtcDateTime


class CleanupTick(SQLModel, table=True):
    """When Lethe cleans a store's events by itself; there is a row only while that is switched on."""

    __tablename__ = "cleanup_ticks"

    store: str = Column(primary_key=True, max_length=63, foreign_key="stores.id", ondelete="CASCADE")
    interval_s: float
    next_at: datetime = Column(sa_type=UtcDateTime, index=True)
    last_at: datetime | None = Column(default=None, sa_type=UtcDateTime)
    last_outcome: str | None = Column(default=None, max_length=20)
    last_detail: str | None = Column(default=None, max_length=500)
    last_job_id: str | None = Column(default=None, max_length=40)
