"""A purge as one of many: the child of a batch."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.auth.service import Caller
from app.errors import Unprocessable
from app.jobs.batches.bodies import read_body
from app.jobs.engines.choice import check_engine
from app.jobs.rows import Job
from app.purge.models import PurgeRequest
from app.settings import Settings
from app.stores.rows import Store
from app.sweeps.purging import Purgings, check_fields, submit_looked


def submit_child(
    db: Session,
    store: Store,
    params: Mapping[str, Any],
    caller: Caller,
    parent_id: str | None,
    settings: Settings,
    now: datetime,
    *,
    purgings: Purgings,
) -> Job:
    """Queue a store's purge; its target is looked at when it runs, not now.

    Args:
        purgings: what is known of each kind.
    Raises: InvalidRequest, ConflictingJob, SparkDisabled, Unprocessable: a plan belongs to one store.
    """
    request = read_body(PurgeRequest, params)
    check_fields(purgings, request.kind, request.model_fields_set, at="/params")
    check_engine(request.engine, settings)
    if request.plan_id is not None:
        raise Unprocessable(
            "a plan belongs to one store: name its cut-off, or purge that store alone",
            code="PLAN_NOT_USABLE",
            errors=[{"pointer": "/params/plan_id", "detail": "not for many stores"}],
        )
    fields = request.model_dump(mode="json", exclude_unset=True)
    return submit_looked(
        db,
        store,
        purgings[request.kind].unseen(db, store, fields),
        caller=caller,
        reason=request.reason,
        settings=settings,
        now=now,
        parent_id=parent_id,
    )
