"""Rules of an event cleanup at its submission: the snapshot, an early look, the reviewed plan."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session

from app.auth.service import Caller
from app.db import Database
from app.errors import Conflict, Unprocessable
from app.events.cleanup.models import (
    CLEANUP_INTERVAL,
    JOB_CLEANUP,
    CleanupParams,
    CleanupPlanRead,
    CleanupRequest,
    CleanupRule,
    CleanupVia,
    EventOverlap,
)
from app.events.cleanup.node_claims import Place, node_place, refuse_node_conflict
from app.events.cleanup_reviewed import bounded, fault_of
from app.events.nodes import refuse_copy
from app.jobs.engines.choice import check_engine
from app.jobs.errors import PlanNoLongerHolds, PlanNotUsable
from app.jobs.plans.reviewed_plan import check_still_holds, finished_plan
from app.jobs.rows import Job
from app.jobs.running.recovery import refuse_ahead
from app.jobs.submission import submit_claiming
from app.kinds.parameter import as_timedelta
from app.kit.instants import instant_text
from app.parameters.service import effective_by_name
from app.settings import Settings
from app.stores.borders import judge
from app.stores.errors import service_error
from app.stores.models import StoreKind, StoreLimits
from app.stores.rows import Store
from app.stores.service import require_kind
from app.stores.targets import session_limits, target_of
from spark.events.catalog import read_catalog
from spark.events.cleaning.plan import plan_cleanup
from spark.events.records import Catalog
from spark.formats.slony import schema_of
from spark.targets.connection import Connection, connect, identity, target_now
from spark.targets.errors import TargetError

CLEANUP_FUNCTION = "cleanupevent"
"""Of the cluster, in lower case: what NATIVE calls."""
PREFLIGHT_NAME = "lethe:preflight"
NO_CLEANUP_PLAN = "plan_id names no finished plan of a cleanup here"


@dataclass(frozen=True, slots=True)
class EarlyLook:
    """What the node told at submission; all empty: it could not be asked from here, the job will see."""

    identity: str | None = None
    place: Place | None = None


def target_fields(store: Store) -> dict[str, Any]:
    """What tells one target of a store from another."""
    return {"url": store.url, "cluster": store.cluster}


def cleanup_resource(store: Store) -> str:
    """What a cleanup writes, as its claim and its fence name it."""
    assert store.cluster is not None, "a store of kind SLONY names its cluster"
    return f"{schema_of(store.cluster)}.cleanup"


def check_fields(request: CleanupRequest, settings: Settings, *, at: str = "") -> None:
    """Refuse what cannot be had together.

    Args:
        at: where the request lies in the body.
    Raises: Unprocessable: VIA_NEEDS_BUILTIN; SparkDisabled.
    """
    check_engine(request.engine, settings)
    needed = request.only_builtin
    if request.via is CleanupVia.NATIVE and needed:
        detail = "the cluster's own function does not know it: only BUILTIN does"
        raise Unprocessable(
            f"via NATIVE excludes {', '.join(needed)}",
            code="VIA_NEEDS_BUILTIN",
            errors=[{"pointer": f"{at}/{name}", "detail": detail} for name in needed],
        )


def snapshot(
    db: Session, store: Store, request: CleanupRequest, plan: CleanupPlanRead | None = None
) -> CleanupParams:
    """Everything that decides what the job does, now: request over store over global over default.

    Raises: StoreKindWrong.
    """
    require_kind(store, StoreKind.SLONY)
    named = plan.confirmed_before if plan is not None else request.confirmed_before
    interval, source = (None, "PLAN" if plan else "REQUEST") if named else _interval(db, store, request)
    limits = StoreLimits.model_validate(store.limits)
    return CleanupParams(
        confirmed_before=named,
        interval=interval,
        interval_source=source,
        via=CleanupVia.BUILTIN if request.only_builtin else request.via,
        rule=request.rule,
        log_switch=request.log_switch,
        archive=request.archive is not None,
        archive_retention=str(effective_by_name(db, "lethe.retention.archives", {}).value),
        max_rows_in_tx=request.max_rows_in_tx,
        engine=request.engine,
        throttle=request.throttle,
        overlap=request.overlap,
        plan_id=request.plan_id,
        max_drift=request.max_drift,
        planned=None if plan is None else plan.tables,
        planned_bounds={} if plan is None else _bounds(plan),
        planned_confirmations=[] if plan is None else _confirmations(plan),
        max_rows=limits.max_rows,
        max_fraction=limits.max_fraction,
        target=target_fields(store),
    )


def _bounds(plan: CleanupPlanRead) -> dict[int, int]:
    return {item.origin: item.bound for item in plan.origins if item.bound is not None}


def _confirmations(plan: CleanupPlanRead) -> list[tuple[int, int, int]]:
    """Below what those of each pair go; all of a pair go where one of its nodes is no more."""
    found = []
    for pair in plan.confirmations:
        below = pair.newest_seqno + 1 if pair.rows_to_remove == pair.rows else pair.aged_seqno
        if pair.rows_to_remove and below is not None:
            found.append((pair.origin, pair.receiver, below))
    return found


def _interval(db: Session, store: Store, request: CleanupRequest) -> tuple[timedelta, str]:
    if request.interval is not None:
        return request.interval, "REQUEST"
    in_effect = effective_by_name(db, CLEANUP_INTERVAL, store.parameters)
    return as_timedelta(in_effect.value), in_effect.source


def find_plan(db: Session, store: Store, request: CleanupRequest, *, now: datetime) -> CleanupPlanRead | None:
    """The plan that a request names, if it may still be executed.

    Raises: PlanNotUsable, also with PLAN_DIFFERS; PlanNoLongerHolds, LimitExceeded.
    """
    if request.plan_id is None:
        return None
    job = finished_plan(db, store, request.plan_id, of=JOB_CLEANUP, detail=NO_CLEANUP_PLAN)
    plan, params = CleanupPlanRead.model_validate(job.result), CleanupParams.model_validate(job.params)
    if (params.rule, params.log_switch) != (request.rule, request.log_switch):
        raise PlanNotUsable("rule and log_switch must be those of the plan", code="PLAN_DIFFERS")
    check_still_holds(plan, store, reviewed_target=params.target, target=target_fields(store), now=now)
    return plan


def prepare(
    database: Database,
    store: Store,
    request: CleanupRequest,
    *,
    settings: Settings,
    now: datetime,
    for_write: bool,
) -> tuple[CleanupParams, EarlyLook]:
    """Snapshot and early look of a request.

    Raises: ServiceError: StoreKindWrong, VIA_NEEDS_BUILTIN, CONFIRMED_BEFORE_IN_THE_FUTURE,
        FUNCTIONS_MISSING, EpochAhead, what a plan does not allow, what the target says for good.
    """
    require_kind(store, StoreKind.SLONY)
    check_fields(request, settings)
    with database.reading() as db:
        plan = find_plan(db, store, request, now=now)
        params = snapshot(db, store, request, plan)
    resource = cleanup_resource(store) if for_write else None
    return params, look_early(database, store, settings, params, resource=resource)


def look_early(
    database: Database,
    store: Store,
    settings: Settings,
    params: CleanupParams | None = None,
    *,
    resource: str | None,
    check_catalog: Callable[[Catalog], None] | None = None,
) -> EarlyLook:
    """Refuse at once what the job would refuse later.

    A target that is away is no error: the job waits for it. A store that only other runners can reach is not
    looked at from here.

    Args:
        params: of a cleanup; None: a log switch or a SYNC, for which there is nothing more to check.
        resource: whose fence must not be above our epoch; None: a plan, which writes nothing there.
        check_catalog: what more the catalog must have.
    """
    if not set(store.runs_on) <= set(settings.labels):
        return EarlyLook()
    assert store.cluster is not None, "a store of kind SLONY names its cluster"
    try:
        target, limits = target_of(store, settings, database, is_judged=True), session_limits(settings)
        with connect(target, application_name=PREFLIGHT_NAME, limits=limits, read_only=True) as conn:
            judge(database, store, conn)
            catalog = read_catalog(conn, store.cluster)
            if check_catalog is not None:
                check_catalog(catalog)
            if resource is not None:
                refuse_ahead(database, store.id, conn, resource)
                refuse_copy(database, settings, store, conn, catalog)
            if params is not None:
                check_instant(params.confirmed_before, target_now(conn))
                check_functions(params.via, catalog)
                if params.planned is not None:
                    _check_reviewed(conn, catalog, params)
            found = identity(conn)
    except TargetError as error:
        if error.transient:
            return EarlyLook()
        raise service_error(error) from error
    return EarlyLook(found, node_place(catalog, identity=found))


def check_instant(confirmed_before: datetime | None, now: datetime) -> None:
    """Raise CONFIRMED_BEFORE_IN_THE_FUTURE for an instant that is later than the target's clock."""
    if confirmed_before is not None and confirmed_before > now:
        named, there = instant_text(confirmed_before), instant_text(now)
        detail = f"confirmed_before {named} is later than the target's {there}"
        errors = [{"pointer": "/confirmed_before", "detail": "in the future of the target's clock"}]
        raise Unprocessable(detail, code="CONFIRMED_BEFORE_IN_THE_FUTURE", errors=errors)


def _check_reviewed(conn: Connection, catalog: Catalog, params: CleanupParams) -> None:
    """Raise PlanNoLongerHolds where a reviewed plan is another one by now; the job looks again."""
    assert params.confirmed_before is not None, "a plan names its instant"
    is_counted = params.max_drift is not None or params.rule is not CleanupRule.PROGRAM
    plan = plan_cleanup(
        conn,
        catalog,
        confirmed_before=params.confirmed_before,
        rule=params.rule.value,
        is_counted=is_counted,
    )
    found = bounded(conn, catalog, plan, params)
    fault = fault_of(found, params, is_cut_short=found != plan)
    if fault is not None:
        raise PlanNoLongerHolds(fault)


def check_functions(via: CleanupVia | None, catalog: Catalog) -> None:
    """Raise FUNCTIONS_MISSING where NATIVE is asked for, and the cluster's function is not there."""
    if via is CleanupVia.NATIVE and CLEANUP_FUNCTION not in catalog.functions:
        raise Conflict(
            f"via NATIVE needs the function cleanupEvent of cluster {catalog.cluster!r}, which is not"
            " installed or may not be called; BUILTIN does without",
            code="FUNCTIONS_MISSING",
        )


def submit_cleanup(
    db: Session,
    store: Store,
    params: CleanupParams,
    look: EarlyLook,
    *,
    caller: Caller,
    reason: str | None,
    settings: Settings,
    now: datetime,
    parent_id: str | None = None,
) -> Job:
    """Queue the job.

    Raises: ConflictingJob, QueueFull.
    """
    if params.overlap is EventOverlap.REFUSE:
        refuse_node_conflict(db, look.place)
    return submit_claiming(
        db,
        store,
        JOB_CLEANUP,
        params,
        resource=cleanup_resource(store),
        identity=look.identity,
        throttle=params.throttle,
        caller=caller,
        reason=reason,
        settings=settings,
        now=now,
        parent_id=parent_id,
    )


def submit_unseen(
    db: Session,
    store: Store,
    request: CleanupRequest,
    *,
    caller: Caller,
    settings: Settings,
    now: datetime,
    parent_id: str | None = None,
) -> Job:
    """Queue a cleanup without a look at its target: what that says is seen when the job runs.

    Raises: StoreKindWrong, ConflictingJob, QueueFull.
    """
    return submit_cleanup(
        db,
        store,
        snapshot(db, store, request),
        EarlyLook(),
        caller=caller,
        reason=request.reason,
        settings=settings,
        now=now,
        parent_id=parent_id,
    )
