"""`PATCH /v1/jobs/{j}/throttle`."""

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import ClockDep, tell_changed
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.errors import Conflict
from app.jobs.again import set_throttle
from app.jobs.api import Controller, JobId
from app.jobs.hidden import visible_job
from app.jobs.models import JobRead, ThrottleSetting, read_job
from app.jobs.rows import Job
from app.kit.conditional import etag
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.stores.models import StoreKind
from app.stores.rows import Store

router = new_router(tags=["jobs"])
BoundsOf = Callable[[str, Mapping[str, Any], StoreKind | None], frozenset[str]]


@router.patch(
    "/v1/jobs/{job_id}/throttle",
    response_model=JobRead,
    summary="Change a job's speed while it runs",
    operation_id="throttle_job",
    responses=problems(404, 409),
)
def patch_throttle(
    job_id: JobId,
    body: ThrottleSetting,
    request: Request,
    caller: Controller,
    clock: ClockDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """The whole setting is replaced; null takes a bound away. It acts within a second.

    A job that knows no bounds (a plan, an audit, a log switch, ...), or not the one that is asked for (a
    cycle has no `rows_per_s`), answers 409 THROTTLE_NOT_TAKEN.
    """

    def effect(db: Session) -> Answer:
        _require_kept(request, db, visible_job(db, job_id, caller), body)
        job = set_throttle(db, job_id, body, now=clock.now(), actor=caller.name)
        headers = {"ETag": etag(job.version)}
        return Answer(body=read_job(job), headers=headers, store=job.store, audit=body.model_dump())

    response = mutate(request, caller, effect, action=Action.JOB_THROTTLE, subject=("job", job_id), body=body)
    tell_changed(request, job_id)
    return response


def _require_kept(request: Request, db: Session, job: Job, asked: ThrottleSetting) -> None:
    """Refuse bounds that a job would not keep.

    Raises: Conflict: THROTTLE_NOT_TAKEN.
    """
    bounds_of: BoundsOf = request.app.state.bounds_of
    store = None if job.store is None else db.get(Store, job.store)
    kept = bounds_of(job.kind, job.params, None if store is None else StoreKind(store.kind))
    if not kept:
        detail = f"a job of kind {job.kind} goes at its own speed here: only pause and abort hold it back"
        raise Conflict(detail, code="THROTTLE_NOT_TAKEN")
    lost = sorted(asked.model_dump(exclude_none=True).keys() - kept)
    if lost:
        detail = f"a job of kind {job.kind} has no {', '.join(lost)}: it keeps {' and '.join(sorted(kept))}"
        raise Conflict(detail, code="THROTTLE_NOT_TAKEN")
