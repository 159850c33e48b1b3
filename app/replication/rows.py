"""Replication as rows of the metadata: what is known of each replica, its agreements and its sessions.

The changes themselves, their vectors and what a consumer has acknowledged lie in the replica's own tables
(spark.formats.replica), in one transaction with what they describe. These rows hold what must survive the
replica, and what belongs to this service.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, Column, ForeignKey, Index, String, Text
from sqlmodel import Field, SQLModel

from app.db import JSON_TYPE, UtcDateTime


class AgreementState(StrEnum):
    """Whether an agreement is kept; a removed one holds its floor for a while (design.md, Replication).

    REGISTERING: its target does not know it yet, so trimming does not either.
    """

    REGISTERING = "REGISTERING"
    REGISTERED = "REGISTERED"
    REMOVED = "REMOVED"


class SessionState(StrEnum):
    """Where a session stands; the last one has an outcome."""

    PENDING = "PENDING"
    ACQUIRING = "ACQUIRING"
    SENDING = "SENDING"
    ENDED = "ENDED"


class SessionOutcome(StrEnum):
    """How a session ended."""

    UP_TO_DATE = "UP_TO_DATE"
    YIELDED = "YIELDED"
    NEEDS_TOTAL = "NEEDS_TOTAL"
    HALTED = "HALTED"
    FAILED = "FAILED"
    ABORTED = "ABORTED"
    DIVERGED = "DIVERGED"
    UNPROVEN = "UNPROVEN"


class ReplicaOwn(SQLModel, table=True):
    """What this service has told others of a replica: a target that has less was put back (design.md).

    Attributes:
        incarnation: of the target's replica row as it was last seen.
        own_max_csn: the greatest CSN of its own that was answered or offered to a peer; None: none yet.
    """

    __tablename__ = "replicas"

    store: str = Field(
        sa_column=Column(String(63), ForeignKey("stores.id", ondelete="CASCADE"), primary_key=True)
    )
    incarnation: str = Field(max_length=64)
    own_max_csn: str | None = Field(default=None, max_length=20)
    updated_at: datetime = Field(sa_type=UtcDateTime)


class Agreement(SQLModel, table=True):
    """A consumer that a store of kind REPLICA brings its changes to; where it is, is an admin's word.

    Attributes:
        consumer_token: `secret:NAME`, never its value.
        consumer_ca_file: the authority that the consumer's certificate is checked by; None: this machine's.
        consumer_rid: as its last answer told.
        interval_s: None: only on request.
        max_changes, max_duration_s: a session yields after them.
        in_flight: batches that are sent and not yet acknowledged.
        part: which keys are sent (spark.formats.part), never changed; None: all.
        next_at: when the next session of an interval, or after a failure, is due.
        failures: in a row, for the backoff.
        sent: changes sent since the agreement was made, by RID: [replayed, skipped].
        status: the last session's, in 389's words.
    """

    __tablename__ = "agreements"

    id: str = Field(primary_key=True, max_length=40)
    store: str = Field(
        sa_column=Column(String(63), ForeignKey("stores.id", ondelete="CASCADE"), nullable=False, index=True)
    )
    state: AgreementState = Field(default=AgreementState.REGISTERED, sa_type=String(12))
    consumer_url: str = Field(max_length=1000)
    consumer_store: str = Field(max_length=63)
    consumer_token: str = Field(max_length=1010)
    consumer_ca_file: str | None = Field(default=None, max_length=1000)
    consumer_rid: int | None = None
    strategy: str = Field(max_length=12)
    interval_s: float | None = None
    max_changes: int | None = Field(default=None, sa_type=BigInteger)
    max_duration_s: float | None = None
    batch_rows: int
    batch_bytes: int = Field(sa_type=BigInteger)
    in_flight: int
    part: list[Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    next_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    failures: int = 0
    sent: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    acknowledged: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    last_session_id: str | None = Field(default=None, max_length=40)
    last_started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_outcome: str | None = Field(default=None, max_length=20)
    last_code: str | None = Field(default=None, max_length=80)
    last_detail: str | None = Field(default=None, sa_type=Text)
    status: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    version: int = 1
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)
    removed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class ReplicationSession(SQLModel, table=True):
    """One session of a supplier with a consumer; it has one job.

    Attributes:
        epoch: of the consumer's lease; every acquire has a greater one.
        supplier, consumer: rid, generation, RUV and purge vector as they were at the last decision.
        windows, anchors: by RID, of the window under way.
        counters: by RID: read, sent, covered, beyond_snapshot, new_rid, duplicates, rejected, acknowledged.
        cursor: how far a total initialisation's copy is acknowledged.
        rows_read: rows that the changelog was asked for.
        problem: code, detail and facts of what ended it or last held it up.
    """

    __tablename__ = "replication_sessions"
    __table_args__ = (
        Index("ix_replication_sessions_store", "store", "id"),
        Index("ix_replication_sessions_agreement", "agreement_id", "id"),
    )

    id: str = Field(primary_key=True, max_length=40)
    store: str = Field(max_length=63)
    agreement_id: str = Field(max_length=40)
    job_id: str = Field(
        sa_column=Column(
            String(40), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, unique=True, index=True
        )
    )
    mode: str = Field(max_length=12)
    strategy: str = Field(max_length=12)
    engine: str = Field(default="INLINE", max_length=8)
    state: SessionState = Field(default=SessionState.PENDING, sa_type=String(12))
    outcome: SessionOutcome | None = Field(default=None, sa_type=String(12), nullable=True)
    epoch: int = Field(default=0, sa_type=BigInteger)
    max_changes: int | None = Field(default=None, sa_type=BigInteger)
    max_duration_s: float | None = None
    discard_consumer_changes: bool = False
    supplier: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    consumer: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    decision: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    windows: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    anchors: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    counters: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    cursor: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    windows_done: int = 0
    rows_read: int = Field(default=0, sa_type=BigInteger)
    batches_sent: int = Field(default=0, sa_type=BigInteger)
    bytes_sent: int = Field(default=0, sa_type=BigInteger)
    problem: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    version: int = 1
    created_at: datetime = Field(sa_type=UtcDateTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
