"""What a wait is, and which waits somebody has to be told of: the one rule of overview, figures and webhooks.

Rules:
- a job waits while its row says for what; one that has woken to look shows nothing for that moment, keeps
  `waiting_since`, and does not wait while it works;
- one that no runner has taken waits for that (QUEUED), and is told like any other;
- what somebody has planned (a pace, a window, a confirmation with a deadline of its own, children that are
  told of themselves) is told to nobody, and has no deadline;
- what somebody has ordered (a store that rests, an eraser that is off) is told, and never fails a job;
  nor does the queue: who tries again stands at its end.
"""

from typing import Any, Final

from sqlalchemy import ColumnElement, Text, and_, cast, exists, or_
from sqlmodel import col

from app.jobs.counting import QUEUED
from app.jobs.rows import Job, JobCheckpoint
from app.jobs.states import JobState
from app.kit.instants import instant_text

PLANNED: Final = frozenset({"THROTTLE", "CHILDREN", "CONFIRMATION", "WINDOW"})
ORDERED: Final = frozenset({"STORE_SUSPENDED", "ERASER_DISABLED"})
NEVER_FAILS: Final = ORDERED | {QUEUED}
RESTING: Final = (JobState.QUEUED, JobState.WAITING, JobState.PAUSING, JobState.ABORTING)
NOTHING: Final = "[]"
MARK: Final = "wait_is_late"
"""The checkpoint of a job whose wait is past its deadline: it is of the wait that began before it."""


def waits_now() -> ColumnElement[bool]:
    """Whether a job waits at this moment, rather than looks or works."""
    shows = cast(Job.waiting_on, Text) != NOTHING
    return and_(col(Job.waiting_since).is_not(None), or_(col(Job.state).in_(RESTING), shows))


def waits_unplanned() -> ColumnElement[bool]:
    """Whether a job waits for something that nobody has planned."""
    return and_(waits_now(), col(Job.waiting_cause).not_in(sorted(PLANNED)))


def is_marked_late() -> ColumnElement[bool]:
    """Whether the wait of a job is past its deadline."""
    return exists().where(
        col(JobCheckpoint.job_id) == col(Job.id),
        col(JobCheckpoint.name) == MARK,
        col(JobCheckpoint.at) >= col(Job.waiting_since),
    )


def wait_facts(job: Job) -> dict[str, Any]:
    """What webhooks are told of a wait: codes and names alone."""
    assert job.waiting_since is not None, "it waits"
    return {
        "job_id": job.id,
        "kind": job.kind,
        "store": job.store,
        "state": str(job.state),
        "waiting_on": causes_of(job),
        "waits_since": instant_text(job.waiting_since),
    }


def causes_of(job: Job) -> list[str]:
    """What a job waits for: the kinds; one that looks again at this moment, what it has waited for.

    One that stands in the queue waits for a runner: other versions leave there what it waited for before.
    """
    if job.state == JobState.QUEUED:
        return [QUEUED]
    kinds = sorted({str(item["kind"]) for item in job.waiting_on})
    return kinds or [str(job.waiting_cause)]
