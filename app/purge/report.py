"""From the lower floor's values to what clients see, and back."""

from datetime import datetime, timedelta
from typing import Any

from app.purge.cutoff import Cutoff
from app.purge.models import (
    PlannedLimits,
    PlannedStranded,
    PlannedTable,
    PlanWarningRead,
    PurgeKind,
    PurgeParams,
    PurgePlanRead,
    StrandedMode,
    StrandedNodeRead,
)
from app.stores.models import Reach, exceeded
from app.sweeps.limits import limits_as_submitted
from spark.purge.cutoff import CutoffValue
from spark.purge.planned import PurgePlan
from spark.purge.reading.inspect import Inspection
from spark.purge.resent import ResentReport

RESENT_SHOWN_MAX = 1_000
OWN_PURGE = "OWN_PURGE_RUNNING"


def local_text(value: CutoffValue) -> str:
    """A cut-off as the target's columns hold it."""
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)


def reach_of(plan: PurgePlan) -> Reach:
    """What a plan would remove."""
    return Reach(rows=plan.rows_to_remove, part=plan.rows_to_remove, whole=plan.rows)


def _warnings(plan: PurgePlan, inspection: Inspection) -> list[PlanWarningRead]:
    """Everything awkward in the data, and signs that SymmetricDS purges by itself."""
    warnings = [
        PlanWarningRead(
            code=item.code, table=item.table, count=item.count, sample=list(item.sample), detail=item.detail
        )
        for item in plan.warnings
    ]
    warnings += [
        PlanWarningRead(code=OWN_PURGE, table="", count=1, sample=[], detail=sign)
        for sign in inspection.own_purge_running
    ]
    return warnings


def plan_read(
    plan: PurgePlan,
    *,
    plan_id: str,
    store: str,
    params: PurgeParams,
    inspection: Inspection,
    cutoff: Cutoff,
    local: CutoffValue,
    valid_s: int,
    now: datetime,
) -> PurgePlanRead:
    """Show a plan."""
    return PurgePlanRead(
        plan_id=plan_id,
        store=store,
        kind=params.kind,
        cutoff=cutoff.at,
        cutoff_local=local_text(local),
        retention_minutes=cutoff.retention_minutes,
        retention_source=cutoff.source,
        channel_cutoffs=dict(cutoff.of_channels),
        layout=inspection.layout.version,
        strict=params.strict,
        tables=[
            PlannedTable(
                table=item.table, rows=item.rows, rows_to_remove=item.rows_to_remove, lo=item.lo, hi=item.hi
            )
            for item in plan.tables
        ],
        stranded=_stranded(params, plan),
        nodes=plan.nodes,
        limits=PlannedLimits(
            max_rows=params.max_rows,
            max_fraction=params.max_fraction,
            exceeded=exceeded(limits_as_submitted(params), reach_of(plan)),
        ),
        warnings=_warnings(plan, inspection),
        expires_at=now + timedelta(seconds=valid_s),
    )


def _stranded(params: PurgeParams, plan: PurgePlan) -> PlannedStranded | None:
    if params.kind is PurgeKind.CHANNELS:
        cost = "old batches of channels that are gone stay as they are; MARK would turn them to OK"
        if params.stranded is StrandedMode.MARK:
            cost = f"{plan.marked} batches of channels that are gone become OK: no node will ever get them"
        return PlannedStranded(mode=params.stranded, nodes=[], batches=plan.marked, cost=cost)
    if params.kind is PurgeKind.STRANDED:
        rows = plan.rows_to_remove
        cost = f"{rows} rows that no batch holds; SymmetricDS would capture those of sym_data again"
        if params.stranded is StrandedMode.RECAPTURE:
            cost = (
                f"{rows} rows that no batch holds: those of sym_data go when they were captured again, by an"
                " update of the users' rows that changes nothing; the warnings name those that stay"
            )
        return PlannedStranded(mode=params.stranded, nodes=[], rows=rows, cost=cost if rows else "")
    if params.kind is not PurgeKind.OUTGOING:
        return None
    nodes = [
        StrandedNodeRead(node_id=node.node_id, batches=node.batches, rows=node.rows)
        for node in plan.stranded_nodes
    ]
    batches, rows = sum(node.batches for node in nodes), sum(node.rows for node in nodes)
    cost = f"{batches} batches with {rows} rows for {len(nodes)} nodes that are absent or disabled"
    if params.stranded is StrandedMode.MARK:
        cost = f"{cost} become OK: these nodes will never get them, also when they are enabled again"
    else:
        cost = f"{cost} stay until the nodes have got them; MARK would give them up"
    return PlannedStranded(
        mode=params.stranded, nodes=nodes, batches=batches, rows=rows, cost=cost if nodes else ""
    )


def resent_read(report: ResentReport) -> dict[str, Any]:
    """Show the batches that were resent too late."""
    items = [
        {"batch_id": item.batch_id, "node_id": item.node_id, "rows": item.rows, "cause": item.cause}
        for item in report.items[:RESENT_SHOWN_MAX]
    ]
    return {"count": report.count, "items": items}
