"""The purge DATA_GAP as a kind: closed gaps, by a retention of their own."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from app.purge.kinds.kind import NOT_OUTGOING, Kind, Look, MakeUnit, Purge, Start, UnitHead
from app.purge.models import PurgeKind, PurgeParams
from app.settings import Settings
from app.sweeps.windows import LoopState
from spark.formats.symmetricds import DATA_GAP as TABLE
from spark.purge.cutoff import CutoffValue
from spark.purge.data_gap import (
    STEP,
    DataGapUnit,
    DataGapWalk,
    Form,
    plan_data_gap,
    removable_rows,
    run_data_gap,
    unit_id,
)
from spark.purge.forecast import Reach
from spark.purge.planned import PurgePlan
from spark.targets.walk import Piece


def _form(purge: Look) -> Form:
    form = purge.inspection.layout.gap_time
    assert form is not None, "the inspection refuses gaps of neither form"
    return form


def _plan(look: Look, now: CutoffValue) -> PurgePlan:
    return plan_data_gap(look.conn, _form(look), look.local, look.should_stop, now=now, keys=look.keys)


def _start(purge: Purge) -> dict[str, Any]:
    return {"form": _form(purge)}


def _walk(look: Look, start: Start) -> DataGapWalk:
    return DataGapWalk(start["form"], look.local)


def _units(purge: Purge, head: UnitHead, start: Start) -> MakeUnit:
    return partial(_unit, head, start["form"], purge.local)


def _unit(head: UnitHead, form: Form, cutoff: CutoffValue, _step: str, piece: Piece) -> DataGapUnit:
    return DataGapUnit(
        job_id=head.job_id,
        unit_id=unit_id(piece.lo, piece.hi),
        lo=piece.lo,
        hi=piece.hi,
        form=form,
        cutoff=cutoff,
        token=head.token,
        resource=head.resource,
        has_ledger=head.has_ledger,
        archive_dir=head.archive_dir,
    )


def _most_rows(params: PurgeParams, settings: Settings) -> dict[str, int]:
    return {STEP: params.batches_in_tx or settings.purge_unit_rows}


def _reach(purge: Purge, start: Start) -> Mapping[str, Reach]:
    rows = removable_rows(purge.conn, start["form"], purge.local)
    return {STEP: (rows, rows)}


def _finish(_purge: Purge, _state: LoopState, _rows: Mapping[str, int], start: Start) -> dict[str, Any]:
    return {"compared": start["form"]}


DATA_GAP = Kind(
    kind=PurgeKind.DATA_GAP,
    name="DATA_GAP",
    resource="data_gap",
    tables={STEP: TABLE},
    refused=NOT_OUTGOING,
    run_unit=run_data_gap,
    plan=_plan,
    start=_start,
    walk=_walk,
    units=_units,
    most_rows=_most_rows,
    finish=_finish,
    reach=_reach,
)
