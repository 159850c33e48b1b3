"""The purge of data gaps: those that are no gaps any more and older than their own retention.

Two forms, told apart by the columns. Until 3.8 (`status`): the document's `last_update_time < cutoff and
status != 'GP'`. From 3.9 on (`is_expired`): `is_expired = 1 and create_time < cutoff`, and two conditions
more (`GapRule`). An open gap is never touched; NULL in a compared column leaves the row, as the literal
statement does.

From 3.9 on an expired gap is the program's only note that rows in it may never have been routed. Its purge
deletes by ranges of ids without asking for events, goes around expired gaps, and captures again what lies in
one before it deletes there. So a gap stays as long as a row without an event lies in it, and as long as it
is not below the greatest data id up to which the program has purged: above that the next purge by ranges
would take, without a trace, whatever still commits there. Below, it captures again what it finds left.

Where the program has no note of a purge its next one begins with the first row there is. Then a gap goes only
if it lies below what is purged or old enough to be, and no transaction is open that may still commit into it.
Source: symmetricds-purge, Data Gap Purge; facts/symmetricds-purge, sections 1, 4 and 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from spark.formats.symmetricds import (
    CONTEXT,
    DATA,
    DATA_EVENT,
    DATA_GAP,
    OPEN_GAP,
    OUTGOING_BATCH,
    PURGED_DATA_ID,
)
from spark.purge.cutoff import CutoffValue
from spark.purge.findings import Finding, warnings_of
from spark.purge.keys import KeySink, among, bound_keys
from spark.purge.planned import PurgePlan, TablePlan
from spark.purge.ranges import key_order
from spark.purge.reading.catalog import has_table
from spark.purge.scan import ShouldStop, Source, scan
from spark.targets.connection import Connection
from spark.targets.transaction import Done, UnitResult, delete_rows, run_in_transaction
from spark.targets.walk import Bounds, Key, Piece

STEP = "DATA_GAP"
STEPS = (STEP,)
Form = Literal["last_update_time", "create_time"]
# The key is a pair: a gap may begin where another does. The range of starts lets an index be used.
BETWEEN = (
    "start_id between :lo_start and :hi_start and (start_id > :lo_start or end_id >= :lo_end)"
    " and (start_id < :hi_start or end_id <= :hi_end)"
)


@dataclass(frozen=True, slots=True)
class GapRule:
    """Which gaps go. Every condition is on a gap under `alias`, "" or one with its dot.

    Attributes:
        purged: the greatest data id up to which purges have come; None: nobody knows.
        data, data_event: quoted names; None where the table is not there.
        noted: `purged` is the program's own note.
        closed: without a note: true for a gap (after its alias) into which nobody can commit any more.
    """

    form: Form
    purged: int | None = None
    data: str | None = None
    data_event: str | None = None
    noted: bool = True
    closed: str = ""

    @classmethod
    def of(cls, conn: Connection, form: Form, cutoff: CutoffValue) -> "GapRule":
        """As it is now: the program's own purge may go on meanwhile."""
        if form != "create_time":
            return cls(form)
        purged, data, data_event = purged_id(conn), _named(conn, DATA), _named(conn, DATA_EVENT)
        if purged is not None or data is None or data_event is None:
            return cls(form, purged, data, data_event)
        closed = _CLOSED[conn.dialect.name]
        known = None if closed is None else _come_to(conn, data, data_event, cutoff)
        return cls(form, known, data, data_event, noted=False, closed=closed or "")

    def over(self, alias: str = "") -> str:
        """True for a gap that is none any more and old enough; :cutoff."""
        if self.form == "create_time":
            return f"{alias}is_expired = 1 and {alias}create_time < :cutoff"
        return f"{alias}last_update_time < :cutoff and {alias}status != '{OPEN_GAP}'"

    def below(self, alias: str = "") -> str:
        """True for a gap that lies below the purged id; an end below the start says that it has none."""
        if self.form != "create_time":
            return "1 = 1"
        if self.purged is None or self.data is None or self.data_event is None:
            return "1 = 0"
        closed = "" if self.noted else f" and {self.closed.format(alias=alias)}"
        return f"{alias}start_id <= {alias}end_id and {alias}end_id < {self.purged}{closed}"

    def holds_unrouted(self, alias: str = "") -> str:
        """True for a gap in which a row without an event lies."""
        if self.form != "create_time" or self.data is None or self.data_event is None:
            return "1 = 0"
        return (
            f"exists (select 1 from {self.data} d where d.data_id >= {alias}start_id"
            f" and (d.data_id <= {alias}end_id or {alias}end_id < {alias}start_id)"
            f" and not exists (select 1 from {self.data_event} e where e.data_id = d.data_id))"
        )

    def removable(self, alias: str = "") -> str:
        """Condition of a gap that goes; :cutoff."""
        if self.form != "create_time":
            return self.over(alias)
        return f"{self.over(alias)} and {self.below(alias)} and not {self.holds_unrouted(alias)}"


def purged_id(conn: Connection) -> int | None:
    """The greatest data id up to which the program has purged, by its own note; None: there is none."""
    context = _named(conn, CONTEXT)
    if context is None:
        return None
    rows = conn.execute(f"select context_value from {context} where name = :name", {"name": PURGED_DATA_ID})
    text = str(rows[0][0]).strip() if rows else ""
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None


# The row of a gap is younger than the ids in it: who holds one of these and has not committed is older than
# the row, and in the snapshot. SQLite has one writer, who is ourselves. MySQL shows transactions to few.
_CLOSED: dict[str, str | None] = {
    "sqlite": "1 = 1",
    "postgresql": (
        "age({alias}xmin) > age(cast(cast(txid_snapshot_xmin(txid_current_snapshot()) % 4294967296 as text)"
        " as xid))"
    ),
    "mysql": None,
}


def _come_to(conn: Connection, data: str, data_event: str, cutoff: CutoffValue) -> int | None:
    """How far a purge up to the cut-off comes: to the rows of the newest old batch, as the program reckons,
    and what lies before the first row has gone.
    """
    found = conn.execute(f"select min(data_id) from {data}")
    batches = _named(conn, OUTGOING_BATCH)
    if batches is not None:
        found += conn.execute(
            f"select max(e.data_id) from {data_event} e where e.batch_id ="
            f" (select max(b.batch_id) from {batches} b where b.create_time < :cutoff)",
            {"cutoff": cutoff},
        )
    return max((int(value) for (value,) in found if value is not None), default=None)


def _named(conn: Connection, table: str) -> str | None:
    """The quoted name of a table that is there."""
    noted = f"gap-{table}"
    if noted not in conn.noted:
        name = conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{table}")
        conn.noted[noted] = name if has_table(conn, table) else None
    return conn.noted[noted]


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
    only: tuple[Key, ...] | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        assert len(self.lo) == len(self.hi) == 2, "a gap has a start and an end"
        assert self.lo <= self.hi, "a range has a first and a last key"


def unit_id(lo: Key, hi: Key) -> str:
    """A name of the two keys."""
    return f"data_gap-{lo[0]}.{lo[1]}-{hi[0]}.{hi[1]}"


def run_data_gap(conn: Connection, unit: DataGapUnit) -> UnitResult:
    """Remove the closed gaps of a unit; what has come into one meanwhile is looked at again, and it stays.

    Raises: as `run_in_transaction`.
    """

    def work() -> Done:
        rule = GapRule.of(conn, unit.form, unit.cutoff)
        condition, bound = rule.removable(), {**_between(unit.lo, unit.hi), "cutoff": unit.cutoff}
        if unit.only is not None:
            condition += f" and {among(conn.dialect.name, ('start_id', 'end_id'))}"
            bound |= bound_keys(conn.dialect.name, unit.only)
        if conn.dialect.name == "mysql":
            # A subquery of the delete would wait for rows that somebody captures at this moment.
            chosen = conn.execute(
                f"select start_id, end_id from {table_of(conn)} where {BETWEEN} and {condition}", bound
            )
            condition, bound = f"{rule.over()} and (start_id, end_id) in :chosen", {**bound, "chosen": chosen}
            if not chosen:
                return Done(0, None, detail={"lo": list(unit.lo), "hi": list(unit.hi)})
        delete = f"delete from {table_of(conn)} where {BETWEEN} and {condition}"
        rows, entry = delete_rows(conn, unit, delete, bound, table=DATA_GAP)
        return Done(rows, entry, detail={"lo": list(unit.lo), "hi": list(unit.hi)})

    return run_in_transaction(conn, unit, work, most=unit.most)


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
        condition = GapRule.of(conn, self.form, self.cutoff).removable()
        first, last = (
            conn.execute(
                f"select start_id, end_id from {table_of(conn)} where {condition}"
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
        rule = GapRule.of(conn, self.form, self.cutoff)
        source = f"{table_of(conn)} where {BETWEEN} and {rule.removable()}"
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
    conn: Connection,
    form: Form,
    cutoff: CutoffValue,
    should_stop: ShouldStop,
    *,
    now: CutoffValue,
    keys: KeySink | None = None,
) -> PurgePlan:
    """Count what the purge would remove, and look at every row for what is awkward.

    Args:
        now: the target's clock, converted like the cut-off.
        keys: gets both ends of every gap that would go.
    Raises: PlanStopped.
    """
    name = f"{conn.target.table_prefix}{DATA_GAP}"
    rule = GapRule.of(conn, form, cutoff)
    found = scan(
        conn,
        Source(
            keys=table_of(conn),
            key="start_id",
            rows=f"{table_of(conn)} g where g.start_id between :lo and :hi",
            row_key="g.start_id",
        ),
        table=name,
        removable=rule.removable("g."),
        findings=_findings(rule),
        parameters={"cutoff": cutoff, "now": now},
        should_stop=should_stop,
        keys=f"select g.start_id, g.end_id from {table_of(conn)} g where g.start_id between :lo and :hi"
        f" and {rule.removable('g.')} order by g.start_id, g.end_id",
        take=None if keys is None else partial(keys, STEP),
    )
    bounds = DataGapWalk(form, cutoff).bounds(conn, STEP, {})
    lo, hi = (bounds[0][0], bounds[1][0]) if bounds else (None, None)
    table = TablePlan(name, found.rows, found.removable, lo, hi)
    return PurgePlan(tables=(table,), warnings=warnings_of(found.found))


def _findings(rule: GapRule) -> tuple[Finding, ...]:
    """On `sym_data_gap g`; samples are start ids."""
    form = rule.form
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
        *(_kept(rule) if form == "create_time" else ()),
    )


def _kept(rule: GapRule) -> tuple[Finding, ...]:
    """Expired gaps that the program still needs."""
    known = (
        f"not below data id {rule.purged}, up to which SymmetricDS has purged"
        if rule.noted and rule.purged
        else "SymmetricDS has no note up to which data id it has purged, and somebody may still commit there"
    )
    return (
        Finding(
            "GAP_HOLDS_UNROUTED_ROWS",
            f"{rule.over('g.')} and {rule.holds_unrouted('g.')}",
            "rows that came late and were never routed lie in it: it stays, for by it SymmetricDS knows to"
            " capture them again; its own outgoing purge does so, and a purge STRANDED with RECAPTURE",
        ),
        Finding(
            "GAP_NOT_BELOW_PURGED_ID",
            f"{rule.over('g.')} and not ({rule.below('g.')})",
            f"{known}: it stays, for SymmetricDS's next purge would take unseen what still comes into it",
        ),
    )


def _between(lo: Key, hi: Key) -> dict[str, Any]:
    return {"lo_start": lo[0], "lo_end": lo[1], "hi_start": hi[0], "hi_end": hi[1]}


def _key(row: Sequence[Any]) -> Key:
    return int(row[0]), int(row[1])


def removable_rows(conn: Connection, form: Form, cutoff: CutoffValue) -> int:
    """How many closed gaps would go now.

    Raises: any TargetError.
    """
    condition = GapRule.of(conn, form, cutoff).removable()
    [(rows,)] = conn.execute(f"select count(*) from {table_of(conn)} where {condition}", {"cutoff": cutoff})
    return int(rows)


def table_of(conn: Connection) -> str:
    """The quoted name of the table."""
    return conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{DATA_GAP}")
