"""Rules of a purge TOMBSTONES at its submission: the snapshot, the early look at the replica, the plan."""

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from sqlmodel import Session

from app.db import Database
from app.errors import Conflict, InvalidRequest, ServiceError
from app.jobs.errors import PlanNoLongerHolds, PlanNotUsable
from app.jobs.plans.reviewed_plan import check_still_holds, drift_fault, finished_purge_plan
from app.kinds.parameter import as_timedelta
from app.parameters.service import effective_by_name
from app.replication.agreements.sessions.service import target_of_store
from app.replication.replica.replicas import find_status, opened_replica
from app.replication.tombstones.models import TombstoneFields, TombstoneParams
from app.secrets.errors import SecretUnavailable
from app.settings import Settings
from app.stores.models import StoreKind, StoreLimits
from app.stores.rows import Store
from app.stores.service import require_kind
from app.sweeps.cutoff import RetentionTooShort, check_cutoff
from app.sweeps.models import TombstonePlanRead
from app.sweeps.purging import CHANGELOG, TOMBSTONES, Looked, Purging
from spark.replication.errors import ReplicaMissing
from spark.replication.records import TRIMMED
from spark.replication.tombstones.plan import (
    TombstonePlan,
    TombstonePlanStopped,
    check_gone,
    plan_tombstones,
)
from spark.targets.connection import Connection, target_now

PURGE_DELAY: Final = "nsds5ReplicaPurgeDelay"
LEAST_AGE: Final = timedelta(days=1)
"""A write under way at a consumer may carry a time from before a delete that it has acknowledged since: it
gets a day to come here. No clock may be further off than that (lethe.replication.clock.ahead.max)."""


def tombstone_resource(store: Store) -> str:
    """The table that a purge of tombstones writes, as its claim and its fence name it."""
    return f"{store.schema_name or 'public'}.{store.table_prefix.lower()}entries"


def not_purged(status: str) -> str:
    """Why a replica that is not whole keeps its tombstones."""
    return f"a replica that is {status} keeps its tombstones: what it still needs is not known"


def look(
    database: Database,
    store: Store,
    fields: Mapping[str, Any],
    *,
    settings: Settings,
    now: datetime,
    for_write: bool,
) -> Looked:
    """Snapshot and early look of a request; see app.sweeps.purging.

    Raises: ServiceError: StoreKindWrong, InvalidRequest, FUTURE_CUTOFF, PLAN_NOT_USABLE,
        RETENTION_TOO_SHORT, PLAN_NO_LONGER_HOLDS, LIMIT_EXCEEDED, ReplicaRestored, ReplicaInitializing.
    """
    request = _request(store, fields)
    with database.reading() as db:
        plan = _find_plan(db, store, request, now=now)
        params = snapshot(db, store, request, plan)
    if set(store.runs_on) <= set(settings.labels):  # else only other runners reach it
        _look_early(database, store, params, settings=settings, for_write=for_write)
    return _looked(store, params)


def unseen(db: Session, store: Store, fields: Mapping[str, Any]) -> Looked:
    """The snapshot of a request whose target is looked at when the job runs.

    Raises: StoreKindWrong, InvalidRequest.
    """
    return _looked(store, snapshot(db, store, _request(store, fields, at="/params")))


def snapshot(
    db: Session, store: Store, request: TombstoneFields, plan: TombstonePlanRead | None = None
) -> TombstoneParams:
    """Everything that decides what the job does, now: request over store over global over default."""
    retention, source = _retention(db, store, request, plan)
    limits = StoreLimits.model_validate(store.limits)
    return TombstoneParams(
        cutoff=plan.cutoff if plan else request.cutoff,
        retention=retention,
        retention_source=source,
        gone_rids=plan.gone_rids if plan else sorted(set(request.gone_rids or ())),
        rows_in_tx=request.max_rows_in_tx,
        archive=request.archive is not None,
        archive_retention=str(effective_by_name(db, "lethe.retention.archives", {}).value),
        throttle=request.throttle,
        force=request.force,
        overlap=request.overlap,
        plan_id=request.plan_id,
        max_drift=request.max_drift,
        planned_upto=None if plan is None else plan.upto,
        planned=None if plan is None else {item.rid: item.rows_to_remove for item in plan.rids},
        max_rows=limits.max_rows,
        max_fraction=limits.max_fraction,
        target=target_of_store(store),
    )


def decide_cutoff(params: TombstoneParams, now: datetime) -> datetime | None:
    """What is old; None: nothing.

    Args:
        now: by the target's clock.
    Raises: FutureCutoff; RetentionTooShort: below a day without `force`.
    """
    cutoff = params.cutoff
    if cutoff is None and params.retention is not None:
        cutoff = now - params.retention
    if cutoff is None:
        return None
    check_cutoff(cutoff, now)
    if now - cutoff < LEAST_AGE and not params.force:
        raise RetentionTooShort(
            f"{(now - cutoff).total_seconds() / 3600:.1f} hours ({params.retention_source}) is below a day:"
            " older changes may still be on their way from a consumer; use force if you mean it"
        )
    return cutoff


def fault_of(plan: TombstonePlan, params: TombstoneParams) -> str | None:
    """Why a reviewed plan does not hold any more; None: it does, or none is executed.

    Args:
        plan: what would go now, within the reviewed.
    """
    if params.planned is None:
        return None
    for item in plan.rids:
        if item.rows_to_remove > params.planned.get(item.rid, 0):
            return (
                f"{params.planned.get(item.rid, 0)} tombstones of replica id {item.rid} were reviewed, and"
                f" {item.rows_to_remove} would go now: these are other entries; plan again"
            )
    return drift_fault(sum(params.planned.values()), plan.rows_to_remove, max_drift=params.max_drift)


def _request(store: Store, fields: Mapping[str, Any], *, at: str = "") -> TombstoneFields:
    """A request that fits its store.

    Raises: StoreKindWrong, InvalidRequest.
    """
    require_kind(store, StoreKind.REPLICA)
    request = TombstoneFields.model_validate(fields)
    assert store.rid is not None, "a store of kind REPLICA has a RID"
    detail = check_gone(request.gone_rids or (), store.rid)
    if detail is not None:
        errors = [{"pointer": f"{at}/gone_rids", "detail": detail}]
        raise InvalidRequest("1 field(s) are not valid", errors=errors)
    return request


def _retention(
    db: Session, store: Store, request: TombstoneFields, plan: TombstonePlanRead | None
) -> tuple[timedelta | None, str]:
    if plan is not None:
        return None, "PLAN"
    if request.cutoff is not None:
        return None, "REQUEST"
    if request.retention_minutes is not None:
        return timedelta(minutes=request.retention_minutes), "REQUEST"
    in_effect = effective_by_name(db, PURGE_DELAY, store.parameters)
    # As in 389: a delay of nothing keeps tombstones for ever.
    return as_timedelta(in_effect.value) or None, in_effect.source


def _find_plan(
    db: Session, store: Store, request: TombstoneFields, *, now: datetime
) -> TombstonePlanRead | None:
    """The plan that a request names, if it may still be executed.

    Raises: PlanNotUsable, also with PLAN_DIFFERS; PlanNoLongerHolds, LimitExceeded.
    """
    if request.plan_id is None:
        return None
    job = finished_purge_plan(db, store, request.plan_id, kind=TOMBSTONES)
    plan = TombstonePlanRead.model_validate(job.result)
    if request.gone_rids is not None and sorted(set(request.gone_rids)) != plan.gone_rids:
        raise PlanNotUsable("gone_rids must be those of the plan", code="PLAN_DIFFERS")
    reviewed = TombstoneParams.model_validate(job.params).target
    check_still_holds(plan, store, reviewed_target=reviewed, target=target_of_store(store), now=now)
    return plan


def _look_early(
    database: Database, store: Store, params: TombstoneParams, *, settings: Settings, for_write: bool
) -> None:
    """Refuse at once what the job would refuse later; a target that is away is no error."""
    try:
        with opened_replica(database, settings, store, purpose="preflight", create=False) as conn:
            decide_cutoff(params, target_now(conn))
            status = find_status(conn)
            if for_write:
                _check_plan(conn, params, settings)
    except SecretUnavailable:
        raise
    except ServiceError as error:
        if error.retryable or error.code == ReplicaMissing.code:
            return
        raise
    if for_write and status not in TRIMMED:
        raise Conflict(not_purged(status), code=f"REPLICA_{status}")


def _check_plan(conn: Connection, params: TombstoneParams, settings: Settings) -> None:
    """Raise PlanNoLongerHolds where that is seen as fast as a plan is waited for; else the job sees it."""
    if params.planned is None:
        return
    now, until = target_now(conn), time.monotonic() + settings.plan_wait_default_s
    with suppress(TombstonePlanStopped):
        plan = plan_tombstones(
            conn,
            params.rules(params.cutoff),
            now_s=int(now.timestamp()),
            should_stop=lambda: time.monotonic() > until,
        )
        fault = fault_of(plan, params)
        if fault is not None:
            raise PlanNoLongerHolds(fault)


def _looked(store: Store, params: TombstoneParams) -> Looked:
    return Looked(params=params, resource=tombstone_resource(store))


PURGING: Final = Purging(
    store_kind=StoreKind.REPLICA,
    look=look,
    unseen=unseen,
    own=frozenset({"gone_rids"}),
    refused={
        **dict.fromkeys(("stranded", "strict", "strategy", "engine")),
        "max_entries": CHANGELOG,
    },
)
