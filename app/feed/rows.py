"""The feed as a table: what has happened, and the number under which streams tell it."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Index
from sqlmodel import Field, SQLModel

from app.db import JSON_TYPE, UtcDateTime


class FeedEvent(SQLModel, table=True):
    """One event, written in the transaction of its fact.

    Attributes:
        number: its place in the one order; None: it is committed, and nobody has numbered it yet.
        kind: that of a job; BACKUP, REPLICATION_SESSION.
        subject: what it is about, as a path below /v1: `jobs/job_...`.
        seq: grows with each event of a subject.
        token_id: who asked for a job of no store: who is limited to stores sees the own ones.
    """

    __tablename__ = "feed_events"
    __table_args__ = (
        Index("ix_feed_events_number", "number", unique=True),
        Index("ix_feed_events_at", "at"),
    )

    id: str = Field(primary_key=True, max_length=40)
    number: int | None = Field(default=None, sa_type=BigInteger)
    at: datetime = Field(sa_type=UtcDateTime)
    type: str = Field(max_length=40)
    kind: str = Field(max_length=40)
    store: str | None = Field(default=None, max_length=63)
    subject: str = Field(max_length=200)
    seq: int = Field(sa_type=BigInteger)
    token_id: str | None = Field(default=None, max_length=40)
    data: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)


class FeedNumber(SQLModel, table=True):
    """The last number that was given, in a row whose lock is the right to give them: of `feed`, of `changes`.

    Attributes:
        forgotten: the last number that retention has removed: who resumes before it has missed something.
    """

    __tablename__ = "feed_numbers"

    name: str = Field(primary_key=True, max_length=20)
    last: int = Field(default=0, sa_type=BigInteger)
    forgotten: int = Field(default=0, sa_type=BigInteger)
