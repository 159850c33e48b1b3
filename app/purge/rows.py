"""The rows of the recurring tick: one per store and kind, while that is switched on."""

from datetime import datetime

from sqlmodel import Field as Column
from sqlmodel import SQLModel

from app.db import UtcDateTime


class PurgeTick(SQLModel, table=True):
    """When Lethe purges a store by itself; there is a row only while that is switched on."""

    __tablename__ = "purge_ticks"

    store: str = Column(primary_key=True, max_length=63, foreign_key="stores.id", ondelete="CASCADE")
    kind: str = Column(primary_key=True, max_length=20)
    cron: str = Column(max_length=200)
    time_zone: str = Column(max_length=64)
    next_at: datetime = Column(sa_type=UtcDateTime, index=True)
    last_at: datetime | None = Column(default=None, sa_type=UtcDateTime)
    last_outcome: str | None = Column(default=None, max_length=20)
    last_detail: str | None = Column(default=None, max_length=500)
    last_job_id: str | None = Column(default=None, max_length=40)
