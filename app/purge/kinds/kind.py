"""What a kind of purge is: a value with everything that differs between the document's purges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from app.jobs.running.context import JobContext
from app.purge.cutoff import Cutoff
from app.purge.models import PurgeKind, PurgeParams, StrandedMode
from app.purge.reviewed import PlannedKeys
from app.settings import Settings
from app.stores.rows import Store
from app.sweeps.windows import LoopState
from spark.formats.symmetricds import KindName
from spark.purge.cutoff import CutoffValue, convert
from spark.purge.forecast import Reach
from spark.purge.keys import KeySink
from spark.purge.planned import PurgePlan
from spark.purge.reading.inspect import Inspection
from spark.targets.connection import Connection, DialectName
from spark.targets.transaction import UnitResult
from spark.targets.walk import Piece, Walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a plan is made of.

    Args:
        should_stop: asked before each chunk of a long read.
        keys: gets the keys of all rows that would go.
        channels: with a retention of their own, and their cut-offs.
    """

    conn: Connection
    store: Store
    params: PurgeParams
    inspection: Inspection
    local: CutoffValue
    should_stop: Callable[[], bool]
    keys: KeySink | None = None
    channels: tuple[tuple[str, CutoffValue], ...] = ()

    def with_keys(self, keys: KeySink) -> Self:
        """The same, for a plan that hands over its keys."""
        return replace(self, keys=keys)

    @property
    def now(self) -> CutoffValue:
        """The target's clock, converted like the cut-off."""
        inspection = self.inspection
        return convert(inspection.now, time_zone=self.store.time_zone, encoding=inspection.time_encoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge(Look):
    """What one attempt carries from step to step; `reviewed` are the rows of the plan that it executes."""

    context: JobContext
    cutoff: Cutoff
    reviewed: PlannedKeys | None = None


@dataclass(frozen=True, slots=True)
class UnitHead:
    """What all units of one attempt share."""

    job_id: str
    token: int
    resource: str
    has_ledger: bool
    archive: Path | None

    @property
    def archive_dir(self) -> str | None:
        """As the units name it."""
        return None if self.archive is None else str(self.archive)


# Fields of a request that only the purge OUTGOING understands.
STRANDED, STRICT = "stranded", "strict"
NOT_OUTGOING = (STRANDED, STRICT)
Start = Mapping[str, Any]
MakeUnit = Callable[[str, Piece], Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of purge.

    Args:
        name: as the lower floor calls it.
        resource: the tables that it writes: the end of the name of claim and fence.
        tables: step to the table, without prefix, from which it removes rows.
        refused: fields of a request that make no sense for it.
        run_unit: one unit in one transaction; picklable.
        plan: exact counts; raises PlanStopped.
        start: what is so before the first unit, as JSON; computed once and kept.
        walk: the way through the tables, from the start on.
        units: makes the units of an attempt.
        most_rows: step to the most rows of a unit.
        first_rows: step to the rows of its first units, which tell how long they take; else the usual.
        finish: what the result says beside the counts.
        reach: step to the rows that it will look at, and those of them that are old enough; for the ETA.
        costs: by dialect, step to what a row that goes costs there, beside those of other steps; else 1.
        words: what a request may say of what is stranded; `must_say`: it has to.
        marking: the step that turns batches to OK; None: the kind has none.
    """

    kind: PurgeKind
    name: KindName
    resource: str
    tables: Mapping[str, str]
    refused: Sequence[str]
    run_unit: Callable[[Connection, Any], UnitResult]
    plan: Callable[[Look, CutoffValue], PurgePlan]
    start: Callable[[Purge], dict[str, Any]]
    walk: Callable[[Look, Start], Walk]
    units: Callable[[Purge, UnitHead, Start], MakeUnit]
    most_rows: Callable[[PurgeParams, Settings], dict[str, int]]
    finish: Callable[[Purge, LoopState, Mapping[str, int], Start], dict[str, Any]]
    reach: Callable[[Purge, Start], Mapping[str, Reach]]
    first_rows: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[DialectName, Mapping[str, float]] = field(default_factory=dict)
    words: frozenset[StrandedMode] = frozenset()
    must_say: bool = False
    marking: str | None = None

    def removed(self, rows: Mapping[str, int]) -> dict[str, int]:
        """Rows removed by table without prefix, from rows by step."""
        return {table: rows.get(step, 0) for step, table in self.tables.items()}
