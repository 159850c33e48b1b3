"""The purge of data gaps: those that are no gaps any more and older than their own retention.

Two forms, told apart by the columns. Until 3.8 (`status`): the document's `last_update_time < cutoff and
status != 'GP'`. From 3.9 on (`is_expired`): `is_expired = 1 and create_time < cutoff`. An open gap is never
touched; NULL in a compared column leaves the row, as the literal statement does.
Source: symmetricds-purge, Data Gap Purge; facts/symmetricds-purge, sections 1, 4 and 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark.formats.symmetricds import DATA_GAP, OPEN_GAP
from spark.purge.cutoff import CutoffValue
from spark.purge.findings import Finding, warnings_of
from spark.purge.planned import PurgePlan, TablePlan
from spark.purge.ranges import key_order
from spark.purge.scan import ShouldStop, Source, scan
from spark.purge.transaction import Done, UnitResult, delete_rows, run_in_transaction
from spark.purge.walk import Bounds, Key, Piece
from spark.targets.connection import Connection

STEP = "DATA_GAP"
STEPS = (STEP,)
Form = Literal["last_update_time", "create_time"]
# The key is a pair: a gap may begin where another does. The range of starts lets an index be used.
BETWEEN = (
    "start_id between :lo_start and :hi_start and (start_id > :lo_start or end_id >= :lo_end)"
    " and (start_id < :hi_start or end_id <= :hi_end)"
)


def removable(form: Form) -> str:
    """Condition of a row; :cutoff."""
    if form == "create_time":
        return "is_expired = 1 and create_time < :cutoff"
    return f"last_update_time < :cutoff and status != '{OPEN_GAP}'"


@dataclass(frozen=True, slots=True)
class DataGapUnit:
    """One transaction over the keys `lo` to `hi`; picklable. See `transaction.AnyUnit`."""

    job_id: str
    unit_id: str
    lo: Key
    hi: Key
    form: Form
    cutoff: CutoffValue
    token: int
    resource: str
    has_ledger: bool = True
    archive_dir: str | None = None
    step: str = STEP

    def __post_init__(self) -> None:
        assert len(self.lo) == len(self.hi) == 2, "a gap has a start and an end"
        assert self.lo <= self.hi, "a range has a first and a last key"


def unit_id(lo: Key, hi: Key) -> str:
    """A name of the two keys."""
    return f"data_gap-{lo[0]}.{lo[1]}-{hi[0]}.{hi[1]}"


def run_data_gap(conn: Connection, unit: DataGapUnit) -> UnitResult:
    """Remove the closed gaps of a unit; a gap that is opened again meanwhile is looked at again and stays.

    Raises: as `run_in_transaction`.
    """

    def work() -> Done:
        rows, entry = delete_rows(
            conn,
            unit,
            f"delete from {table_of(conn)} where {BETWEEN} and {removable(unit.form)}",
            {**_between(unit.lo, unit.hi), "cutoff": unit.cutoff},
            table=DATA_GAP,
        )
        return Done(rows, entry, detail={"lo": list(unit.lo), "hi": list(unit.hi)})

    return run_in_transaction(conn, unit, work)


@dataclass(frozen=True, slots=True)
class DataGapWalk:
    """Keyset ranges of the closed gaps."""

    form: Form
    cutoff: CutoffValue

    @property
    def steps(self) -> Sequence[str]:
        """One."""
        return STEPS

    def bounds(self, conn: Connection, _step: str, _known: Mapping[str, Bounds | None]) -> Bounds | None:
        """The first and the last key of a row that would go."""
        first, last = (
            conn.execute(
                f"select start_id, end_id from {table_of(conn)} where {removable(self.form)}"
                f" order by start_id {order}, end_id {order} limit 1",
                {"cutoff": self.cutoff},
            )
            for order in ("asc", "desc")
        )
        return (_key(first[0]), _key(last[0])) if first and last else None

    def pieces(
        self, conn: Connection, _step: str, bounds: Bounds, *, after: Key | None, rows: int, count: int
    ) -> list[Piece]:
        """Ranges of rows that would go."""
        lo, hi = bounds
        if after is not None:
            lo = (after[0], after[1] + 1)
        found: list[Piece] = []
        with key_order(conn):
            while len(found) < count and lo <= hi:
                piece = self._next_piece(conn, lo, hi, rows=rows)
                if piece is None:
                    break
                found.append(piece)
                lo = piece.after()
        return found

    def _next_piece(self, conn: Connection, lo: Key, hi: Key, *, rows: int) -> Piece | None:
        source = f"{table_of(conn)} where {BETWEEN} and {removable(self.form)}"
        query = f"select start_id, end_id from {source} order by start_id, end_id limit 1 offset :skipped"
        bound = {**_between(lo, hi), "cutoff": self.cutoff}
        first = conn.execute(query, {**bound, "skipped": 0})
        if not first:
            return None
        last = conn.execute(query, {**bound, "skipped": rows - 1})
        if last:
            return Piece(_key(first[0]), _key(last[0]), rows)
        [(counted,)] = conn.execute(f"select count(*) from {source}", bound)
        return Piece(_key(first[0]), hi, int(counted))


def plan_data_gap(
    conn: Connection, form: Form, cutoff: CutoffValue, should_stop: ShouldStop, *, now: CutoffValue
) -> PurgePlan:
    """Count what the purge would remove, and look at every row for what is awkward.

    Args:
        now: the target's clock, converted like the cut-off.
    Raises: PlanStopped.
    """
    name = f"{conn.target.table_prefix}{DATA_GAP}"
    found = scan(
        conn,
        Source(
            keys=table_of(conn),
            key="start_id",
            rows=f"{table_of(conn)} g where g.start_id between :lo and :hi",
            row_key="g.start_id",
        ),
        table=name,
        removable=removable(form),
        findings=_findings(form),
        parameters={"cutoff": cutoff, "now": now},
        should_stop=should_stop,
    )
    bounds = DataGapWalk(form, cutoff).bounds(conn, STEP, {})
    lo, hi = (bounds[0][0], bounds[1][0]) if bounds else (None, None)
    table = TablePlan(name, found.rows, found.removable, lo, hi)
    return PurgePlan(tables=(table,), warnings=warnings_of(found.found))


def _findings(form: Form) -> tuple[Finding, ...]:
    """On `sym_data_gap g`; samples are start ids."""
    state, still_open = (
        ("is_expired", "g.is_expired = 0")
        if form == "create_time"
        else ("status", f"g.status = '{OPEN_GAP}'")
    )
    return (
        Finding("GAP_TIME_NULL", f"g.{form} is null", f"{form} is NULL: never removed"),
        Finding("GAP_TIME_IN_FUTURE", f"g.{form} > :now", "later than the target's clock: check clocks"),
        Finding("GAP_STATE_NULL", f"g.{state} is null", f"{state} is NULL: never removed"),
        Finding(
            "GAP_STILL_OPEN",
            f"g.{form} < :cutoff and {still_open}",
            "old, but still a gap: routing waits for its rows, it stays",
        ),
    )


def _between(lo: Key, hi: Key) -> dict[str, Any]:
    return {"lo_start": lo[0], "lo_end": lo[1], "hi_start": hi[0], "hi_end": hi[1]}


def _key(row: Sequence[Any]) -> Key:
    return int(row[0]), int(row[1])


def table_of(conn: Connection) -> str:
    """The quoted name of the table."""
    return conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{DATA_GAP}")
