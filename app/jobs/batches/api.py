"""One request over many stores: a parent job, a child per store, results per store."""

from dataclasses import replace
from typing import Annotated, cast

from fastapi import Depends, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import ClockDep, Condition, SettingsDep, requires, tell_changed
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import Unprocessable
from app.jobs.api import accepted
from app.jobs.batches.making import select_stores, submit_batch
from app.jobs.batches.models import BatchRequest
from app.jobs.batches.service import Submitters
from app.jobs.models import JobRead
from app.kit.http.routing import new_router
from app.kit.problems import problems

router = new_router(tags=["jobs"])
KINDS = (
    Condition(Scope.PURGES_WRITE, "`kind` is PURGE"),
    Condition(Scope.EVENTS_WRITE, "`kind` is EVENT_CLEANUP, EVENT_SYNC or LOG_SWITCH"),
    Condition(Scope.ERASURE_WRITE, "`kind` is ERASURE"),
    Condition(Scope.REPLICATION_WRITE, "`kind` is SLONY_FEED"),
)
Controller = Annotated[Caller, Depends(requires(Scope.JOBS_CONTROL, *KINDS))]


def _submitters_of(request: Request) -> Submitters:
    return cast(Submitters, request.app.state.batch_submitters)


@router.post(
    "/v1/jobs:batch",
    status_code=202,
    response_model=JobRead,
    summary="Submit the same job for many stores",
    operation_id="create_batch",
    responses=problems(404, 409, 429),
)
def post_batch(
    body: BatchRequest,
    request: Request,
    caller: Controller,
    clock: ClockDep,
    settings: SettingsDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """A store that cannot take the job does not stop the others: the parent's result names it.

    Of many stores the first have their jobs when this answers, the others get theirs within moments:
    `progress` counts them.
    """
    submitters = _submitters_of(request)
    if body.kind not in submitters:
        kinds = ", ".join(sorted(submitters))
        errors = [{"pointer": "/kind", "detail": f"one of {kinds}"}]
        raise Unprocessable(f"kind is one of {kinds}", code="KIND_NOT_BATCHED", errors=errors)
    scope, make_child = submitters[body.kind]
    caller.require(scope)

    params = body.params if body.reason is None else {"reason": body.reason, **body.params}

    def effect(db: Session) -> Answer:
        stores = select_stores(db, caller, names=body.stores, labels=body.labels)
        parent = submit_batch(
            db,
            body.kind,
            params,
            stores,
            caller=caller,
            reason=body.reason,
            make_child=make_child,
            settings=settings,
            now=clock.now(),
        )
        refused = sorted(parent.params["refused"])
        audit = {"kind": body.kind, "stores": len(stores), "refused": refused}
        return replace(accepted(parent), audit=audit)

    response = mutate(request, caller, effect, action=Action.BATCH_CREATE, subject=("job", ""), body=body)
    tell_changed(request, "")
    return response
