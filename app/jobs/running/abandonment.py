"""The end of a job by an admin's word, where its target is gone for good and nobody can prove it silent.

ABANDONED says: it ended here, and whether something of it still writes there is not known.

Rules:
- only a job whose target could not be asked is abandoned: it waits for a target that is away, or a proof of
  its silence has failed;
- its row says `silence_proved: false` for ever;
- nobody writes to its target again before it is shut out there: the sessions of the job are ended and gone,
  and the fence of its resource is above every token that it had. Whoever claims that target next does this
  first (jobs/sql_target), and so does `lethe recover` (jobs/recovery); a JE environment's epoch rises with
  each claim.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from sqlmodel import Session, col, select

from app.clock import Clock
from app.db import Database
from app.errors import Conflict
from app.jobs.errors import IllegalTransition, TargetNotGone
from app.jobs.queries import get_job
from app.jobs.rows import Job, JobCheckpoint
from app.jobs.service import GUARD_TRIES_MAX, transition
from app.jobs.states import JobState, is_allowed
from app.jobs.writing import EVENT_WARNING, change_job
from spark.targets.connection import Connection
from spark.targets.errors import FenceRaised, TargetUnreachable
from spark.targets.fence import raise_fence, read_fence
from spark.targets.ledger import has_ledger
from spark.targets.silence import running_statements, terminate_older

CHECKPOINT_TARGET: Final = "target"
"""What a job notes at its first claim of a SQL target: identity, resource, and whether there is a ledger."""
TARGET_SILENCE: Final = "TARGET_SILENCE"
GONE: Final = frozenset({TARGET_SILENCE, TargetUnreachable.code})
"""What a job waits on whose target could not be asked."""
ANY_TOKEN: Final = 2**62
"""Above every token: all sessions of a job, whichever attempt they belong to."""
ABANDONED_MAX: Final = 100
SILENCE_TRIES_MAX: Final = 50
SILENCE_WAIT_S: Final = 0.1


class AbandonedStillRuns(Conflict):
    """Something of an abandoned job runs at its target, and does not end when it is told to."""

    def __init__(self, job_id: str, names: str) -> None:
        super().__init__(
            f"{job_id} was abandoned, and still runs at its target: {names}; end these sessions there",
            extra={"job_id": job_id},
        )
        self.job_id = job_id


def abandon(db: Session, job_id: str, *, now: datetime, actor: str, reason: str) -> Job:
    """End a job without a proof that it is silent; its claims go back.

    Raises: JobNotFound, IllegalTransition, TargetNotGone.
    """
    for _ in range(GUARD_TRIES_MAX):
        db.expire_all()
        job = get_job(db, job_id)
        if job.state == JobState.ABANDONED:
            return job
        if not is_allowed(JobState(job.state), JobState.ABANDONED):
            raise IllegalTransition(job.state, JobState.ABANDONED)
        if not any(item["kind"] in GONE for item in job.waiting_on):
            raise TargetNotGone(job.state)
        if transition(db, job, JobState.ABANDONED, now=now, reason=reason, actor=actor):
            db.expire_all()
            return get_job(db, job_id)
    raise Conflict("the job changes too fast; try again", code="JOB_CHANGING")


def shut_out_abandoned(
    database: Database,
    conn: Connection,
    *,
    identity: str,
    owner: str,
    token: Callable[[Session], int],
    clock: Clock,
) -> list[str]:
    """Make sure that no abandoned job of a target writes there any more; returns those that were shut out.

    Args:
        owner: who stands at the fences from now on.
        token: gives one above every token of the abandoned jobs.
    Raises: AbandonedStillRuns; TargetError.
    """
    with database.reading() as db:
        query = (
            select(Job.id, Job.fencing_token, JobCheckpoint.value)
            .join(JobCheckpoint, col(JobCheckpoint.job_id) == col(Job.id))
            .where(
                JobCheckpoint.name == CHECKPOINT_TARGET,
                Job.state == JobState.ABANDONED,
                Job.claim_identity == identity,
                col(Job.fenced_off_at).is_(None),
            )
            .order_by(col(Job.id))
            .limit(ABANDONED_MAX)
        )
        abandoned = db.exec(query).all()
    for job_id, last_token, noted in abandoned:
        _end_sessions(conn, job_id, clock)
        if has_ledger(conn):
            with database.transaction() as db:
                greater = token(db)
            _raise_above(conn, str(noted["resource"]), last_token, token=greater, owner=owner)
        with database.transaction() as db:
            _note(db, job_id, by=owner, now=database.now(db))
    return [job_id for job_id, _, _ in abandoned]


def _end_sessions(conn: Connection, job_id: str, clock: Clock) -> None:
    """End every session of a job; a unit in work rolls back with its session."""
    for _ in range(SILENCE_TRIES_MAX):
        terminate_older(conn, job_id, token=ANY_TOKEN)
        running = running_statements(conn, job_id)
        if not running:
            return
        clock.sleep(SILENCE_WAIT_S)
    raise AbandonedStillRuns(job_id, ", ".join(sorted({item.application_name for item in running})))


def _raise_above(conn: Connection, resource: str, last_token: int, *, token: int, owner: str) -> None:
    """Raise a fence above the tokens of an ended job, unless somebody has since."""
    found = read_fence(conn, resource)
    if found is not None and found[0] > last_token:
        return
    with suppress(FenceRaised):  # somebody was faster, and is above it too
        raise_fence(conn, resource, token=token, owner=owner)


def _note(db: Session, job_id: str, *, by: str, now: datetime) -> None:
    detail = f"its target was met again: its sessions there are ended, and the fence is raised by {by}"
    change_job(
        db,
        job_id,
        guards=[col(Job.state) == JobState.ABANDONED, col(Job.fenced_off_at).is_(None)],
        values={"fenced_off_at": now},
        now=now,
        event=(EVENT_WARNING, {"code": "FENCED_OFF", "detail": detail}),
    )
