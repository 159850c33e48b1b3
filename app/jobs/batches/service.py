"""The parent of a batch: makes its children, waits for them and tells what became of each store."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlmodel import Session, col, select

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import NotFound, ServiceError
from app.jobs.again import note_refused, retry_children, throttle_children
from app.jobs.errors import IllegalTransition, JobFailed, JobWaiting
from app.jobs.family import (
    PIECE,
    RESUME,
    RETRY,
    SUBMIT,
    THROTTLE,
    forget_order,
    has_orders,
    next_children,
    note_order,
    read_order,
)
from app.jobs.models import WaitingOn
from app.jobs.queries import count_children, get_job
from app.jobs.rows import Job
from app.jobs.running.context import JobContext
from app.jobs.service import (
    KEPT_BY_ABORT,
    KEPT_BY_PAUSE,
    children_key,
    request_abort,
    request_pause,
    resume_children,
)
from app.jobs.states import TERMINAL, JobState
from app.settings import Settings
from app.stores.rows import Store

JOB_BATCH = "BATCH"
LOOK_AGAIN: Final = timedelta(minutes=1)
"""A child that ends wakes its parent; this is for a wake that got lost."""
INVALID: Final = 422
LIMIT: Final = "stores"
"""In the order for the children that are left: the stores of the token that asked for them; null: all."""

ChildSubmitter = Callable[[Session, Store, Mapping[str, Any], Caller, str | None, Settings, datetime], Job]
"""Makes a child, or a job of its own: store, params, caller, the parent's id."""
Submitters = Mapping[str, tuple[Scope, ChildSubmitter]]


def submit_children(
    db: Session,
    parent: Job,
    stores: Mapping[str, Store],
    names: Sequence[str],
    *,
    make_child: ChildSubmitter,
    caller: Caller,
    settings: Settings,
    now: datetime,
    is_first: bool = False,
) -> None:
    """Make a child for each of a few stores; one that refuses is noted in the parent's parameters.

    Args:
        is_first: what is wrong with the request itself is told to whoever sends it.
    Raises: ServiceError: the request is wrong, for every store.
    """
    refused: dict[str, ServiceError] = {}
    for name in names:
        store = stores.get(name)
        if store is None:
            refused[name] = NotFound("it was removed before its job was made", code="STORE_NOT_FOUND")
            continue
        try:
            with db.begin_nested():
                make_child(db, store, parent.params["params"], caller, parent.id, settings, now)
        except ServiceError as error:
            if is_first and error.status == INVALID:
                raise
            refused[name] = error
    if refused or is_first:
        note_refused(db, parent.id, refused, now=now)


def run_batch(context: JobContext, *, submitters: Submitters) -> Mapping[str, Any]:
    """Make what children are left to make, wait for all, then tell what became of each store.

    Raises: JobWaiting: children are left. JobFailed: CHILDREN_FAILED, with the results.
    """
    while context.write(lambda db: _next_piece(db, context, submitters)):
        context.check()
    counts = context.read(lambda db: count_children(db, context.job.id))
    done = sum(count for state, count in counts.items() if state in TERMINAL)
    total = sum(counts.values())
    context.progress(unit="jobs", done=done, total=total, force=True)
    if done < total:
        waiting_on = [WaitingOn(kind="CHILDREN", ref=f"{total - done} of {total}")]
        raise JobWaiting(
            waiting_on,
            not_before=context.clock.now() + LOOK_AGAIN,
            wake_key=children_key(context.job.id),
            overtaken=lambda db: _is_overtaken(db, context, counts),
        )
    result = context.read(lambda db: _results(db, context))
    failed = [name for name, item in result["stores"].items() if item["state"] != JobState.SUCCEEDED]
    if failed:
        detail = f"{len(failed)} of {len(result['stores'])} stores: {', '.join(failed[:20])}"
        raise JobFailed("CHILDREN_FAILED", detail, result=result)
    return result


def _is_overtaken(db: Session, context: JobContext, counts: Mapping[JobState, int]) -> bool:
    """Whether a child has ended, or something was asked for, since the parent looked.

    Its row is locked first: whoever ends a child locks it too, and so comes before this look, or finds it
    WAITING.
    """
    context.change(db, {})
    return has_orders(db, context.job.id) or count_children(db, context.job.id) != counts


def _next_piece(db: Session, context: JobContext, submitters: Submitters) -> bool:
    """Do the next few children of what is left to do; False: nothing is."""
    context.change(db, {})
    parent_id, now = context.job.id, context.database.now(db)
    if (order := read_order(db, parent_id, SUBMIT)) is not None:
        _submit_piece(db, context, order, submitters, now=now)
    elif (order := read_order(db, parent_id, RETRY)) is not None:
        retry_children(db, parent_id, order, now=now)
    elif (order := read_order(db, parent_id, THROTTLE)) is not None:
        throttle_children(db, parent_id, order, now=now)
    elif (order := read_order(db, parent_id, RESUME)) is not None:
        resume_children(db, parent_id, now=now, actor=order["actor"], reason=order["reason"])
    else:
        return False
    return True


def _submit_piece(
    db: Session, context: JobContext, order: Mapping[str, Any], submitters: Submitters, *, now: datetime
) -> None:
    parent, place = get_job(db, context.job.id), order["next"]
    names = parent.params["stores"][place : place + PIECE]
    found = db.exec(select(Store).where(col(Store.id).in_(names))).all()
    # Its scopes were looked at when it sent the request; what a child names besides its store is not yet.
    limit = order.get(LIMIT)
    stores = None if limit is None else frozenset(limit)
    caller = Caller(str(parent.token_id), parent.requested_by, frozenset(), stores)
    submit_children(
        db,
        parent,
        {store.id: store for store in found},
        names,
        make_child=submitters[parent.params["kind"]][1],
        caller=caller,
        settings=context.settings,
        now=now,
    )
    if place + PIECE < len(parent.params["stores"]):
        note_order(db, parent.id, SUBMIT, {**order, "next": place + PIECE}, now=now)
    else:
        forget_order(db, parent.id, SUBMIT)


def _results(db: Session, context: JobContext) -> dict[str, Any]:
    children = db.exec(select(Job).where(Job.parent_id == context.job.id).order_by(col(Job.store))).all()
    stores: dict[str, Any] = {
        str(child.store): {
            "job_id": child.id,
            "state": child.state,
            "engine": child.engine,
            "error": child.error,
            "removed": (child.result or {}).get("removed"),
        }
        for child in children
    }
    refused = get_job(db, context.job.id).params.get("refused", {})
    stores |= {name: {"job_id": None, "state": "REFUSED", "error": error} for name, error in refused.items()}
    return {"stores": stores}


def prove_children_silent(context: JobContext) -> None:
    """Return when no child runs: each has ended or is PAUSED. What the parent is told its children are told.

    Raises: JobWaiting.
    """
    while context.write(partial(_stop_piece, context=context)):
        context.cancel_if_overdue(context.settings.cancel_grace_s)
    counts = context.write(lambda db: count_children(db, context.job.id))
    busy = sum(count for state, count in counts.items() if state not in TERMINAL | {JobState.PAUSED})
    if busy:
        raise JobWaiting([], not_before=None, detail=f"{busy} children still run")


def _stop_piece(db: Session, *, context: JobContext) -> bool:
    """Pause or abort the next few children of a parent that pauses or aborts; False: none is left."""
    context.change(db, {})
    parent = get_job(db, context.job.id)
    by_state = {
        JobState.PAUSING: (request_pause, KEPT_BY_PAUSE),
        JobState.ABORTING: (request_abort, KEPT_BY_ABORT),
    }
    stop, kept = by_state.get(JobState(parent.state), (None, TERMINAL))
    if stop is None:
        return False
    children = next_children(db, parent.id, but=kept)
    for child in children[:PIECE]:
        with suppress(IllegalTransition):  # it has ended since
            stop(db, child, now=context.database.now(db), actor=parent.requested_by, reason=parent.reason)
    return len(children) > PIECE
