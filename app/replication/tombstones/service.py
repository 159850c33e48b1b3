"""Rules of a purge TOMBSTONES at its submission: the snapshot, the early look at the replica, the plan."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlmodel import Session

from app.db import Database
from app.errors import InvalidRequest
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
from app.replication.tombstones.models import TombstoneFields, TombstoneParams
from app.settings import Settings
from app.stores.models import StoreKind, StoreLimits
from app.stores.rows import Store
from app.stores.service import require_kind
from app.sweeps.cutoff import RetentionTooShort
from app.sweeps.models import TombstonePlanRead
from app.sweeps.purging import CHANGELOG, TOMBSTONES, Looked, Purging
from spark.replication.tombstones.plan import TombstonePlan, check_gone, plan_tombstones
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

    def check(conn: Connection) -> None:
        decide_cutoff(params, target_now(conn))
        if for_write and params.planned is not None:
            check_reviewed(conn, settings, partial(_fault_now, conn, params))

    look_early(database, store, settings, check=check, not_whole=not_purged if for_write else None)
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
    retention, source = retention_of(db, store, request, plan, parameter=PURGE_DELAY)
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
    cutoff = cutoff_of(params, now)
    if cutoff is not None and now - cutoff < LEAST_AGE and not params.force:
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
    return reviewed_fault(params, {item.rid: item.rows_to_remove for item in plan.rids}, tell=_other_entries)


def _other_entries(rid: int, reviewed: int, now: int) -> str:
    return (
        f"{reviewed} tombstones of replica id {rid} were reviewed, and {now} would go now: these are other"
        " entries; plan again"
    )


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


def _find_plan(
    db: Session, store: Store, request: TombstoneFields, *, now: datetime
) -> TombstonePlanRead | None:
    def difference(plan: TombstonePlanRead) -> str | None:
        is_other = request.gone_rids is not None and sorted(set(request.gone_rids)) != plan.gone_rids
        return "gone_rids must be those of the plan" if is_other else None

    return find_plan(db, store, request, TombstonePlanRead, kind=TOMBSTONES, difference=difference, now=now)


def _fault_now(
    conn: Connection, params: TombstoneParams, now_s: int, should_stop: Callable[[], bool]
) -> str | None:
    rules = params.rules(params.cutoff)
    return fault_of(plan_tombstones(conn, rules, now_s=now_s, should_stop=should_stop), params)


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
