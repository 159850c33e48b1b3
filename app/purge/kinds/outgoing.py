"""The purge OUTGOING as a kind: stranded batches, data, events, batches, and what was resent too late."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from app.jobs.writing import EVENT_WARNING
from app.purge.kinds.kind import Kind, Look, MakeUnit, Purge, Start, UnitHead
from app.purge.models import PurgeKind, PurgeParams, StrandedMode
from app.purge.report import resent_read
from app.settings import Settings
from app.sweeps.windows import LoopState
from spark.formats.symmetricds import DATA, DATA_EVENT, OUTGOING_BATCH
from spark.purge.cutoff import CutoffValue
from spark.purge.forecast import Reach, reach_of_steps
from spark.purge.plan import BASELINE_MAX, OutgoingPlan, plan_outgoing
from spark.purge.ranges import step_bounds
from spark.purge.resent import ResentBatch, ResentReport, list_resent
from spark.purge.statements import STEPS, PurgeSpec
from spark.purge.stranded import stranded_nodes
from spark.purge.unit import UnitSpec, run_unit
from spark.purge.walk import OutgoingWalk
from spark.targets.connection import DialectName
from spark.targets.walk import Bounds, Piece

COSTS: Mapping[DialectName, Mapping[str, float]] = {
    "postgresql": {"STRANDED": 2.0, "EVENTS": 0.3, "BATCHES": 9.0},
    "sqlite": {"STRANDED": 1.0, "EVENTS": 0.65, "BATCHES": 2.0},
    "mysql": {"STRANDED": 1.0, "EVENTS": 0.6, "BATCHES": 2.0},
}
"""What a row that goes costs beside one of DATA, measured on PostgreSQL and SQLite."""
BATCHES_MAX = 5_000
"""A batch is looked up among its just-removed events: dead index entries make more of them slow."""
BATCHES_FIRST = 500
"""Until units have told how long they take: a batch may have had thousands of events."""


def purge_spec(look: Look) -> PurgeSpec:
    """What the lower floor needs to know of a purge."""
    params = look.params
    nodes = params.stranded_nodes
    return PurgeSpec(
        cutoff=look.local,
        strict=params.strict,
        mark_stranded=params.stranded is StrandedMode.MARK,
        stranded_nodes=None if nodes is None else tuple(nodes),
        of_channels=look.channels,
    )


def _plan(look: Look, now: CutoffValue) -> OutgoingPlan:
    spec = purge_spec(look)
    return plan_outgoing(look.conn, spec, look.should_stop, now=now, keys=look.keys)


def _start(purge: Purge) -> dict[str, Any]:
    """What was so before the first unit: stranded nodes, and batches that lacked data already."""
    spec = purge_spec(purge)
    nodes = stranded_nodes(purge.conn, spec) if spec.mark_stranded else ()
    baseline = list_resent(
        purge.conn,
        step_bounds(purge.conn, "DATA", spec),
        step_bounds(purge.conn, "EVENTS", spec),
        BASELINE_MAX,
        should_stop=purge.should_stop,
    )
    return {
        "nodes": [{"node_id": node.node_id, "batches": node.batches} for node in nodes],
        "baseline": [[item.batch_id, item.node_id, item.rows, item.cause] for item in baseline.items],
    }


def _walk(look: Look, _start: Start) -> OutgoingWalk:
    return OutgoingWalk(purge_spec(look), look.params.event_batches_in_tx)


def _units(purge: Purge, head: UnitHead, _start: Start) -> MakeUnit:
    return partial(_unit, purge, head)


def _unit(purge: Purge, head: UnitHead, step: str, piece: Piece) -> UnitSpec:
    lo, hi = piece.lo[0], piece.hi[0]  # of a plan's rows the rest of the key tells rows of a batch apart
    return UnitSpec(
        job_id=head.job_id,
        unit_id="-".join([step.lower(), *(".".join(map(str, key)) for key in (piece.lo, piece.hi))]),
        step=next(known for known in STEPS if known == step),
        lo=lo,
        hi=hi,
        cutoff=purge.local,
        strict=purge.params.strict,
        token=head.token,
        resource=head.resource,
        has_ledger=head.has_ledger,
        archive_dir=head.archive_dir,
        stranded_nodes=purge_spec(purge).stranded_nodes,
        of_channels=purge.channels,
    )


def _most_rows(params: PurgeParams, settings: Settings) -> dict[str, int]:
    cap = settings.purge_unit_rows
    return {
        "STRANDED": params.batches_in_tx or cap,
        "DATA": params.data_rows_in_tx or cap,
        "EVENTS": cap if params.data_rows_in_tx is None else max(params.data_rows_in_tx, 1),
        "BATCHES": params.batches_in_tx or min(cap, BATCHES_MAX),
    }


def _reach(purge: Purge, _start: Start) -> Mapping[str, Reach]:
    return reach_of_steps(purge.conn, purge_spec(purge))


def _finish(purge: Purge, state: LoopState, rows: Mapping[str, int], start: Start) -> dict[str, Any]:
    resent = _resent(purge, state, start["baseline"])
    if resent.count:
        data = {"code": "RESENT_AFTER_PURGE", "count": resent.count}
        purge.context.note(EVENT_WARNING, data)
    return {
        "stranded": {"marked": rows.get("STRANDED", 0), "nodes": start["nodes"]},
        "resent_after_purge": resent_read(resent),
    }


def _resent(purge: Purge, state: LoopState, baseline: Sequence[Sequence[Any]]) -> ResentReport:
    report = list_resent(
        purge.conn,
        _ids(state.bounds.get("DATA")),
        _ids(state.bounds.get("EVENTS")),
        BASELINE_MAX,
        baseline=[ResentBatch(*item) for item in baseline],
        should_stop=purge.should_stop,
    )
    purge.context.check()
    return report


def _ids(bounds: Bounds | None) -> tuple[int, int] | None:
    return None if bounds is None else (bounds[0][0], bounds[1][0])


OUTGOING = Kind(
    kind=PurgeKind.OUTGOING,
    name="OUTGOING",
    resource="outgoing",
    tables={"DATA": DATA, "EVENTS": DATA_EVENT, "BATCHES": OUTGOING_BATCH},
    refused=(),
    run_unit=run_unit,
    plan=_plan,
    start=_start,
    walk=_walk,
    units=_units,
    most_rows=_most_rows,
    finish=_finish,
    reach=_reach,
    first_rows={"BATCHES": BATCHES_FIRST},
    costs=COSTS,
    words=frozenset({StrandedMode.MARK, StrandedMode.SKIP}),
    marking="STRANDED",
)
