"""The submission of a purge of a replica: its retention, the plan that it names, the early look."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from sqlmodel import Session

from app.db import Database
from app.errors import Conflict, ServiceError
from app.jobs.errors import PlanNoLongerHolds, PlanNotUsable
from app.jobs.plans.reviewed_plan import MaxDrift, check_still_holds, drift_fault, finished_purge_plan
from app.kinds.parameter import as_timedelta
from app.parameters.service import effective_by_name
from app.replication.agreements.sessions.service import target_of_store
from app.replication.replica.replicas import find_status, opened_replica
from app.secrets.errors import SecretUnavailable
from app.settings import Settings
from app.stores.rows import Store
from app.sweeps.cutoff import check_cutoff
from app.sweeps.models import ChangelogPlanRead, TombstonePlanRead
from spark.replication.errors import PlanStopped, ReplicaMissing
from spark.replication.records import TRIMMED
from spark.targets.connection import Connection, target_now

PlanRead = TypeVar("PlanRead", ChangelogPlanRead, TombstonePlanRead)


class Fields(Protocol):
    """What of a request its kind does not matter for."""

    retention_minutes: int | None
    cutoff: datetime | None
    plan_id: str | None


class Aged(Protocol):
    """What says how old a row has to be."""

    @property
    def cutoff(self) -> datetime | None: ...
    @property
    def retention(self) -> timedelta | None: ...


class Reviewed(Protocol):
    """What a purge is held against that executes a plan."""

    @property
    def planned(self) -> Mapping[int, int] | None: ...
    @property
    def max_drift(self) -> MaxDrift | None: ...


def retention_of(
    db: Session, store: Store, request: Fields, plan: object | None, *, parameter: str
) -> tuple[timedelta | None, str]:
    """How old rows have to be, and who says so; None: a cut-off is named, or age is no bound."""
    if plan is not None:
        return None, "PLAN"
    if request.cutoff is not None:
        return None, "REQUEST"
    if request.retention_minutes is not None:
        return timedelta(minutes=request.retention_minutes), "REQUEST"
    in_effect = effective_by_name(db, parameter, store.parameters)
    # As in 389: an age of nothing is no bound.
    return as_timedelta(in_effect.value) or None, in_effect.source


def cutoff_of(params: Aged, now: datetime) -> datetime | None:
    """What is old; None: no row is, by its age.

    Args:
        now: by the target's clock.
    Raises: FutureCutoff.
    """
    cutoff = params.cutoff
    if cutoff is None and params.retention is not None:
        cutoff = now - params.retention
    if cutoff is not None:
        check_cutoff(cutoff, now)
    return cutoff


def find_plan(
    db: Session,
    store: Store,
    request: Fields,
    model: type[PlanRead],
    *,
    kind: str,
    difference: Callable[[PlanRead], str | None],
    now: datetime,
) -> PlanRead | None:
    """The plan that a request names, if it may still be executed.

    Args:
        difference: why the request asks for something else than the plan; None: it does not.
    Raises: PlanNotUsable, also with PLAN_DIFFERS; PlanNoLongerHolds, LimitExceeded.
    """
    if request.plan_id is None:
        return None
    job = finished_purge_plan(db, store, request.plan_id, kind=kind)
    plan = model.model_validate(job.result)
    detail = difference(plan)
    if detail is not None:
        raise PlanNotUsable(detail, code="PLAN_DIFFERS")
    reviewed = job.params["target"]
    check_still_holds(plan, store, reviewed_target=reviewed, target=target_of_store(store), now=now)
    return plan


def look_early(
    database: Database,
    store: Store,
    settings: Settings,
    *,
    check: Callable[[Connection], None],
    not_whole: Callable[[str], str] | None,
) -> None:
    """Refuse at once what the job would refuse later; a target that is away is no error.

    Args:
        check: refuses by what it sees.
        not_whole: why a replica of such a status keeps what it has; None: nothing is to be removed.
    """
    if not set(store.runs_on) <= set(settings.labels):  # only other runners reach it
        return
    try:
        with opened_replica(database, settings, store, purpose="preflight", create=False) as conn:
            status = find_status(conn)
            check(conn)
    except SecretUnavailable:
        raise
    except ServiceError as error:
        if error.retryable or error.code == ReplicaMissing.code:
            return
        raise
    if not_whole is not None and status not in TRIMMED:
        raise Conflict(not_whole(status), code=f"REPLICA_{status}")


def check_reviewed(
    conn: Connection, settings: Settings, fault: Callable[[int, Callable[[], bool]], str | None]
) -> None:
    """Refuse a reviewed plan that does not hold, where that is seen as fast as a plan is waited for.

    Else the job sees it.

    Args:
        fault: plans by the target's clock, in seconds, until it should stop; why the plan does not hold.
    Raises: PlanNoLongerHolds.
    """
    now, until = target_now(conn), time.monotonic() + settings.plan_wait_default_s
    with suppress(PlanStopped):
        found = fault(int(now.timestamp()), lambda: time.monotonic() > until)
        if found is not None:
            raise PlanNoLongerHolds(found)


def fault_of(
    params: Reviewed, to_remove: Mapping[int, int], *, tell: Callable[[int, int, int], str]
) -> str | None:
    """Why a reviewed plan does not hold any more; None: it does, or none is executed.

    Args:
        to_remove: by replica id, what would go now within the reviewed.
        tell: from a replica id, what was reviewed of it and what would go.
    """
    if params.planned is None:
        return None
    for rid, rows in to_remove.items():
        if rows > params.planned.get(rid, 0):
            return tell(rid, params.planned.get(rid, 0), rows)
    return drift_fault(sum(params.planned.values()), sum(to_remove.values()), max_drift=params.max_drift)
