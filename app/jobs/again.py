"""A job once more, and the speed of one: verbs that reach every child of a parent, a few at a time."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlmodel import Session, col

from app.errors import Conflict, ServiceError
from app.jobs.errors import ConflictingJob
from app.jobs.family import (
    PIECE,
    RETRY,
    SUBMIT,
    THROTTLE,
    forget_order,
    next_children,
    note_order,
    read_order,
)
from app.jobs.models import Subject, ThrottleSetting, read_bounds
from app.jobs.queries import get_job
from app.jobs.rows import Job, JobClass
from app.jobs.service import CHILDREN_MAX, RETRIED, JobRequest, refuse_conflict, submit, wake_parent
from app.jobs.states import TERMINAL
from app.jobs.writing import EVENT_THROTTLE, change_job


def retry(
    db: Session,
    job_id: str,
    *,
    now: datetime,
    actor: str,
    token_id: str,
    queued_max: int,
    reason: str | None = None,
) -> Job:
    """Make a new job like one that did not succeed; of a parent, with the children that did not.

    Args:
        reason: of the new job and its children; None: that of each former one.
    Raises: JobNotFound, Conflict.
    """
    job = get_job(db, job_id)
    if job.state not in RETRIED:
        raise Conflict(
            f"a job that is {job.state} is not retried",
            code="ILLEGAL_TRANSITION",
            extra={"state": job.state, "allowed": []},
        )
    request = _request_like(job, actor=actor, token_id=token_id, reason=reason)
    new = _submit_again(db, job, request, now=now, queued_max=queued_max)
    order = {"of": job.id, "actor": actor, "token_id": token_id, "after": "", "reason": reason}
    if retry_children(db, new.id, order, now=now):
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
        order: `of` the former parent, `after` which of its children, `actor`, `token_id`, perhaps a `reason`.
    """
    children = next_children(db, order["of"], only=RETRIED, after=order["after"])
    for child_id in children[:PIECE]:
        child = get_job(db, child_id)
        request = _request_like(
            child,
            actor=order["actor"],
            token_id=order["token_id"],
            reason=order.get("reason"),
            parent_id=parent_id,
        )
        try:
            _submit_again(db, child, request, now=now, queued_max=CHILDREN_MAX)
        except ConflictingJob as error:
            note_refused(db, parent_id, {str(child.store): error}, now=now)
    if len(children) > PIECE:
        note_order(db, parent_id, RETRY, {**order, "after": children[PIECE - 1]}, now=now)
    else:
        forget_order(db, parent_id, RETRY)
    return bool(children)


def _request_like(
    job: Job, *, actor: str, token_id: str, reason: str | None, parent_id: str | None = None
) -> JobRequest:
    return JobRequest(
        kind=job.kind,
        store=job.store,
        params=job.params,
        requested_by=actor,
        token_id=token_id,
        job_class=JobClass(job.job_class),
        runs_on=job.runs_on,
        parent_id=parent_id,
        reason=reason or job.reason,
        retried_from=job.id,
        throttle=read_bounds(job.throttle_requested) if job.throttle_requested else None,
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
