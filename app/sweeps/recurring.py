"""One submission of a job that recurs by itself, and what became of it.

The folders that have such jobs each keep their own times; this is what all of them do when one is due.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session

from app.auth.actions import Action
from app.auth.rows import AuditEvent
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import ServiceError
from app.jobs.errors import ConflictingJob
from app.jobs.models import JobError
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.durations import Duration
from app.kit.ids import new_id
from app.stores.rows import Store, is_suspended

ACTOR: Final = "tick"
NOTED_MAX_CHARS: Final = 500


class TickOutcome(StrEnum):
    """What became of a tick."""

    SUBMITTED = "SUBMITTED"
    SKIPPED_RUNNING = "SKIPPED_RUNNING"
    SKIPPED_SUSPENDED = "SKIPPED_SUSPENDED"
    SKIPPED_REFUSED = "SKIPPED_REFUSED"


class LastJob(BaseModel):
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


def last_job_of(db: Session, job_id: str | None) -> dict[str, object]:
    """The fields of LastJob."""
    job = None if job_id is None else db.get(Job, job_id)
    if job is None:
        return {}
    return {"last_job_state": JobState(job.state), "last_job_error": job.error}


@dataclass(frozen=True, slots=True)
class Ticked:
    """What became of a tick: the job, or why there is none."""

    outcome: TickOutcome
    detail: str | None = None
    job_id: str | None = None

    def values(self) -> dict[str, str | None]:
        """The columns in which the rows of recurring jobs keep it."""
        return {
            "last_outcome": self.outcome.value,
            "last_detail": self.detail,
            "last_job_id": self.job_id,
        }


def submit_recurring(
    db: Session,
    store: Store,
    *,
    scope: Scope,
    submit: Callable[[Caller], Job],
    action: Action,
    detail: Callable[[Job], Mapping[str, object]],
    now: datetime,
) -> Ticked:
    """Submit a due job, with its audit row; a store that cannot have it now skips its turn.

    Args:
        store: locked by the caller.
        scope: all that the tick may do there.
        submit: inserts the job for the caller it is given.
        detail: what the audit row says of the job.
    """
    if is_suspended(store, now=now):
        return Ticked(TickOutcome.SKIPPED_SUSPENDED, store.suspended_reason)
    try:
        job = submit(Caller("", ACTOR, frozenset({scope}), frozenset({store.id})))
    except ConflictingJob as error:
        return Ticked(TickOutcome.SKIPPED_RUNNING, error.detail[:NOTED_MAX_CHARS])
    except ServiceError as error:  # the queue is full
        return Ticked(TickOutcome.SKIPPED_REFUSED, f"{error.code}: {error.detail}"[:NOTED_MAX_CHARS])
    db.add(
        AuditEvent(
            id=new_id("aud"),
            at=now,
            actor=ACTOR,
            action=action,
            subject_type="job",
            subject_id=job.id,
            store=store.id,
            detail=dict(detail(job)),
        )
    )
    return Ticked(TickOutcome.SUBMITTED, job_id=job.id)
