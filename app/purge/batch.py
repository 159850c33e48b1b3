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
from app.purge.service import check_fields
from app.settings import Settings
from app.stores.rows import Store
from app.sweeps.purging import Purgings


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
        purgings: who queues a purge of its kind.
    Raises: InvalidRequest, ConflictingJob, SparkDisabled, Unprocessable: a plan belongs to one store.
    """
    request = read_body(PurgeRequest, params)
    check_fields(request, at="/params")
    check_engine(request.engine, settings)
    if request.plan_id is not None:
        raise Unprocessable(
            "a plan belongs to one store: name its cut-off, or purge that store alone",
            code="PLAN_NOT_USABLE",
            errors=[{"pointer": "/params/plan_id", "detail": "not for many stores"}],
        )
    return purgings[request.kind].submit_unseen(
        db,
        store,
        request.model_dump(mode="json", exclude_unset=True),
        caller=caller,
        reason=request.reason,
        settings=settings,
        now=now,
        parent_id=parent_id,
    )
