"""An erasure cycle as one of many: the child of a batch, or what a schedule begins."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.auth.service import Caller
from app.erase.models import CycleRequest
from app.erase.service import look_early, params_of, submit_cycle
from app.errors import Unprocessable
from app.jobs.batches.bodies import read_body
from app.jobs.engines.choice import check_engine
from app.jobs.rows import Job
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import get_store, require_kind


def submit_cycle_child(
    db: Session,
    store: Store,
    params: Mapping[str, Any],
    caller: Caller,
    parent_id: str | None,
    settings: Settings,
    now: datetime,
) -> Job:
    """Begin a store's cycle; its files are looked at when it runs, not now.

    Raises: InvalidRequest, StoreKindWrong, PeriodMissing, CycleRunning, ConflictingJob, SparkDisabled;
        Unprocessable: a plan belongs to one store.
    """
    request = read_body(CycleRequest, params)
    require_kind(store, StoreKind.JE)
    check_engine(request.engine, settings)
    if request.plan_id is not None:
        raise Unprocessable(
            "a plan belongs to one store, and holds once: begin that cycle alone",
            code="PLAN_NOT_USABLE",
            errors=[{"pointer": "/params/plan_id", "detail": "not for many stores"}],
        )
    identity = look_early(store, settings)
    job, _ = submit_cycle(
        db,
        get_store(db, store.id, lock=True),
        params_of(db, store, request),
        identity=identity,
        caller=caller,
        reason=request.reason,
        settings=settings,
        now=now,
        parent_id=parent_id,
    )
    return job
