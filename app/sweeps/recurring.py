"""One submission of a job that recurs by itself, and what became of it.

The folders that have such jobs each keep their own times; this is what all of them do when one is due.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlmodel import Session

from app.auth.actions import Action
from app.auth.rows import audited
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import ServiceError
from app.jobs.errors import ConflictingJob
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.stores.rows import Store, is_suspended
from app.sweeps.models import TickOutcome

ACTOR: Final = "tick"
NOTED_MAX_CHARS: Final = 500


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
    db.add(audited(action, ("job", job.id), at=now, actor=ACTOR, store=store.id, detail=detail(job)))
    return Ticked(TickOutcome.SUBMITTED, job_id=job.id)
