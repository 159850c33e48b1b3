"""One request over many stores: a parent job, a child per store, results per store."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request
from sqlmodel import Session, col, select
from starlette.responses import Response

from app.auth.access import ClockDep, Condition, SettingsDep, requires, tell_changed
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import Unprocessable
from app.jobs.api import accepted
from app.jobs.batches.models import BatchRequest
from app.jobs.batches.service import JOB_BATCH, ChildSubmitter, Submitters, submit_children
from app.jobs.family import PIECE, SUBMIT, note_order
from app.jobs.models import JobRead
from app.jobs.rows import Job, JobClass
from app.jobs.service import CHILDREN_MAX, JobRequest, submit
from app.jobs.writing import change_job
from app.kit.problems import problems
from app.settings import Settings
from app.stores.rows import Store

router = APIRouter(tags=["jobs"])
KINDS = (
    Condition(Scope.PURGES_WRITE, "`kind` is PURGE"),
    Condition(Scope.EVENTS_WRITE, "`kind` is EVENT_CLEANUP or LOG_SWITCH"),
)
Controller = Annotated[Caller, Depends(requires(Scope.JOBS_CONTROL, *KINDS))]


def _submitters_of(request: Request) -> Submitters:
    return cast(Submitters, request.app.state.batch_submitters)


def _select_stores(db: Session, body: BatchRequest, caller: Caller) -> Sequence[Store]:
    query = select(Store).order_by(col(Store.id)).limit(CHILDREN_MAX + 1)
    if body.stores is not None:
        for name in body.stores:
            caller.require_store(name)
        query = query.where(col(Store.id).in_(body.stores))
    for name, value in (body.labels or {}).items():
        query = query.where(col(Store.labels)[name].as_string() == value)
    if caller.stores is not None:
        query = query.where(col(Store.id).in_(sorted(caller.stores)))
    found = db.exec(query).all()
    missing = set(body.stores or ()) - {store.id for store in found}
    if missing:
        raise Unprocessable(
            f"no such store: {', '.join(sorted(missing))}",
            code="STORE_NOT_FOUND",
            errors=[
                {"pointer": f"/stores/{index}", "detail": f"there is no store {name}"}
                for index, name in enumerate(body.stores or ())
                if name in missing
            ],
        )
    if not found:
        errors = [{"pointer": "/labels", "detail": "matches no store"}]
        raise Unprocessable("no store has these labels", code="NO_STORES_SELECTED", errors=errors)
    if len(found) > CHILDREN_MAX:
        raise Unprocessable(f"more than {CHILDREN_MAX} stores", code="TOO_MANY_STORES")
    return found


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

    def effect(db: Session) -> Answer:
        stores = _select_stores(db, body, caller)
        parent = _submit(db, body, stores, caller, make_child, settings=settings, now=clock.now())
        refused = sorted(parent.params["refused"])
        audit = {"kind": body.kind, "stores": len(stores), "refused": refused}
        return replace(accepted(parent), audit=audit)

    response = mutate(request, caller, effect, action=Action.BATCH_CREATE, subject=("job", ""), body=body)
    tell_changed(request, "")
    return response


def _submit(
    db: Session,
    body: BatchRequest,
    stores: Sequence[Store],
    caller: Caller,
    make_child: ChildSubmitter,
    *,
    settings: Settings,
    now: datetime,
) -> Job:
    """Make the parent and its first children; its own task makes the others."""
    names = [store.id for store in stores]
    request = JobRequest(
        kind=JOB_BATCH,
        store=None,
        params={"kind": body.kind, "params": body.params, "stores": names},
        requested_by=caller.name,
        token_id=caller.token_id,
        reason=body.reason,
        job_class=JobClass.INTERACTIVE,  # its children may take all other slots
    )
    parent = submit(db, request, now=now, queued_max=settings.jobs_queued_max)
    submit_children(
        db,
        parent,
        {store.id: store for store in stores[:PIECE]},
        names[:PIECE],
        make_child=make_child,
        caller=caller,
        settings=settings,
        now=now,
        is_first=True,
    )
    if len(names) > PIECE:
        note_order(db, parent.id, SUBMIT, {"next": PIECE}, now=now)
    change_job(db, parent.id, guards=[], values={"unproven": True}, now=now)
    db.refresh(parent)
    return parent
