"""What clients may ask of jobs: submit, pause, resume, abort, retry, throttle.

Rules:
- every change of state is one guarded UPDATE along TRANSITIONS, with one event row beside it;
- a job whose earlier runner may still write is never declared PAUSED or ABORTED here: a runner proves
  silence at the target first.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, or_, text, update
from sqlmodel import Session, col, select

from app.errors import Conflict
from app.jobs.errors import ConflictingJob, IllegalTransition, QueueFull
from app.jobs.family import (
    PIECE,
    RESUME,
    forget_order,
    next_children,
    note_order,
)
from app.jobs.models import Subject, ThrottleSetting
from app.jobs.queries import get_job
from app.jobs.rows import Job, JobClaim, JobClass
from app.jobs.running.newer import labels_of
from app.jobs.states import TERMINAL, JobState, is_allowed
from app.jobs.writing import add_job, change_job, end_values, state_event
from app.kit.ids import new_id

GUARD_TRIES_MAX = 20
CHILDREN_MAX = 5_000
KEPT_BY_PAUSE = TERMINAL | {JobState.PAUSED, JobState.PAUSING, JobState.ABORTING}
"""Children that a pause of their parent leaves as they are."""
KEPT_BY_ABORT = TERMINAL | {JobState.ABORTING}
PART = ":"
"""Between a resource and a part of it: who claims the whole and who claims a part exclude each other."""
RETRIED = frozenset({JobState.FAILED, JobState.ABORTED, JobState.ABANDONED})


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to be made.

    Args:
        store: the store it works on; None for a parent of many.
        params: the snapshot that every attempt uses.
        runs_on: labels that its runner must have.
    """

    kind: str
    store: str | None
    params: Mapping[str, Any]
    requested_by: str
    token_id: str | None = None
    job_class: JobClass = JobClass.BULK
    runs_on: Sequence[str] = ()
    parent_id: str | None = None
    reason: str | None = None
    retried_from: str | None = None
    throttle: ThrottleSetting | None = None
    claim_identity: str | None = None
    claim_resource: str | None = None
    subject: Subject | None = None


def submit(db: Session, request: JobRequest, *, now: datetime, queued_max: int) -> Job:
    """Insert a QUEUED job and its first event.

    Raises: QueueFull.
    """
    if request.parent_id is None:
        waiting = db.exec(select(func.count()).select_from(Job).where(Job.state == JobState.QUEUED)).one()
        if waiting >= queued_max:
            raise QueueFull(queued_max)
    job = Job(
        id=new_id("job"),
        kind=request.kind,
        store=request.store,
        parent_id=request.parent_id,
        state=JobState.QUEUED,
        reason=request.reason,
        requested_by=request.requested_by,
        token_id=request.token_id,
        params=dict(request.params),
        created_at=now,
        updated_at=now,
        retried_from=request.retried_from,
        runs_on=sorted(set(request.runs_on)),
        runs_on_key=",".join(sorted({*request.runs_on, *labels_of(request.params)})),
        job_class=request.job_class,
        throttle_requested=request.throttle.model_dump() if request.throttle else None,
        claim_identity=request.claim_identity,
        claim_resource=request.claim_resource,
        subject=request.subject.model_dump() if request.subject else None,
    )
    add_job(db, job, now=now, event=state_event(JobState.QUEUED, reason=request.reason))
    return job


def whole_of(resource: str) -> str:
    """The resource of which one is a part, else itself."""
    return resource.rpartition(PART)[0] or resource


def shares(column: Any, resource: str) -> ColumnElement[bool]:
    """True for a resource, for the wholes of which it is a part, and for its parts (`whole:part`)."""
    wholes = [resource[:at] for at, letter in enumerate(resource) if letter == PART]
    return or_(column.in_([resource, *wholes]), column.startswith(resource + PART, autoescape=True))


def refuse_conflict(
    db: Session, *, store: str | None, identity: str | None, resource: str, but_resting: bool = False
) -> None:
    """Refuse a job that would write where another one does, before it is made.

    The claim at the first RUNNING decides; this answers early. Where a target's identity is not known
    yet, the same store is the same target.

    Args:
        but_resting: jobs that wait without claims stand in nobody's way.
    Raises: ConflictingJob.
    """
    serialise(db, identity or f"store:{store}")
    same_target = col(Job.store) == store
    if identity is not None:  # one that waits for another address of it holds nothing
        holds = and_(col(Job.claim_identity) == identity, col(Job.gave_back).is_(False))
        same_target = or_(same_target, holds)
    query = select(Job.id).where(
        shares(col(Job.claim_resource), resource), same_target, col(Job.state).not_in(sorted(TERMINAL))
    )
    if but_resting:
        query = query.where(col(Job.gave_back).is_(False))
    other = db.exec(query).first()
    if other is not None:
        raise ConflictingJob(other)


def serialise(db: Session, name: str) -> None:
    """Two submissions at once must see each other; SQLite's one writer does that by itself."""
    if db.get_bind().dialect.name == "postgresql":
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        db.execute(text("select pg_advisory_xact_lock(:n)"), {"n": number})


def transition(
    db: Session, job: Job, target: JobState, *, now: datetime, reason: str | None, actor: str
) -> bool:
    """Bring a job from the state it was read in to another, and tell whether nobody was faster."""
    values: dict[str, Any] = {"state": target}
    if target in TERMINAL:
        values = end_values(target, now) | {"silence_proved": target is not JobState.ABANDONED}
    elif target is JobState.QUEUED:
        values |= {"not_before": None, "waiting_on": [], "wake_key": None, "retries": 0, "crash_count": 0}
        values["unproven"] = job.unproven or job.state == JobState.PAUSING
    elif target in (JobState.PAUSING, JobState.ABORTING):
        values |= {"not_before": None, "wake_key": None, "waiting_on": []}
    if target in (JobState.ABORTING, JobState.ABORTED, JobState.ABANDONED):
        values["reason"] = reason or job.reason
    if target in TERMINAL:
        wake_parent(db, job.parent_id, now=now)  # first: parents are locked before children
    won = change_job(
        db,
        job.id,
        guards=[col(Job.state) == job.state, col(Job.version) == job.version],
        values=values,
        now=now,
        event=state_event(
            target,
            reason=reason,
            actor=actor,
            silence_proved=False if target is JobState.ABANDONED else None,
        ),
    )
    if won and target in TERMINAL:
        release_claims(db, job.id, now=now)
    return won


def _ask(
    db: Session,
    job_id: str,
    *,
    now: datetime,
    wanted: JobState,
    passing: JobState,
    reason: str | None,
    actor: str,
) -> Job:
    """Bring a job to `wanted` (through `passing` where a runner must prove silence first)."""
    for _ in range(GUARD_TRIES_MAX):
        db.expire_all()
        job = get_job(db, job_id)
        if job.state in (wanted, passing):
            return job
        if not (is_allowed(JobState(job.state), wanted) or is_allowed(JobState(job.state), passing)):
            raise IllegalTransition(job.state, wanted)
        through = job.state == JobState.RUNNING or job.unproven or not is_allowed(JobState(job.state), wanted)
        target = passing if through and is_allowed(JobState(job.state), passing) else wanted
        if not is_allowed(JobState(job.state), target):
            raise IllegalTransition(job.state, wanted)
        if transition(db, job, target, now=now, reason=reason, actor=actor):
            db.expire_all()
            return get_job(db, job_id)
    raise Conflict("the job changes too fast; try again", code="JOB_CHANGING")


def request_pause(db: Session, job_id: str, *, now: datetime, actor: str, reason: str | None = None) -> Job:
    """Pause a job and its children.

    Of many children these are the first; the parent's proof of silence pauses the others.

    Raises: JobNotFound, IllegalTransition.
    """
    children = _lead(db, job_id, but=KEPT_BY_PAUSE)
    job = _ask(
        db, job_id, now=now, wanted=JobState.PAUSED, passing=JobState.PAUSING, reason=reason, actor=actor
    )
    for child in children:
        with suppress(IllegalTransition):  # it has ended since
            request_pause(db, child, now=now, actor=actor, reason=reason)
    return job


def request_abort(db: Session, job_id: str, *, now: datetime, actor: str, reason: str | None = None) -> Job:
    """Abort a job and its children.

    Of many children these are the first; the parent's proof of silence aborts the others.

    Raises: JobNotFound, IllegalTransition.
    """
    children = _lead(db, job_id, but=KEPT_BY_ABORT)
    job = _ask(
        db, job_id, now=now, wanted=JobState.ABORTED, passing=JobState.ABORTING, reason=reason, actor=actor
    )
    for child in children:
        with suppress(IllegalTransition):  # it has ended since
            request_abort(db, child, now=now, actor=actor, reason=reason)
    return job


def request_resume(db: Session, job_id: str, *, now: datetime, actor: str, reason: str | None = None) -> Job:
    """Queue a paused job again, with its children; one that is still PAUSING goes on.

    Raises: JobNotFound, IllegalTransition.
    """
    for _ in range(GUARD_TRIES_MAX):
        db.expire_all()
        job = get_job(db, job_id)
        if job.state in (JobState.QUEUED, JobState.RUNNING, JobState.WAITING):
            return job
        if not is_allowed(JobState(job.state), JobState.QUEUED):
            raise IllegalTransition(job.state, JobState.QUEUED)
        # Its runner may have stopped by now: it hands the job back then.
        is_held = job.state == JobState.PAUSING and job.lease_instance is not None
        target = JobState.RUNNING if is_held else JobState.QUEUED
        if transition(db, job, target, now=now, reason=reason, actor=actor):
            break
    else:
        raise Conflict("the job changes too fast; try again", code="JOB_CHANGING")
    db.expire_all()
    job = get_job(db, job_id)
    resume_children(db, job_id, now=now, actor=actor, reason=reason)
    return job


def resume_children(
    db: Session, parent_id: str, *, now: datetime, actor: str, reason: str | None = None
) -> None:
    """Resume the next few children that are PAUSED; the parent's task does the rest."""
    children = next_children(db, parent_id, only=frozenset({JobState.PAUSED, JobState.PAUSING}))
    for child in children[:PIECE]:
        with suppress(IllegalTransition):  # it was aborted since
            request_resume(db, child, now=now, actor=actor, reason=reason)
    if len(children) > PIECE:
        note_order(db, parent_id, RESUME, {"actor": actor, "reason": reason}, now=now)
    else:
        forget_order(db, parent_id, RESUME)


def _lead(db: Session, parent_id: str, *, but: frozenset[JobState]) -> Sequence[str]:
    """The first children that a stop reaches; where more are left the parent has to prove their silence."""
    children = next_children(db, parent_id, but=but)
    forget_order(db, parent_id, RESUME)
    if len(children) > PIECE:
        db.execute(
            update(Job)
            .where(col(Job.id) == parent_id, col(Job.state).not_in(sorted(TERMINAL)))
            .values(unproven=True, version=Job.version + 1)
            .execution_options(synchronize_session=False)
        )
    return children[:PIECE]


def wake(db: Session, wake_key: str, *, now: datetime) -> None:
    """Let every job that waits for an event look again now."""
    db.execute(
        update(Job)
        .where(
            col(Job.wake_key) == wake_key,
            or_(col(Job.not_before).is_(None), col(Job.not_before) > now),
            col(Job.state).in_([JobState.WAITING, JobState.PAUSING, JobState.ABORTING]),
        )
        .values(not_before=now, version=Job.version + 1, updated_at=now)
        .execution_options(synchronize_session=False)
    )


def wake_ahead(db: Session, *, now: datetime, slack: timedelta) -> None:
    """Let every job look again now that was sent to wait by a clock that was ahead."""
    db.execute(
        update(Job)
        .where(
            col(Job.state).in_([JobState.WAITING, JobState.QUEUED]),
            col(Job.updated_at) > now + slack,
            col(Job.not_before) > now,
        )
        .values(not_before=now, version=Job.version + 1, updated_at=now)
        .execution_options(synchronize_session=False)
    )


def wake_parent(db: Session, parent_id: str | None, *, now: datetime) -> None:
    """Let a parent look at its children."""
    if parent_id is not None:
        # Also a parent that does not wait yet: before it does it looks at its children under this lock.
        db.exec(select(Job.id).where(Job.id == parent_id).with_for_update()).first()
        wake(db, children_key(parent_id), now=now)


def children_key(parent_id: str) -> str:
    """The event "a child of this job has changed"."""
    return f"children:{parent_id}"


def claim_key(target_identity: str, resource: str) -> str:
    """The event "this claim is free again"."""
    return f"claim:{target_identity}:{resource}"


def release_claims(db: Session, job_id: str, *, now: datetime) -> None:
    """Give back what a job held at its target, and wake who waits for it."""
    freed = db.execute(
        delete(JobClaim)
        .where(col(JobClaim.job_id) == job_id)
        .returning(col(JobClaim.target_identity), col(JobClaim.resource))
        .execution_options(synchronize_session=False)
    ).all()
    for target_identity, resource in freed:
        wake(db, claim_key(target_identity, resource), now=now)
