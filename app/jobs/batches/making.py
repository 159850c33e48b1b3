"""A batch is made: the stores that it is for, the parent, and its first children."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from app.auth.service import Caller
from app.errors import Unprocessable
from app.jobs.batches.service import JOB_BATCH, LIMIT, ChildSubmitter, submit_children
from app.jobs.family import PIECE, SUBMIT, note_order
from app.jobs.rows import Job, JobClass
from app.jobs.service import CHILDREN_MAX, JobRequest, submit
from app.jobs.writing import change_job
from app.settings import Settings
from app.stores.rows import Store


def select_stores(
    db: Session, caller: Caller, *, names: Sequence[str] | None, labels: Mapping[str, str] | None
) -> Sequence[Store]:
    """The stores that are named, or have all of the labels and are the caller's.

    Raises: StoreForbidden; Unprocessable: STORE_NOT_FOUND, NO_STORES_SELECTED, TOO_MANY_STORES.
    """
    query = select(Store).order_by(col(Store.id)).limit(CHILDREN_MAX + 1)
    if names is not None:
        for name in names:
            caller.require_store(name)
        query = query.where(col(Store.id).in_(names))
    for label, value in (labels or {}).items():
        query = query.where(col(Store.labels)[label].as_string() == value)
    if caller.stores is not None:
        query = query.where(col(Store.id).in_(sorted(caller.stores)))
    found = db.exec(query).all()
    missing = set(names or ()) - {store.id for store in found}
    if missing:
        raise Unprocessable(
            f"no such store: {', '.join(sorted(missing))}",
            code="STORE_NOT_FOUND",
            errors=[
                {"pointer": f"/stores/{index}", "detail": f"there is no store {name}"}
                for index, name in enumerate(names or ())
                if name in missing
            ],
        )
    if not found:
        errors = [{"pointer": "/labels", "detail": "matches no store"}]
        raise Unprocessable("no store has these labels", code="NO_STORES_SELECTED", errors=errors)
    if len(found) > CHILDREN_MAX:
        raise Unprocessable(f"more than {CHILDREN_MAX} stores", code="TOO_MANY_STORES")
    return found


def submit_batch(
    db: Session,
    kind: str,
    params: Mapping[str, Any],
    stores: Sequence[Store],
    *,
    caller: Caller,
    reason: str | None,
    make_child: ChildSubmitter,
    settings: Settings,
    now: datetime,
    is_asked: bool = True,
) -> Job:
    """Make the parent and its first children; its own task makes the others.

    Args:
        is_asked: somebody waits for the answer: the first store that finds fault refuses the whole.
    Raises: ServiceError: the request is wrong, for every store; QueueFull.
    """
    names = [store.id for store in stores]
    request = JobRequest(
        kind=JOB_BATCH,
        store=None,
        params={"kind": kind, "params": dict(params), "stores": names},
        requested_by=caller.name,
        token_id=caller.token_id,
        reason=reason,
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
        is_first=is_asked,
    )
    if len(names) > PIECE:
        left = {"next": PIECE, LIMIT: caller.visible_stores()}
        note_order(db, parent.id, SUBMIT, left, now=now)
    change_job(db, parent.id, guards=[], values={"unproven": True}, now=now)
    db.refresh(parent)
    return parent
