"""Rules of a purge CHANGELOG at its submission: the snapshot, the early look at the replica, the plan."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlmodel import Session

from app.db import Database
from app.parameters.service import effective_by_name
from app.replication.agreements.sessions.service import target_of_store
from app.replication.purges.looking import (
    check_reviewed,
    cutoff_of,
    find_plan,
    look_early,
    retention_of,
)
from app.replication.purges.looking import fault_of as reviewed_fault
from app.replication.trimming.models import TrimFields, TrimParams
from app.settings import Settings
from app.stores.models import StoreKind, StoreLimits
from app.stores.rows import Store
from app.stores.service import require_kind
from app.sweeps.models import ChangelogPlanRead
from app.sweeps.purging import CHANGELOG, Looked, Purging
from spark.replication.trimming.plan import TrimPlan, plan_trim
from spark.targets.connection import Connection, target_now

MAX_AGE = "nsslapd-changelogmaxage"
MAX_ENTRIES = "nsslapd-changelogmaxentries"


def not_trimmed(status: str) -> str:
    """Why a replica that is not whole keeps its records."""
    return f"a replica that is {status} is not trimmed: what it still needs is not known"


def trim_resource(store: Store) -> str:
    """The table that a trimming writes, as its claim and its fence name it."""
    return f"{store.schema_name or 'public'}.{store.table_prefix.lower()}changelog"


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

    Raises: ServiceError: StoreKindWrong, FUTURE_CUTOFF, PLAN_NOT_USABLE, PLAN_NO_LONGER_HOLDS,
        LIMIT_EXCEEDED, ReplicaRestored, ReplicaInitializing.
    """
    require_kind(store, StoreKind.REPLICA)
    request = TrimFields.model_validate(fields)
    with database.reading() as db:
        plan = _find_plan(db, store, request, now=now)
        params = snapshot(db, store, request, plan)

    def check(conn: Connection) -> None:
        cutoff_of(params, target_now(conn))
        if for_write and params.planned is not None:
            check_reviewed(conn, settings, partial(_fault_now, conn, params))

    look_early(database, store, settings, check=check, not_whole=not_trimmed if for_write else None)
    return _looked(store, params)


def snapshot(
    db: Session, store: Store, request: TrimFields, plan: ChangelogPlanRead | None = None
) -> TrimParams:
    """Everything that decides what the job does, now: request over store over global over default."""
    retention, source = retention_of(db, store, request, plan, parameter=MAX_AGE)
    bound, bound_source = _max_entries(db, store, request, plan)
    limits = StoreLimits.model_validate(store.limits)
    return TrimParams(
        cutoff=plan.cutoff if plan else request.cutoff,
        retention=retention,
        retention_source=source,
        max_entries=bound,
        max_entries_source=bound_source,
        rows_in_tx=request.max_rows_in_tx,
        archive=request.archive is not None,
        archive_retention=str(effective_by_name(db, "lethe.retention.archives", {}).value),
        throttle=request.throttle,
        overlap=request.overlap,
        plan_id=request.plan_id,
        max_drift=request.max_drift,
        planned_upto=None if plan is None else {item.rid: item.upto for item in plan.rids if item.upto},
        planned=None if plan is None else {item.rid: item.rows_to_remove for item in plan.rids},
        max_rows=limits.max_rows,
        max_fraction=limits.max_fraction,
        target=target_of_store(store),
    )


def _max_entries(
    db: Session, store: Store, request: TrimFields, plan: ChangelogPlanRead | None
) -> tuple[int | None, str]:
    if plan is not None:
        return plan.max_entries, "PLAN"
    if request.max_entries is not None:
        return request.max_entries, "REQUEST"
    in_effect = effective_by_name(db, MAX_ENTRIES, store.parameters)
    return int(in_effect.value) or None, in_effect.source


def _find_plan(db: Session, store: Store, request: TrimFields, *, now: datetime) -> ChangelogPlanRead | None:
    def difference(plan: ChangelogPlanRead) -> str | None:
        is_other = request.max_entries is not None and request.max_entries != plan.max_entries
        return "max_entries must be that of the plan" if is_other else None

    return find_plan(db, store, request, ChangelogPlanRead, kind=CHANGELOG, difference=difference, now=now)


def _fault_now(
    conn: Connection, params: TrimParams, now_s: int, should_stop: Callable[[], bool]
) -> str | None:
    plan = plan_trim(
        conn,
        cutoff_s=None if params.cutoff is None else int(params.cutoff.timestamp()),
        max_entries=params.max_entries,
        now_s=now_s,
        should_stop=should_stop,
        reviewed=params.reviewed,
    )
    return fault_of(plan, params)


def fault_of(plan: TrimPlan, params: TrimParams) -> str | None:
    """Why a reviewed plan does not hold any more; None: it does, or none is executed.

    Args:
        plan: what would go now, within the reviewed.
    """
    return reviewed_fault(
        params, {item.rid: item.rows_to_remove for item in plan.rids}, tell=_another_changelog
    )


def _another_changelog(rid: int, reviewed: int, now: int) -> str:
    return (
        f"{reviewed} records of replica id {rid} were reviewed, and up to the last of them {now} would go"
        " now: it is another changelog; plan again"
    )


def unseen(db: Session, store: Store, fields: Mapping[str, Any]) -> Looked:
    """The snapshot of a request whose target is looked at when the job runs.

    Raises: StoreKindWrong.
    """
    require_kind(store, StoreKind.REPLICA)
    return _looked(store, snapshot(db, store, TrimFields.model_validate(fields)))


def _looked(store: Store, params: TrimParams) -> Looked:
    return Looked(params=params, resource=trim_resource(store))


PURGING: Final = Purging(
    store_kind=StoreKind.REPLICA,
    look=look,
    unseen=unseen,
    refused=dict.fromkeys(("stranded", "strict", "strategy", "engine", "force")),
)
