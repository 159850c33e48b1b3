"""Rules of a purge at its submission: the snapshot, the early look at the target, the reviewed plan."""

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.db import Database
from app.jobs.engines.choice import check_engine
from app.jobs.errors import PlanNoLongerHolds, PlanNotUsable
from app.jobs.plans.reviewed_plan import check_still_holds, finished_plan
from app.jobs.running.recovery import refuse_ahead
from app.parameters.service import effective_by_name
from app.purge.cutoff import RETENTION_PARAMETERS, Cutoff, decide_cutoff, local_of, locals_of
from app.purge.drift import fault_of
from app.purge.kinds.kind import Look
from app.purge.kinds.table import KINDS
from app.purge.models import (
    PurgeKind,
    PurgeParams,
    PurgePlanRead,
    PurgeRequest,
    Sourced,
    StrandedMode,
)
from app.purge.reviewed import PlannedKeys
from app.purge.rules import check_permissions, fence_resource
from app.secrets.errors import SecretUnavailable
from app.settings import Settings
from app.stores.borders import judge
from app.stores.errors import service_error
from app.stores.models import StoreKind, StoreLimits
from app.stores.rows import Store
from app.stores.service import require_kind
from app.stores.targets import session_limits, target_of
from spark.purge.reading.inspect import Inspection, inspect
from spark.purge.scan import PlanStopped
from spark.purge.statements import PurgeSpec
from spark.purge.stranded import stranded_nodes
from spark.targets.connection import Connection, connect
from spark.targets.errors import TargetError

DATA_TX = "job.purge.max.num.data.to.delete.in.tx"
EVENTS_TX = "job.purge.max.num.data.events.to.delete.in.tx"
BATCHES_TX = "job.purge.max.num.batches.to.delete.in.tx"
MARK_STRANDED = "purge.mark.stranded"
PREFLIGHT_NAME = "lethe:preflight"


def snapshot(db: Session, store: Store, request: PurgeRequest, plan: PurgePlanRead | None) -> PurgeParams:
    """Everything that decides what the job does, as it is now.

    Raises: StoreKindWrong.
    """
    require_kind(store, StoreKind.SYMMETRICDS)
    limits = StoreLimits.model_validate(store.limits)
    retention = RETENTION_PARAMETERS[request.kind]
    default = effective_by_name(db, retention, {})
    stranded, stranded_by = _stranded(store, request, plan)
    return PurgeParams(
        kind=request.kind,
        cutoff=plan.cutoff if plan else request.cutoff,
        retention_minutes=_retention(store, request, retention),
        default_retention_minutes=Sourced(value=int(default.value), source=default.source),
        channel_retention_minutes=request.channel_retention_minutes or {},
        channel_cutoffs=plan.channel_cutoffs if plan else None,
        stranded=stranded,
        stranded_by=stranded_by,
        stranded_nodes=[node.node_id for node in plan.stranded.nodes] if plan and plan.stranded else None,
        strict=request.strict,
        data_rows_in_tx=request.max_rows_in_tx or _set_size(db, store, DATA_TX),
        event_batches_in_tx=_set_size(db, store, EVENTS_TX),
        batches_in_tx=request.max_rows_in_tx or _set_size(db, store, BATCHES_TX),
        archive=request.archive,
        engine=request.engine,
        throttle=request.throttle,
        force=request.force,
        overlap=request.overlap,
        plan_id=request.plan_id,
        max_drift=request.max_drift,
        max_rows=limits.max_rows,
        max_fraction=limits.max_fraction,
        archive_retention=str(effective_by_name(db, "lethe.retention.archives", {}).value),
        target=target_fields(store),
    )


def _stranded(store: Store, request: PurgeRequest, plan: PurgePlanRead | None) -> tuple[StrandedMode, str]:
    """What becomes of stranded batches, and who said so: nobody's backlog is given up unasked."""
    if plan is not None and plan.stranded is not None:
        return plan.stranded.mode, "PLAN"
    if request.stranded is not None:
        return request.stranded, "REQUEST"
    if request.kind is PurgeKind.OUTGOING and store.parameters.get(MARK_STRANDED) is True:
        return StrandedMode.MARK, "STORE"
    return StrandedMode.SKIP, "DEFAULT"


def target_fields(store: Store) -> dict[str, Any]:
    """What tells one target of a store from another."""
    return {
        "url": store.url,
        "schema": store.schema_name,
        "table_prefix": store.table_prefix,
        "time_zone": store.time_zone,
    }


def _retention(store: Store, request: PurgeRequest, name: str) -> Sourced | None:
    if request.retention_minutes is not None:
        return Sourced(value=request.retention_minutes, source="REQUEST")
    if name in store.parameters:
        return Sourced(value=int(store.parameters[name]), source="STORE")
    return None


def _set_size(db: Session, store: Store, name: str) -> int | None:
    """A size that somebody has set; the document's default leaves the size to Lethe."""
    in_effect = effective_by_name(db, name, store.parameters)
    return None if in_effect.source == "DEFAULT" else int(in_effect.value)


@dataclass(frozen=True, slots=True)
class EarlyLook:
    """What the target said at submission; None: it could not be reached from here, the job will see."""

    inspection: Inspection | None
    stranded: tuple[str | None, ...] | None = None


def look_early(
    database: Database, store: Store, params: PurgeParams, *, settings: Settings, for_write: bool
) -> EarlyLook:
    """Refuse at once what the job would refuse later.

    A target that is away is no error: the job waits for it. A store that only other runners can reach is
    not looked at from here.

    Raises: FutureCutoff, RetentionTooShort, EpochAhead, PermissionMissing; errors of the target.
    """
    if not set(store.runs_on) <= set(settings.labels):
        return EarlyLook(None)
    try:
        limits = session_limits(settings)
        target = target_of(store, settings, database, is_judged=True)
        with connect(target, application_name=PREFLIGHT_NAME, limits=limits, read_only=True) as conn:
            judge(database, store, conn)
            kind = KINDS[params.kind]
            inspection = inspect(conn, kind.name)
            if for_write:
                check_permissions(inspection)
                refuse_ahead(database, store.id, conn, fence_resource(store, kind.resource))
            cutoff = decide_cutoff(params, inspection)
            if params.plan_id is not None and for_write:
                early = _EarlyLook(conn, store, params, inspection, cutoff)
                _check_drift(database, settings, early)
            reviewed = params.plan_id and params.kind is PurgeKind.OUTGOING
            nodes = stranded_nodes(conn, PurgeSpec(cutoff=0)) if reviewed else ()
            return EarlyLook(inspection, tuple(node.node_id for node in nodes))
    except TargetError as error:
        if error.transient:
            return EarlyLook(None)
        raise service_error(error) from error


@dataclass(frozen=True, slots=True)
class _EarlyLook:
    """What a look at submission has for a plan."""

    conn: Connection
    store: Store
    params: PurgeParams
    inspection: Inspection
    cutoff: Cutoff


def _check_drift(database: Database, settings: Settings, early: _EarlyLook) -> None:
    """Raise PlanNoLongerHolds when too few of the reviewed rows would go now.

    What takes longer than a plan is waited for is left to the job, which looks before its first unit.
    """
    params = early.params
    assert params.plan_id is not None
    keys = PlannedKeys.of_plan(database, params.plan_id)
    if keys is None:
        raise PlanNoLongerHolds("the plan was made by an earlier version, which kept no rows: plan again")
    if params.max_drift is None:
        return
    until = time.monotonic() + settings.plan_wait_default_s
    look = Look(
        conn=early.conn,
        store=early.store,
        params=params,
        inspection=early.inspection,
        local=local_of(early.store, early.inspection, early.cutoff.at),
        channels=locals_of(early.store, early.inspection, early.cutoff),
        should_stop=lambda: time.monotonic() > until,
    )
    with suppress(PlanStopped):
        fault = fault_of(KINDS[params.kind], look, keys, max_drift=params.max_drift)
        if fault is not None:
            raise PlanNoLongerHolds(fault)


def find_plan(db: Session, store: Store, request: PurgeRequest, *, now: datetime) -> PurgePlanRead | None:
    """The plan that a request names.

    Raises:
        PlanNotUsable: no finished plan of this store, or other options than the request's.
        PlanNoLongerHolds: it has expired, or the store has changed.
        LimitExceeded: the plan itself is too large.
    """
    if request.plan_id is None:
        return None
    job = finished_plan(db, store, request.plan_id)
    plan = PurgePlanRead.model_validate(job.result)
    params = PurgeParams.model_validate(job.params)
    reviewed = plan.stranded.mode if plan.stranded else None
    stranded = request.stranded or reviewed
    if (plan.kind, reviewed, plan.strict) != (request.kind, stranded, request.strict):
        raise PlanNotUsable("kind, stranded and strict must be those of the plan", code="PLAN_DIFFERS")
    check_still_holds(plan, store, reviewed_target=params.target, target=target_fields(store), now=now)
    return plan


def check_nodes(plan: PurgePlanRead | None, look: EarlyLook) -> None:
    """Raise PlanNoLongerHolds when other nodes are disabled now than were reviewed."""
    if plan is None or plan.stranded is None or look.stranded is None:
        return
    if plan.stranded.mode is StrandedMode.SKIP:
        return
    reviewed = {node.node_id for node in plan.stranded.nodes}
    now = set(look.stranded)
    if now != reviewed:
        changed = ", ".join(sorted(str(node) for node in now ^ reviewed))
        raise PlanNoLongerHolds(f"other nodes are stranded now than in the plan: {changed}")


def prepare(
    database: Database,
    store: Store,
    request: PurgeRequest,
    *,
    settings: Settings,
    now: datetime,
    for_write: bool,
) -> tuple[PurgeParams, EarlyLook]:
    """Snapshot and early look of a request.

    Raises: ServiceError.
    """
    require_kind(store, StoreKind.SYMMETRICDS)
    check_engine(request.engine, settings)
    with database.reading() as db:
        plan = find_plan(db, store, request, now=now)
        params = snapshot(db, store, request, plan)
    try:
        look = look_early(database, store, params, settings=settings, for_write=for_write)
    except SecretUnavailable:
        if set(store.runs_on) <= set(settings.labels):
            raise
        look = EarlyLook(None)
    check_nodes(plan, look)
    return params, look
