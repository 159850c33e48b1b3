"""Schedules as tables: what comes when, and which due times were fired."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, String, Text
from sqlmodel import Field, SQLModel

from app.db import JSON_TYPE, UtcDateTime
from app.schedules.rules import MissedRuns, ScheduleOverlap


class Schedule(SQLModel, table=True):
    """A verb that comes by a cron, for a store or for all stores with some labels.

    Attributes:
        store: None: the stores that have all of `labels` when it comes.
        token_id: of the token that wrote it: it acts with the rights that this token has when it comes.
        next_due: the next time of its cron; None: none will come, or it is paused.
        next_at: when that is looked at: with the jitter, or, while it waits for its last job, soon.
        queued_due: the due time that waits for the last job to end.
        reckoned_at: when `next_due` was reckoned; a clock that shows less was put back since.
    """

    __tablename__ = "schedules"
    __table_args__ = (
        Index("ix_schedules_next_at", "next_at"),
        Index("ix_schedules_reckoned_at", "reckoned_at"),
        Index("ix_schedules_store", "store"),
    )

    id: str = Field(primary_key=True, max_length=40)
    name: str | None = Field(default=None, max_length=100)
    verb: str = Field(max_length=40)
    body: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    store: str | None = Field(default=None, max_length=63, foreign_key="stores.id", ondelete="CASCADE")
    labels: dict[str, str] = Field(default_factory=dict, sa_type=JSON_TYPE)
    cron: str = Field(max_length=200)
    time_zone: str = Field(max_length=64)
    jitter_s: int = 0
    overlap: ScheduleOverlap = Field(sa_type=String(10))
    missed: MissedRuns = Field(sa_type=String(10))
    is_paused: bool = False
    token_id: str = Field(max_length=40)
    created_by: str = Field(max_length=120)
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)
    next_due: datetime | None = Field(default=None, sa_type=UtcDateTime)
    next_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    queued_due: datetime | None = Field(default=None, sa_type=UtcDateTime)
    reckoned_at: datetime = Field(sa_type=UtcDateTime)
    last_due: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_outcome: str | None = Field(default=None, max_length=20)
    last_detail: str | None = Field(default=None, sa_type=Text)
    last_job_id: str | None = Field(default=None, max_length=40)


class ScheduleFiring(SQLModel, table=True):
    """A due time that was fired, written in the transaction that submits its job; unique, so once."""

    __tablename__ = "schedule_firings"
    __table_args__ = (Index("ix_schedule_firings_fired_at", "fired_at"),)

    schedule_id: str = Field(primary_key=True, max_length=40, foreign_key="schedules.id", ondelete="CASCADE")
    due_at: datetime = Field(primary_key=True, sa_type=UtcDateTime)
    fired_at: datetime = Field(sa_type=UtcDateTime)
    outcome: str = Field(max_length=20)
    job_id: str | None = Field(default=None, max_length=40)
