"""The smaller purges of SymmetricDS as kinds: each is its rules (spark.purge.upkeep_rules)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from app.purge.kinds.kind import NOT_OUTGOING, STRICT, Kind, Look, MakeUnit, Purge, Start, UnitHead
from app.purge.models import PurgeKind, PurgeParams, StrandedMode
from app.purge.results import KeptStranded, MarkedStranded
from app.settings import Settings
from app.sweeps.windows import LoopState
from spark.formats.symmetricds import DATA, PURGED_TABLES, KindName
from spark.purge.cutoff import CutoffValue
from spark.purge.forecast import Reach
from spark.purge.planned import PurgePlan
from spark.purge.upkeep_rules import MARK_STEP, RULES
from spark.rows.walk import texts
from spark.targets.walk import Piece
from spark.upkeep.parts import Part, parts_of
from spark.upkeep.plan import plan_upkeep
from spark.upkeep.recapture.judging import remaining
from spark.upkeep.unit import ROWS_MAX, UpkeepUnit, run_upkeep, unit_id
from spark.upkeep.walk import UpkeepWalk

RECAPTURED_ROWS_MAX = 50
"""Rows of sym_data that one unit captures again: it holds the locks of as many rows of users meanwhile."""


def _recaptures(params: PurgeParams) -> bool:
    return params.stranded is StrandedMode.RECAPTURE


def _marks(params: PurgeParams) -> bool:
    return params.stranded is StrandedMode.MARK


def _parts(name: KindName, look: Look) -> tuple[Part, ...]:
    return parts_of(
        look.conn,
        name,
        look.inspection.layout,
        look.local,
        marks=_marks(look.params),
        recaptures=_recaptures(look.params),
    )


def _plan(name: KindName, look: Look, now: CutoffValue) -> PurgePlan:
    return plan_upkeep(
        look.conn,
        name,
        look.inspection.layout,
        look.local,
        look.should_stop,
        marks=_marks(look.params),
        recaptures=_recaptures(look.params),
        now=now,
        keys=look.keys,
    )


def _start(_purge: Purge) -> dict[str, Any]:
    return {}


def _walk(name: KindName, look: Look, _start: Start) -> UpkeepWalk:
    return UpkeepWalk(_parts(name, look))


def _units(name: KindName, purge: Purge, head: UnitHead, _start: Start) -> MakeUnit:
    parts = {part.step: part for part in _parts(name, purge)}
    recaptures, zone = _recaptures(purge.params), purge.store.time_zone
    return partial(_unit, head, parts, purge.local, recaptures=recaptures, time_zone=zone)


def _unit(
    head: UnitHead,
    parts: Mapping[str, Part],
    cutoff: CutoffValue,
    step: str,
    piece: Piece,
    *,
    recaptures: bool,
    time_zone: str,
) -> UpkeepUnit:
    return UpkeepUnit(
        job_id=head.job_id,
        unit_id=unit_id(step, piece.lo, piece.hi),
        part=parts[step],
        after=texts(piece.lo),
        upto=texts(piece.hi),
        cutoff=cutoff,
        token=head.token,
        resource=head.resource,
        has_ledger=head.has_ledger,
        archive_dir=head.archive_dir,
        recapture=recaptures and step == DATA,
        time_zone=time_zone,
    )


def _most_rows(name: KindName, params: PurgeParams, settings: Settings) -> dict[str, int]:
    names_keys = params.plan_id is not None or str(params.target["url"]).startswith(("mysql", "mariadb"))
    cap = min(settings.purge_unit_rows, ROWS_MAX) if names_keys else settings.purge_unit_rows
    asked = params.batches_in_tx
    most = {rule.step: cap if asked is None else min(asked, cap) for rule in RULES[name]}
    if _recaptures(params):
        most[DATA] = min(most[DATA], RECAPTURED_ROWS_MAX)
    return most


def _reach(name: KindName, purge: Purge, _start: Start) -> Mapping[str, Reach]:
    """As the target's statistics say."""
    rows = {part.step: purge.inspection.sizes.get(part.at.table, (0, 0))[0] for part in _parts(name, purge)}
    return {step: (count or 0, count or 0) for step, count in rows.items()}


def _finish(
    name: KindName, purge: Purge, _state: LoopState, rows: Mapping[str, int], _start: Start
) -> dict[str, Any]:
    if name == "CHANNELS":
        return {"stranded": {"marked": rows.get(MARK_STEP, 0), "nodes": []}}
    if not _recaptures(purge.params):
        return {}
    stranded = MarkedStranded(marked=0, nodes=[], recaptured=rows.get(DATA, 0), kept=_kept(name, purge))
    return {"stranded": stranded.model_dump(mode="json")}


def _kept(name: KindName, purge: Purge) -> list[KeptStranded]:
    """The rows that are stranded still, by reason.

    Raises: JobSignal: it was stopped meanwhile.
    """
    part = next((part for part in _parts(name, purge) if part.step == DATA), None)
    left = () if part is None else remaining(purge.conn, part, purge.should_stop)
    purge.context.check()
    return [KeptStranded(code=each.code, count=each.count, sample=list(each.sample)) for each in left]


def _kind(
    name: KindName, *, resource: str, words: frozenset[StrandedMode] = frozenset(), must_say: bool = False
) -> Kind:
    return Kind(
        kind=PurgeKind(name),
        name=name,
        resource=resource,
        tables={table: table for table in PURGED_TABLES[name]},
        refused=(STRICT,) if words else NOT_OUTGOING,
        run_unit=run_upkeep,
        plan=partial(_plan, name),
        start=_start,
        walk=partial(_walk, name),
        units=partial(_units, name),
        most_rows=partial(_most_rows, name),
        finish=partial(_finish, name),
        reach=partial(_reach, name),
        words=words,
        must_say=must_say,
        marking=MARK_STEP if StrandedMode.MARK in words else None,
    )


UPKEEP = (
    _kind("EXTRACT_REQUEST", resource="extract_request"),
    _kind("REGISTRATION_REQUEST", resource="registration_request"),
    _kind("INCOMING_ERROR", resource="incoming_error"),
    _kind("STATISTICS", resource="statistics"),
    _kind("TRIGGER_HIST", resource="trigger_hist"),
    # These two write what OUTGOING writes: only one of the three runs at a time.
    _kind(
        "STRANDED",
        resource="outgoing",
        words=frozenset({StrandedMode.REMOVE, StrandedMode.RECAPTURE}),
        must_say=True,
    ),
    _kind("CHANNELS", resource="outgoing", words=frozenset({StrandedMode.MARK, StrandedMode.SKIP})),
)
