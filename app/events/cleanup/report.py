"""From the lower floor's values of a cleanup to what clients see, in words that an operator understands."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from app.events.cleanup.models import (
    CleanupLimitsRead,
    CleanupLogSwitch,
    CleanupParams,
    CleanupPlanRead,
    CleanupVia,
    CleanupWarning,
    HazardRead,
    HoldRead,
    LogOriginRead,
    OriginCleanupRead,
    PairCleanupRead,
    SwitchForecastRead,
)
from app.stores.models import Reach, exceeded
from app.stores.rows import Store
from app.sweeps.limits import limits_in_effect
from spark.events.cleaning.records import (
    TABLE_OF,
    CleanupPlan,
    Hazard,
    Hold,
    LogOrigin,
    OriginPlan,
    PairPlan,
    Step,
)

PAIRS_SHOWN_MAX = 2_000
"""Of a cluster of 45 nodes; those with most rows to remove come first."""


def reach_of(plan: CleanupPlan) -> Reach:
    """What a plan would remove: rows of all tables, and events as a share of events."""
    return Reach(rows=plan.rows_to_remove, part=plan.to_remove["EVENT"], whole=plan.rows, shares="events")


def plan_read(
    plan: CleanupPlan,
    params: CleanupParams,
    *,
    plan_id: str,
    store: Store,
    via: CleanupVia,
    valid_s: int,
    now: datetime,
) -> CleanupPlanRead:
    """Show a plan."""
    limits = limits_in_effect(store, params)
    pairs = sorted(plan.pairs, key=lambda pair: -pair.rows_to_remove)[:PAIRS_SHOWN_MAX]
    return CleanupPlanRead(
        plan_id=plan_id,
        store=store.id,
        confirmed_before=plan.confirmed_before,
        interval=params.interval,
        interval_source=params.interval_source,
        via=via,
        rule=params.rule,
        rows=plan.rows,
        rows_to_remove=plan.rows_to_remove,
        tables=by_table(plan.to_remove),
        origins=[_origin_read(item) for item in plan.origins],
        confirmations=[_pair_read(item) for item in pairs],
        log_switch=_forecast_read(plan, params),
        hazards=[hazard_read(item) for item in plan.hazards],
        limits=CleanupLimitsRead(
            max_rows=limits.max_rows,
            max_fraction=limits.max_fraction,
            exceeded=exceeded(limits, reach_of(plan)),
        ),
        warnings=plan_warnings(plan, via),
        expires_at=now + timedelta(seconds=valid_s),
    )


def by_table(rows: Mapping[Step, int]) -> dict[str, int]:
    """Rows by step as rows by table; every table is there."""
    return {table: rows.get(step, 0) for step, table in TABLE_OF.items()}


def _origin_read(item: OriginPlan) -> OriginCleanupRead:
    return OriginCleanupRead(
        origin=item.origin,
        rows=item.rows,
        rows_to_remove=item.rows_to_remove,
        syncs_to_remove=item.syncs_to_remove,
        floor=item.floor,
        bound=item.bound,
        first_seqno=item.first_seqno,
        last_seqno=item.last_seqno,
        held=None if item.held is None else _hold_read(item.held),
        seqlog_rows_to_remove=item.seqlog_rows,
        log_script_rows_to_remove=item.log_script_rows,
    )


def _hold_read(hold: Hold) -> HoldRead:
    return HoldRead(why=hold.why, receiver=hold.receiver, seqno=hold.seqno)


def _pair_read(item: PairPlan) -> PairCleanupRead:
    return PairCleanupRead(
        origin=item.origin,
        receiver=item.receiver,
        rows=item.rows,
        rows_to_remove=item.rows_to_remove,
        newest_seqno=item.newest,
        aged_seqno=item.aged,
    )


def _forecast_read(plan: CleanupPlan, params: CleanupParams) -> SwitchForecastRead:
    found = plan.log_switch
    if params.log_switch is CleanupLogSwitch.NONE:
        return SwitchForecastRead(status=int(found.status), step="NONE", table=None, origins=[])
    return SwitchForecastRead(
        status=int(found.status),
        step=found.step,
        table=found.table,
        origins=[log_origin_read(item) for item in found.origins],
    )


def log_origin_read(item: LogOrigin) -> LogOriginRead:
    """Show an origin's rows in the log table that is to be emptied."""
    return LogOriginRead(
        origin=item.origin,
        oldest_sync=item.oldest_sync,
        xmin=item.xmin,
        undrained_txid=item.undrained_txid,
        is_drained=item.is_drained,
        reason=item.reason,
        receiver=item.receiver,
    )


def hazard_read(item: Hazard) -> HazardRead:
    """Show a hazard."""
    return HazardRead(
        kind=item.kind, origin=item.origin, receiver=item.receiver, rows=item.rows, detail=item.detail
    )


def plan_warnings(plan: CleanupPlan, via: CleanupVia) -> list[CleanupWarning]:
    """What an operator should know of a plan: who holds events, and what the program would lose here."""
    found = [
        CleanupWarning(code=f"HELD_{item.held.why}", detail=hold_text(item, item.held))
        for item in plan.origins
        if item.held is not None and item.held.why in ("NEVER_CONFIRMED", "NO_SYNC", "BEHIND")
    ]
    doing = "NATIVE refuses" if via is CleanupVia.NATIVE else "slon's own cleanup would, Lethe's does not"
    found += [
        CleanupWarning(code=f"HAZARD_{item.kind}", detail=f"{item.detail} ({doing})") for item in plan.hazards
    ]
    return found


def hold_text(item: OriginPlan, hold: Hold) -> str:
    """Why events of an origin stay, in a sentence."""
    events = f"{item.rows - item.rows_to_remove} events of node {item.origin} stay"
    if hold.why == "NEVER_CONFIRMED" and hold.receiver is None:
        return f"nobody has ever confirmed any event of node {item.origin}, so {events}"
    if hold.why == "NEVER_CONFIRMED":
        return (
            f"node {hold.receiver} has never confirmed any event of node {item.origin}, so {events}:"
            " bring it up, or drop it from the cluster"
        )
    if hold.why == "NO_SYNC":
        return f"no SYNC of node {item.origin} is confirmed by everybody, so {events}"
    if hold.why == "YOUNG_CONFIRMATION" and (hold.seqno is None or hold.seqno < item.first_seqno):
        return (
            f"node {hold.receiver} has confirmed none of the events of node {item.origin} here long enough"
            f" ago: {events}"
        )
    far = f"node {hold.receiver} has confirmed the events of node {item.origin} up to {hold.seqno}"
    if hold.why == "YOUNG_CONFIRMATION":
        return f"{far} long enough ago, later ones too lately: {events}"
    return f"{far} only: {events}"


def texts(warnings: Sequence[CleanupWarning]) -> list[dict[str, str]]:
    """Warnings as a job's result has them."""
    return [{"code": item.code, "detail": item.detail} for item in warnings]
