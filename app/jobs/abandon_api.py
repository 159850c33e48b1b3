"""`/v1/jobs/{id}:abandon`: the end of a job by an admin's word, where its target is gone for good."""

from dataclasses import replace

from fastapi import Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import ClockDep, tell_changed
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.jobs.api import Admin, JobId, accepted
from app.jobs.models import AbandonRequest, JobRead
from app.jobs.queries import get_job
from app.jobs.running.abandonment import abandon
from app.kit.http.routing import new_router
from app.kit.problems import problems

router = new_router(tags=["jobs"])


@router.post(
    "/v1/jobs/{job_id}:abandon",
    response_model=JobRead,
    summary="End a job whose target is gone for good",
    operation_id="abandon_job",
    responses=problems(404, 409),
)
def post_abandon(
    job_id: JobId,
    request: Request,
    caller: Admin,
    body: AbandonRequest,
    clock: ClockDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Nobody proves that it is silent: `silence_proved` is false, and stays so. Its claims go back.

    For a job in ABORTING or PAUSING whose proof of silence fails (`waiting_on` says TARGET_SILENCE), and one
    in WAITING for a target that is away. Whoever writes to that target next shuts it out there first.
    """

    def effect(db: Session) -> Answer:
        caller.require_store(get_job(db, job_id).store)
        job = abandon(db, job_id, now=clock.now(), actor=caller.name, reason=body.reason)
        audit = {"reason": body.reason, "silence_proved": False}
        return replace(accepted(job, status=200), audit=audit)

    response = mutate(request, caller, effect, action=Action.JOB_ABANDON, subject=("job", job_id), body=body)
    tell_changed(request, job_id)
    return response
