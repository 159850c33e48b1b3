"""Rules of a purge ROWS at its submission: the snapshot, the early look at the target, the reviewed plan.

A `Purging` of app.sweeps.purging: the route of purges hands requests of this kind here.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlmodel import Session

from app.auth.service import Caller
from app.db import Database
from app.errors import ServiceError
from app.jobs.engines.choice import check_engine
from app.jobs.errors import PlanNoLongerHolds, PlanNotUsable
from app.jobs.models import ThrottleSetting
from app.jobs.plans.reviewed_plan import check_still_holds, finished_purge_plan
from app.jobs.running.recovery import refuse_ahead
from app.parameters.service import effective_by_name
from app.rows.models import RowsFields, RowsParams, RowsPlanRead, RowsRequest
from app.rows.planned import PlannedKeys
from app.rows.rules import (
    check_findings,
    check_request,
    decide_cutoff,
    part_resource,
    read_family,
    refusals,
    rows_resource,
    target_fields,
    unseen_resource,
)
from app.secrets.errors import SecretUnavailable
from app.settings import Settings
from app.stores.borders import judge
from app.stores.errors import service_error
from app.stores.models import StoreKind, StoreLimits
from app.stores.rows import Store
from app.stores.service import get_store, require_kind
from app.stores.targets import session_limits, target_of
from app.sweeps.purging import Looked, Purging
from spark.targets.connection import connect
from spark.targets.errors import TargetError

PREFLIGHT_NAME = "lethe:preflight"


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

    Raises: ServiceError: StoreKindWrong, InvalidRequest, FUTURE_CUTOFF, ExpressionRefused, TableNotPurgeable,
        PLAN_NOT_USABLE, PLAN_NO_LONGER_HOLDS, LIMIT_EXCEEDED, EpochAhead.
    """
    require_kind(store, StoreKind.SQL)
    request = RowsRequest.model_validate(fields)
    check_request(request)
    check_engine(request.engine, settings)
    with database.reading() as db:
        plan = _find_plan(db, store, request, now=now)
        params = snapshot(db, store, request, plan)
    if plan is not None and for_write and PlannedKeys.of_plan(database, plan.plan_id) is None:
        raise PlanNoLongerHolds("the plan names more rows than can be kept: purge without plan_id")
    resource = None
    if set(store.runs_on) <= set(settings.labels):  # else only other runners reach it
        resource = _look_early(database, store, params, settings=settings, for_write=for_write)
    return _looked(store, params, resource)


def snapshot(db: Session, store: Store, request: RowsRequest, plan: RowsPlanRead | None = None) -> RowsParams:
    """Everything that decides what the job does, as it is now."""
    assert request.table is not None, "looked at before"
    limits = StoreLimits.model_validate(store.limits)
    throttle = request.throttle
    if request.max_rows_per_s is not None:
        throttle = ThrottleSetting(rows_per_s=request.max_rows_per_s)
    return RowsParams(
        table=request.table,
        time_column=request.time_column if plan is None else plan.time_column,
        time_unit=request.time_unit if plan is None else plan.time_unit,
        older_than=request.older_than if plan is None else None,
        cutoff=request.cutoff if plan is None else plan.cutoff,
        where=request.where if plan is None else plan.where,
        children=request.children if plan is None else plan.children,
        rows_in_tx=request.max_rows_in_tx,
        archive=request.archive is not None,
        archive_retention=str(effective_by_name(db, "lethe.retention.archives", {}).value),
        engine=request.engine,
        throttle=throttle,
        max_replica_lag=request.max_replica_lag,
        replicas=request.replicas,
        overlap=request.overlap,
        plan_id=request.plan_id,
        max_drift=request.max_drift,
        max_rows=limits.max_rows,
        max_fraction=limits.max_fraction,
        target=target_fields(store),
    )


def _find_plan(db: Session, store: Store, request: RowsRequest, *, now: datetime) -> RowsPlanRead | None:
    """The plan that a request names, if it may still be executed.

    Raises: PlanNotUsable, also with PLAN_DIFFERS; PlanNoLongerHolds, LimitExceeded.
    """
    if request.plan_id is None:
        return None
    job = finished_purge_plan(db, store, request.plan_id, kind="ROWS")
    plan = RowsPlanRead.model_validate(job.result)
    planned = RowsParams.model_validate(job.params)
    for name in ("table", "time_column", "time_unit", "where", "children"):
        said = getattr(request, name)
        if name in request.model_fields_set and said != getattr(planned, name):
            raise PlanNotUsable(f"{name} must be that of the plan", code="PLAN_DIFFERS")
    check_still_holds(plan, store, reviewed_target=planned.target, target=target_fields(store), now=now)
    return plan


def _look_early(
    database: Database, store: Store, params: RowsParams, *, settings: Settings, for_write: bool
) -> str | None:
    """Refuse at once what the job would refuse later; what it will write, None: the target is away."""
    try:
        limits = session_limits(settings)
        target = target_of(store, settings, database, is_judged=True)
        with connect(target, application_name=PREFLIGHT_NAME, limits=limits, read_only=True) as conn:
            judge(database, store, conn)
            family = read_family(conn, store, params, decide_cutoff(params, conn))
            check_findings(refusals(family), is_plan=not for_write)
            if for_write:
                refuse_ahead(database, store.id, conn, rows_resource(store))
            return part_resource(store, conn, params.table)
    except SecretUnavailable:
        raise
    except TargetError as error:
        if not error.transient:
            raise service_error(error) from error
    except ServiceError as error:
        if not error.retryable:
            raise
    return None


def unseen(db: Session, store: Store, fields: Mapping[str, Any]) -> Looked:
    """The snapshot of a request whose target is looked at when the job runs.

    Raises: StoreKindWrong, InvalidRequest.
    """
    require_kind(store, StoreKind.SQL)
    request = RowsRequest.model_validate(fields)
    check_request(request, at="/params")
    return _looked(store, snapshot(db, store, request))


def _looked(store: Store, params: RowsParams, resource: str | None = None) -> Looked:
    return Looked(
        params=params,
        resource=resource or unseen_resource(store, params.table),
        keep=partial(_check_replicas, params.replicas),
    )


def _check_replicas(names: Sequence[str], db: Session, caller: Caller) -> None:
    """Raise StoreForbidden, StoreNotFound, StoreKindWrong of a replica that cannot be asked for its lag."""
    for name in names:
        caller.require_store(name)
        require_kind(get_store(db, name), StoreKind.SQL)


PURGING: Final = Purging(
    store_kind=StoreKind.SQL,
    look=look,
    unseen=unseen,
    own=frozenset(RowsFields.model_fields),
    refused=dict.fromkeys(("stranded", "strict", "strategy", "force", "retention_minutes", "max_entries")),
)
