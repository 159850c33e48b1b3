"""Jobs as tables: the job, its events, checkpoint and claims, and the instances that run them."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from sqlalchemy import BigInteger, Column, ForeignKey, Index, String, Text, false, text
from sqlmodel import Field, SQLModel

from app.db import JSON_TYPE, UtcDateTime
from app.jobs.states import JobState


class JobClass(StrEnum):
    """Which slots of a runner a job takes."""

    INTERACTIVE = "INTERACTIVE"
    BULK = "BULK"


class JobBase(SQLModel):
    """The columns that clients see as they are."""

    kind: str = Field(max_length=40)
    store: str | None = Field(default=None, max_length=63)
    parent_id: str | None = Field(default=None, max_length=40)
    state: JobState = Field(sa_type=String(12))
    reason: str | None = Field(default=None, max_length=500)
    requested_by: str = Field(max_length=120)
    engine: Literal["INLINE", "SPARK"] = Field(default="INLINE", sa_type=String(10))
    params: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    result: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    created_at: datetime = Field(sa_type=UtcDateTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)
    not_before: datetime | None = Field(default=None, sa_type=UtcDateTime)
    attempt: int = Field(default=0, description="How often a runner has claimed it.")
    crash_count: int = Field(default=0, description="Crashes since it last made progress.")
    retries: int = Field(default=0, description="Transient failures since it last made progress.")
    retried_from: str | None = Field(default=None, max_length=40)
    runs_on: list[str] = Field(default_factory=list, sa_type=JSON_TYPE)
    silence_proved: bool | None = Field(
        default=None,
        description="Of a job that has ended: whether it is known that nothing of it writes any more."
        " False: ABANDONED, or FAILED with a target that could not be asked. Null: it has not ended.",
    )
    fenced_off_at: datetime | None = Field(
        default=None,
        sa_type=UtcDateTime,
        description="Of an ABANDONED job: when a later job, or a recover, shut it out at its target.",
    )


class Job(JobBase, table=True):
    """A running thing, whole: what it is to do, how far it is, and who holds it."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index("ix_jobs_claim", "state", "job_class", "not_before", "id"),
        Index(
            "ix_jobs_open",
            "job_class",
            "runs_on_key",
            "state",
            "id",
            postgresql_where=text("finished_at IS NULL"),
            sqlite_where=text("finished_at IS NULL"),
        ),
        Index(
            "ix_jobs_lease",
            "lease_expires_at",
            postgresql_where=text("lease_expires_at IS NOT NULL"),
            sqlite_where=text("lease_expires_at IS NOT NULL"),
        ),
        Index("ix_jobs_store_state", "store", "state", "id"),
        Index("ix_jobs_parent_id", "parent_id", "id"),
        Index("ix_jobs_wake_key", "wake_key"),
        Index("ix_jobs_finished_at", "finished_at"),
        Index("ix_jobs_claim_identity", "claim_identity", "claim_resource"),
        Index("ix_jobs_kind_state", "kind", "state", "store"),
        Index("ix_jobs_kind_id", "kind", "id"),
        Index("ix_jobs_state_id", "state", "id"),
        Index("ix_jobs_created_at", "created_at", "id"),
        Index("ix_jobs_waiting", "waiting_cause", "waiting_since"),
        Index(
            "ix_jobs_waiting_since",
            "waiting_since",
            "id",
            sqlite_where=text("waiting_since is not null"),
            postgresql_where=text("waiting_since is not null"),
        ),
        Index("ix_jobs_retried_from", "retried_from"),
    )

    id: str = Field(primary_key=True, max_length=40)
    job_class: JobClass = Field(default=JobClass.BULK, sa_type=String(12))
    runs_on_key: str = Field(default="", sa_type=Text, description="runs_on and level, as sorted text.")
    token_id: str | None = Field(default=None, max_length=40)
    version: int = Field(default=1)
    event_seq: int = Field(default=0)
    fencing_token: int = Field(default=0, sa_type=BigInteger)
    lease_instance: str | None = Field(default=None, max_length=40)
    lease_expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    unproven: bool = Field(default=False, description="An earlier runner may still write at the target.")
    wake_key: str | None = Field(default=None, max_length=450)
    claim_identity: str | None = Field(
        default=None, max_length=200, description="Of the target it writes to."
    )
    claim_resource: str | None = Field(default=None, max_length=200, description="What it writes there.")
    gave_back: bool = Field(
        default=False,
        sa_column_kwargs={"server_default": false()},
        description="It waits for a target that is away, or for a window, without claims.",
    )
    waiting_on: list[dict[str, Any]] = Field(default_factory=list, sa_type=JSON_TYPE)
    waiting_cause: str | None = Field(
        default=None,
        max_length=40,
        description="What it has waited for since then, looks and all.",
    )
    waiting_since: datetime | None = Field(default=None, sa_type=UtcDateTime)
    abort_asked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    throttle_requested: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    throttle_effective: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    throttle_cause: str | None = Field(default=None, max_length=40)
    progress: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    active_s: float = Field(default=0.0, description="Seconds of running, for the rate.")
    error: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    subject: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)


class JobEvent(SQLModel, table=True):
    """One event of a job; the sequence is assigned in the row's own transaction."""

    __tablename__ = "job_events"
    __table_args__ = (Index("ix_job_events_at", "at"),)

    job_id: str = Field(
        sa_column=Column(String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    )
    seq: int = Field(primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime)
    type: str = Field(max_length=40)
    data: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)


class JobCheckpoint(SQLModel, table=True):
    """What a job knows of its own progress, under a name."""

    __tablename__ = "job_checkpoints"

    job_id: str = Field(
        sa_column=Column(String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    )
    name: str = Field(primary_key=True, max_length=80)
    value: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    at: datetime = Field(sa_type=UtcDateTime)


class JobClaim(SQLModel, table=True):
    """Which job may write to which tables or files; unique, so that two never do."""

    __tablename__ = "job_claims"

    target_identity: str = Field(primary_key=True, max_length=200)
    resource: str = Field(primary_key=True, max_length=200)
    job_id: str = Field(sa_column=Column(String(40), ForeignKey("jobs.id"), nullable=False, index=True))
    since: datetime = Field(sa_type=UtcDateTime)


class Counter(SQLModel, table=True):
    """A number that only grows: the epoch that fencing tokens are taken from."""

    __tablename__ = "counters"

    name: str = Field(primary_key=True, max_length=40)
    value: int = Field(default=0, sa_type=BigInteger)


class InstanceBase(SQLModel):
    """A process that runs jobs."""

    hostname: str = Field(max_length=255)
    pid: int
    role: str = Field(max_length=10, description="serve or worker")
    version: str = Field(max_length=40)
    labels: list[str] = Field(default_factory=list, sa_type=JSON_TYPE)
    started_at: datetime = Field(sa_type=UtcDateTime)
    heartbeat_at: datetime = Field(sa_type=UtcDateTime)
    stopped_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class Instance(InstanceBase, table=True):
    """One row per data directory."""

    __tablename__ = "instances"

    id: str = Field(primary_key=True, max_length=40)
