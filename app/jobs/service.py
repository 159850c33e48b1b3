"""What clients may ask of jobs: submit, pause, resume, abort, retry, throttle.

Invariants:
- every change of state is one guarded UPDATE along TRANSITIONS, with one event row beside it;
- a job whose earlier runner may still write is never declared PAUSED or ABORTED here: a runner proves
  silence at the target first.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, or_, text, update
from sqlmodel import Session, col, select

from app.errors import Conflict, ServiceError
from app.jobs.errors import ConflictingJob, IllegalTransition, QueueFull
from app.jobs.family import (
    PIECE,
    RESUME,
    RETRY,
    SUBMIT,
    THROTTLE,
    forget_order,
    next_children,
    note_order,
    read_order,
)
from app.jobs.models import Job, JobClaim, JobClass, JobEvent, Subject, ThrottleSetting
from app.jobs.queries import get_job
from app.jobs.states import TERMINAL, JobState, is_allowed
from app.jobs.writing import EVENT_THROTTLE, change_job, end_values, state_event
from app.kit.ids import new_id

GUARD_TRIES_MAX = 20
CHILDREN_MAX = 5_000
KEPT_BY_PAUSE = TERMINAL | {JobState.PAUSED, JobState.PAUSING, JobState.ABORTING}
"""Children that a pause of their parent leaves as they are."""
KEPT_BY_ABORT = TERMINAL | {JobState.ABORTING}


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
        runs_on_key=",".join(sorted(set(request.runs_on))),
        job_class=request.job_class,
        event_seq=1,
        throttle_requested=request.throttle.model_dump() if request.throttle else None,
        claim_identity=request.claim_identity,
        claim_resource=request.claim_resource,
        subject=request.subject.model_dump() if request.subject else None,
    )
    db.add(job)
    db.flush()
    kind, data = state_event(JobState.QUEUED, reason=request.reason)
    db.add(JobEvent(job_id=job.id, seq=1, at=now, type=kind, data=data))
    db.flush()
    return job


def refuse_conflict(db: Session, *, store: str | None, identity: str | None, resource: str) -> None:
    """Refuse a job that would write where another one does, before it is made.

    The claim at the first RUNNING decides; this answers early. Where a target's identity is not known
    yet, the same store is the same target.

    Raises: ConflictingJob.
    """
    _serialise_submissions(db, identity or f"store:{store}")
    same_target = col(Job.store) == store
    if identity is not None:
        same_target = or_(same_target, col(Job.claim_identity) == identity)
    other = db.exec(
        select(Job.id).where(
            col(Job.claim_resource) == resource, same_target, col(Job.state).not_in(sorted(TERMINAL))
        )
    ).first()
    if other is not None:
        raise ConflictingJob(other)


def _serialise_submissions(db: Session, name: str) -> None:
    """Two submissions at once must see each other; SQLite's one writer does that by itself."""
    if db.get_bind().dialect.name == "postgresql":
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        db.execute(text("select pg_advisory_xact_lock(:n)"), {"n": number})


def _transition(
    db: Session, job: Job, target: JobState, *, now: datetime, reason: str | None, actor: str
) -> bool:
    values: dict[str, Any] = {"state": target}
    if target in TERMINAL:
        values = end_values(target, now)
    elif target is JobState.QUEUED:
        values |= {"not_before": None, "waiting_on": [], "wake_key": None, "retries": 0, "crash_count": 0}
    elif target in (JobState.PAUSING, JobState.ABORTING):
        values |= {"not_before": None, "wake_key": None, "waiting_on": []}
    if target is JobState.ABORTING or target is JobState.ABORTED:
        values["reason"] = reason or job.reason
    if target in TERMINAL:
        wake_parent(db, job.parent_id, now=now)  # first: parents are locked before children
    won = change_job(
        db,
        job.id,
        guards=[col(Job.state) == job.state, col(Job.version) == job.version],
        values=values,
        now=now,
        event=state_event(target, reason=reason, actor=actor),
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
        if _transition(db, job, target, now=now, reason=reason, actor=actor):
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
    """Queue a paused job again, with its children.

    Raises: JobNotFound, IllegalTransition.
    """
    job = get_job(db, job_id)
    if job.state in (JobState.QUEUED, JobState.RUNNING, JobState.WAITING):
        return job
    job = _ask(
        db, job_id, now=now, wanted=JobState.QUEUED, passing=JobState.QUEUED, reason=reason, actor=actor
    )
    resume_children(db, job_id, now=now, actor=actor, reason=reason)
    return job


def resume_children(
    db: Session, parent_id: str, *, now: datetime, actor: str, reason: str | None = None
) -> None:
    """Resume the next few children that are PAUSED; the parent's task does the rest."""
    children = next_children(db, parent_id, only=frozenset({JobState.PAUSED}))
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


def retry(db: Session, job_id: str, *, now: datetime, actor: str, token_id: str, queued_max: int) -> Job:
    """Make a new job like one that has failed or was aborted; of a parent, with the children that did.

    Raises: JobNotFound, Conflict.
    """
    job = get_job(db, job_id)
    if job.state not in (JobState.FAILED, JobState.ABORTED):
        raise Conflict(
            f"a job that is {job.state} is not retried",
            code="ILLEGAL_TRANSITION",
            extra={"state": job.state, "allowed": []},
        )
    request = _request_like(job, actor=actor, token_id=token_id)
    new = _submit_again(db, job, request, now=now, queued_max=queued_max)
    if retry_children(db, new.id, {"of": job.id, "actor": actor, "token_id": token_id, "after": ""}, now=now):
        new.unproven = True  # a parent is silent when its children are
    if (left := read_order(db, job.id, SUBMIT)) is not None:  # it was aborted before all were made
        note_order(db, new.id, SUBMIT, left, now=now)
    db.flush()
    db.refresh(new)
    return new


def note_refused(db: Session, parent_id: str, errors: Mapping[str, ServiceError], *, now: datetime) -> None:
    """Say in a parent's parameters which stores have no job, and why."""
    parent = get_job(db, parent_id)
    db.refresh(parent)
    shown = {name: {"code": error.code, "detail": error.detail} for name, error in errors.items()}
    params = parent.params | {"refused": parent.params.get("refused", {}) | shown}
    change_job(db, parent_id, guards=[], values={"params": params}, now=now)
    db.refresh(parent)


def retry_children(db: Session, parent_id: str, order: Mapping[str, Any], *, now: datetime) -> bool:
    """Make the next few children of a retried parent; its task makes the rest. Returns whether it made any.

    Args:
        order: `of` the former parent, `after` which of its children, `actor`, `token_id`.
    """
    failed = frozenset({JobState.FAILED, JobState.ABORTED})
    children = next_children(db, order["of"], only=failed, after=order["after"])
    for child_id in children[:PIECE]:
        child = get_job(db, child_id)
        request = _request_like(child, actor=order["actor"], token_id=order["token_id"], parent_id=parent_id)
        try:
            _submit_again(db, child, request, now=now, queued_max=CHILDREN_MAX)
        except ConflictingJob as error:
            note_refused(db, parent_id, {str(child.store): error}, now=now)
    if len(children) > PIECE:
        note_order(db, parent_id, RETRY, {**order, "after": children[PIECE - 1]}, now=now)
    else:
        forget_order(db, parent_id, RETRY)
    return bool(children)


def _request_like(job: Job, *, actor: str, token_id: str, parent_id: str | None = None) -> JobRequest:
    return JobRequest(
        kind=job.kind,
        store=job.store,
        params=job.params,
        requested_by=actor,
        token_id=token_id,
        job_class=JobClass(job.job_class),
        runs_on=job.runs_on,
        parent_id=parent_id,
        reason=job.reason,
        retried_from=job.id,
        throttle=ThrottleSetting.model_validate(job.throttle_requested) if job.throttle_requested else None,
        claim_identity=job.claim_identity,
        claim_resource=job.claim_resource,
        subject=Subject.model_validate(job.subject) if job.subject else None,
    )


def _submit_again(db: Session, job: Job, request: JobRequest, *, now: datetime, queued_max: int) -> Job:
    if job.claim_resource is not None:
        refuse_conflict(db, store=job.store, identity=job.claim_identity, resource=job.claim_resource)
    return submit(db, request, now=now, queued_max=queued_max)


def set_throttle(db: Session, job_id: str, setting: ThrottleSetting, *, now: datetime, actor: str) -> Job:
    """Change the speed of a job while it runs; that of a batch is the speed of each child that has not ended.

    Raises: JobNotFound, Conflict: it has ended.
    """
    get_job(db, job_id)
    wanted = setting.model_dump()
    if not _throttle(db, job_id, wanted, now=now, actor=actor):
        raise Conflict("the job has ended", code="JOB_ENDED")
    throttle_children(db, job_id, {"setting": wanted, "actor": actor, "after": ""}, now=now)
    wake_parent(db, job_id, now=now)
    db.expire_all()
    return get_job(db, job_id)


def _throttle(db: Session, job_id: str, wanted: Mapping[str, Any], *, now: datetime, actor: str) -> bool:
    return change_job(
        db,
        job_id,
        guards=[col(Job.state).not_in(sorted(TERMINAL))],
        values={"throttle_requested": dict(wanted)},
        now=now,
        event=(EVENT_THROTTLE, {"requested": dict(wanted), "actor": actor}),
    )


def throttle_children(db: Session, parent_id: str, order: Mapping[str, Any], *, now: datetime) -> None:
    """Give the next few children the speed of their parent; the parent's task does the rest.

    Args:
        order: `setting`, `actor`, `after` which child.
    """
    children = next_children(db, parent_id, but=TERMINAL, after=order["after"])
    for child in children[:PIECE]:
        _throttle(db, child, order["setting"], now=now, actor=order["actor"])
    if len(children) > PIECE:
        note_order(db, parent_id, THROTTLE, {**order, "after": children[PIECE - 1]}, now=now)
    else:
        forget_order(db, parent_id, THROTTLE)


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


def wake_parent(db: Session, parent_id: str | None, *, now: datetime) -> None:
    """Let a parent look at its children."""
    if parent_id is not None:
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
