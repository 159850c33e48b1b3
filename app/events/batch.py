"""Event cleanups, SYNCs and log switches as one of many: the children of a batch.

The stores of a batch may be nodes of one cluster, of which only one is written to at a time: a child waits
for its turn unless the request says REFUSE.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from sqlmodel import Session

from app.auth.service import Caller
from app.errors import Unprocessable
from app.events.cleanup import service as cleanup_service
from app.events.cleanup.models import CleanupRequest, EventOverlap
from app.events.cleanup.switch import service as switch_service
from app.events.cleanup.switch.models import SwitchRequest
from app.events.syncs.models import SyncRequest
from app.events.syncs.service import submit_sync
from app.jobs.batches.bodies import read_body
from app.jobs.rows import Job
from app.settings import Settings
from app.stores.rows import Store

Request = TypeVar("Request", CleanupRequest, SwitchRequest)


def submit_cleanup_child(
    db: Session,
    store: Store,
    params: Mapping[str, Any],
    caller: Caller,
    parent_id: str | None,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue a store's cleanup; its target is looked at when it runs, not now.

    Raises: InvalidRequest, StoreKindWrong, ConflictingJob, SparkDisabled; Unprocessable: a plan belongs to
        one store, VIA_NEEDS_BUILTIN.
    """
    request = _queued_by_default(read_body(CleanupRequest, params))
    cleanup_service.check_fields(request, settings, at="/params")
    if request.plan_id is not None:
        raise Unprocessable(
            "a plan belongs to one store: name its confirmed_before, or clean that store alone",
            code="PLAN_NOT_USABLE",
            errors=[{"pointer": "/params/plan_id", "detail": "not for many stores"}],
        )
    return cleanup_service.submit_unseen(
        db, store, request, caller=caller, settings=settings, now=now, parent_id=parent_id
    )


def submit_switch_child(
    db: Session,
    store: Store,
    params: Mapping[str, Any],
    caller: Caller,
    parent_id: str | None,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue a store's log switch; its target is looked at when it runs, not now.

    Raises: InvalidRequest, StoreKindWrong, ConflictingJob.
    """
    request = _queued_by_default(read_body(SwitchRequest, params))
    return switch_service.submit_switch(
        db,
        store,
        request,
        cleanup_service.EarlyLook(),
        caller=caller,
        settings=settings,
        now=now,
        parent_id=parent_id,
    )


def submit_sync_child(
    db: Session,
    store: Store,
    params: Mapping[str, Any],
    caller: Caller,
    parent_id: str | None,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue a SYNC of a store's node where one is due; its target is looked at when it runs, not now.

    Raises: InvalidRequest, StoreKindWrong, QueueFull.
    """
    return submit_sync(
        db,
        store,
        read_body(SyncRequest, params),
        cleanup_service.EarlyLook(),
        caller=caller,
        settings=settings,
        now=now,
        parent_id=parent_id,
    )


def _queued_by_default(request: Request) -> Request:
    if "overlap" in request.model_fields_set:
        return request
    queued: Request = request.model_copy(update={"overlap": EventOverlap.QUEUE})
    return queued
