"""What clients see of sweeps that another domain makes, and of those that recur."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, Field

from app.jobs.models import JobError
from app.jobs.states import JobState
from app.kit.durations import Duration
from app.kit.model import Model


class RidTrimRead(Model):
    """One replica id in a changelog."""

    rid: int
    rows: int = Field(description="Records in the changelog.")
    rows_eligible_by_age: int = Field(description="From the oldest on: logged here before the cut-off.")
    rows_to_remove: int = Field(description="By age or by count, and acknowledged by everybody.")
    rows_held: int = Field(description="Old enough, and not acknowledged by everybody.")
    held_by: list[str] = Field(description="Agreements that hold records back; empty: none does.")
    floor: str | None = Field(
        description="What all of them have acknowledged; null: nothing, or no agreement."
    )
    upto: str | None = Field(description="The last record that goes.")
    purged: str | None = Field(description="The greatest CSN that had left before.")
    purge_headroom: int = Field(
        description="Acknowledged records that stay: so far a consumer may fall back without a TOTAL."
    )


class TrimLimitsRead(Model):
    """The store's limits, and which of them the plan exceeds."""

    max_rows: int | None
    max_fraction: float | None
    exceeded: list[str]


class ChangelogPlanRead(Model):
    """What a purge CHANGELOG would do; nothing was written to the target."""

    plan_id: str
    store: str
    kind: Literal["CHANGELOG"]
    cutoff: datetime | None = Field(description="Null: nothing goes by its age.")
    retention_minutes: int | None
    retention_source: str
    max_entries: int | None = Field(description="Records that may stay; null: any number.")
    max_entries_source: str
    rows: int
    rows_to_remove: int
    rows_over_max_entries: int
    rids: list[RidTrimRead]
    limits: TrimLimitsRead
    expires_at: datetime


class RidTombstonesRead(Model):
    """The tombstones whose delete one replica id has made."""

    rid: int
    rows: int = Field(description="Of them among the entries.")
    rows_eligible_by_age: int = Field(description="Deleted before the cut-off, by the time in the CSN.")
    rows_to_remove: int = Field(description="Old enough, and no older change can come any more.")
    rows_held: int = Field(description="Old enough, and an older change may still come.")


class TombstonePlanRead(Model):
    """What a purge TOMBSTONES would do; nothing was written to the target."""

    plan_id: str
    store: str
    kind: Literal["TOMBSTONES"]
    cutoff: datetime | None = Field(description="Null: nothing is old enough.")
    retention_minutes: int | None
    retention_source: str
    gone_rids: list[int] = Field(description="Replica ids that are waited for no more.")
    entries: int = Field(description="Live ones and tombstones.")
    rows: int = Field(description="Tombstones.")
    rows_to_remove: int
    ceiling: str | None = Field(description="Above this CSN no tombstone may go; null: none may.")
    held_by: list[str] = Field(
        description="Agreements and replica ids that hold back what is old enough; empty: nobody does."
    )
    upto: str | None = Field(description="The greatest CSN that goes.")
    rids: list[RidTombstonesRead]
    limits: TrimLimitsRead
    expires_at: datetime


class TickOutcome(StrEnum):
    """What became of a tick."""

    SUBMITTED = "SUBMITTED"
    SKIPPED_RUNNING = "SKIPPED_RUNNING"
    SKIPPED_SUSPENDED = "SKIPPED_SUSPENDED"
    SKIPPED_REFUSED = "SKIPPED_REFUSED"


class LastJob(Model):
    """What became of the job that a tick submitted last: SUBMITTED alone says nothing of its end."""

    last_job_state: JobState | None = Field(
        default=None, description="Of the last job, now; null: there is none, or it is forgotten."
    )
    last_job_error: JobError | None = Field(default=None, description="Why the last job failed.")


class IntervalTickRead(LastJob):
    """What recurs at a store by an interval: when it comes next, and what became of the last."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "interval": "PT10M",
                    "next_at": "2026-11-20T08:12:05Z",
                    "last_at": "2026-11-20T08:02:05Z",
                    "last_outcome": "SUBMITTED",
                    "last_detail": None,
                    "last_job_id": "job_01kaw3gq8m0f4t5v6w7x8y9z0a",
                    "last_job_state": "SUCCEEDED",
                    "last_job_error": None,
                }
            ]
        }
    )

    interval: Duration = Field(description="Between the beginnings of two.")
    next_at: datetime
    last_at: datetime | None
    last_outcome: TickOutcome | None = Field(description="Null: none has come yet.")
    last_detail: str | None
    last_job_id: str | None
