"""The purge INCOMING as a kind: the nodes and their ranges are fixed before the first unit."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from app.purge.kinds.kind import NOT_OUTGOING, Kind, Look, MakeUnit, Purge, Start, UnitHead
from app.purge.models import PurgeKind, PurgeParams
from app.settings import Settings
from app.sweeps.windows import LoopState
from spark.formats.symmetricds import INCOMING_BATCH
from spark.purge.cutoff import CutoffValue
from spark.purge.forecast import Reach
from spark.purge.incoming import (
    STEP,
    IncomingUnit,
    IncomingWalk,
    NodeRange,
    node_ranges,
    plan_incoming,
    run_incoming,
    unit_id,
)
from spark.purge.planned import PurgePlan
from spark.targets.walk import Piece


def _plan(look: Look, now: CutoffValue) -> PurgePlan:
    return plan_incoming(look.conn, look.local, look.should_stop, now=now, keys=look.keys)


def _start(purge: Purge) -> dict[str, Any]:
    ranges = node_ranges(purge.conn, purge.local)
    return {
        "nodes": [[item.node_id, item.lo, item.hi, item.rows] for item in ranges],
        "total_rows": sum(item.rows for item in ranges),
    }


def _nodes(start: Start) -> Sequence[NodeRange]:
    return [NodeRange(*item) for item in start["nodes"]]


def _walk(_look: Look, start: Start) -> IncomingWalk:
    return IncomingWalk(_nodes(start))


def _units(_purge: Purge, head: UnitHead, start: Start) -> MakeUnit:
    return partial(_unit, head, _nodes(start))


def _unit(head: UnitHead, nodes: Sequence[NodeRange], _step: str, piece: Piece) -> IncomingUnit:
    (number, lo), (last, hi) = piece.lo, piece.hi
    assert number == last, "a unit is of one node"
    node = nodes[number - 1].node_id
    return IncomingUnit(
        job_id=head.job_id,
        unit_id=unit_id(number, node, lo, hi),
        node_id=node,
        lo=lo,
        hi=hi,
        token=head.token,
        resource=head.resource,
        has_ledger=head.has_ledger,
        archive_dir=head.archive_dir,
    )


def _most_rows(params: PurgeParams, settings: Settings) -> dict[str, int]:
    return {STEP: params.batches_in_tx or settings.purge_unit_rows}


def _reach(_purge: Purge, start: Start) -> Mapping[str, Reach]:
    return {STEP: (start["total_rows"], start["total_rows"])}


def _finish(_purge: Purge, _state: LoopState, _rows: Mapping[str, int], start: Start) -> dict[str, Any]:
    return {"nodes": len(start["nodes"])}


INCOMING = Kind(
    kind=PurgeKind.INCOMING,
    name="INCOMING",
    resource="incoming",
    tables={STEP: INCOMING_BATCH},
    refused=NOT_OUTGOING,
    run_unit=run_incoming,
    plan=_plan,
    start=_start,
    walk=_walk,
    units=_units,
    most_rows=_most_rows,
    finish=_finish,
    reach=_reach,
)
