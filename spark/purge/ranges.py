"""Where a step begins and ends, and the keyset ranges of ids that exist in between.

The document walks its ranges by id arithmetic, through holes of any size; these end after a number of rows
that are really there, and after a number of events, batches or locks besides, so that no shape of the data
makes a unit long. The outcome does not depend on where a range ends.
Source: symmetricds-purge, Outgoing Purge; facts/symmetricds-purge, section 8.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spark.purge.statements import PurgeSpec, Statements, Step, bound_nodes, table_names
from spark.targets.connection import Connection

# A data range that reaches more events than this many times its rows is cut shorter (fan-out to many nodes).
EVENTS_PER_ROW = 3
RANGES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Range:
    """Ids `lo` to `hi`, both included; about `rows` of the step's table lie in it (of EVENTS a batch
    more).
    """

    lo: int
    hi: int
    rows: int


def step_bounds(conn: Connection, step: Step, spec: PurgeSpec) -> tuple[int, int] | None:
    """The first and last id of a step as the document computes them; None: nothing to do.

    DATA stops below max(data_id). EVENTS and BATCHES share one range, which stops below max(batch_id):
    compute it once, before the first unit of EVENTS, and keep it, for the deletes of BATCHES themselves would
    move it.
    """
    statements = Statements.of(conn, spec)
    names = statements.names
    parameters: dict[str, object] = {}
    if step == "DATA":
        table, column = names.data, "d.data_id"
        condition = f"d.data_id < (select max(data_id) from {names.data})"
    elif step == "STRANDED":
        table, column = names.outgoing_batch, "b.batch_id"
        condition = statements.stranded("b")
        parameters = bound_nodes(spec.stranded_nodes, conn.dialect.name)
    else:
        return eligible_batches(conn, statements, spec)
    alias = column.partition(".")[0]
    return _bounds(conn, f"{table} {alias} where {condition}", column, parameters)


def eligible_batches(conn: Connection, statements: Statements, spec: PurgeSpec) -> tuple[int, int] | None:
    """The document's range of batch ids: delivered, older than the cut-off, below the greatest batch id."""
    batches = statements.names.outgoing_batch
    source = (
        f"{batches} b where {statements.old('b')} and {statements.delivered('b')}"
        f" and b.batch_id < (select max(batch_id) from {batches})"
    )
    parameters: dict[str, object] = dict(spec.bound)
    if statements.as_if_marked and statements.only_nodes:
        parameters |= bound_nodes(spec.stranded_nodes, conn.dialect.name)
    return _bounds(conn, source, "b.batch_id", parameters)


def _bounds(
    conn: Connection, source: str, column: str, parameters: dict[str, object]
) -> tuple[int, int] | None:
    # Two subqueries: SQLite walks an index from its end only for a single MIN or MAX.
    [(lo, hi)] = conn.execute(
        f"select (select min({column}) from {source}), (select max({column}) from {source})", parameters
    )
    return None if lo is None or hi is None else (int(lo), int(hi))


def next_ranges(
    conn: Connection,
    step: Step,
    spec: PurgeSpec,
    *,
    after: int,
    upto: int,
    rows: int,
    count: int,
    max_batches: int | None = None,
) -> list[Range]:
    """The next window of ranges: ids above `after`, at most `upto`; an empty list ends the step.

    Args:
        after: the `hi` of the last range, or one less than the step's first id.
        rows: rows of the step's table in one range; a range is longer only where one batch id holds more
            events.
        count: how many ranges at most; the caller asks again, so memory does not depend on the database.
        max_batches: for EVENTS, batches in one range (job.purge.max.num.data.event.batches.to.delete.in.tx);
            `rows` where it is None, which bounds the locks of a unit.
    """
    assert rows >= 1, "a range has a row"
    assert 1 <= count <= RANGES_MAX, "a window is bounded"
    found: list[Range] = []
    keys = _Keys(conn, step, spec)
    with key_order(conn):
        while len(found) < count and after < upto:
            nearest = keys.next_range(after, upto, rows=rows, max_batches=max_batches or rows)
            if nearest is None:
                break
            found.append(nearest)
            after = nearest.hi
    return found


@contextmanager
def key_order(conn: Connection) -> Iterator[None]:
    """One snapshot in which "the n-th id from here" walks the index, whatever the statistics say.

    Without fresh statistics PostgreSQL sorts all that is left of the table for each boundary (5.4 s instead
    of 0.2 s for a million rows).
    """
    with conn.transaction(read_only=True):
        if conn.dialect.name == "postgresql":
            conn.execute(
                "select set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true),"
                " set_config('enable_seqscan', 'off', true)"
            )
        yield


def id_before(conn: Connection, table: str, column: str, lo: int, hi: int, *, limit: int) -> int | None:
    """The last id with which a range from `lo` has at most `limit` rows of a table; None: `hi` is such an id.

    A single id with more rows than that cannot be divided: then it is `lo`.
    """
    rows = conn.execute(
        f"select {column} from {table} where {column} between :lo and :hi"
        f" order by {column} limit 1 offset :limit",
        {"lo": lo, "hi": hi, "limit": limit},
    )
    return max(lo, int(rows[0][0]) - 1) if rows else None


class _Keys:
    """Reads the ids of one step in their order."""

    def __init__(self, conn: Connection, step: Step, spec: PurgeSpec) -> None:
        self._conn = conn
        self._step = step
        self._nodes: dict[str, object] = {}
        names = table_names(conn)
        self._names = names
        self._table, self._column = {
            "STRANDED": (names.outgoing_batch, "batch_id"),
            "DATA": (names.data, "data_id"),
            "EVENTS": (names.data_event, "batch_id"),
            "BATCHES": (names.outgoing_batch, "batch_id"),
        }[step]
        self._condition = ""
        if step == "STRANDED":
            self._condition = f" and {Statements.of(conn, spec).stranded('k')}"
            self._nodes = bound_nodes(spec.stranded_nodes, conn.dialect.name)

    def next_range(self, after: int, upto: int, *, rows: int, max_batches: int) -> Range | None:
        """The range that begins at the first id above `after`."""
        lo = self._nth(after + 1, upto, 0)
        if lo is None:
            return None
        last = self._nth(lo, upto, rows - 1)
        hi = upto if last is None else last
        if self._step == "DATA":
            events = rows * EVENTS_PER_ROW
            shorter = id_before(self._conn, f"{self._names.data_event} k", "k.data_id", lo, hi, limit=events)
        elif self._step == "EVENTS":
            batches = f"{self._names.outgoing_batch} k"
            shorter = id_before(self._conn, batches, "k.batch_id", lo, hi, limit=max_batches)
        else:
            shorter = None
        if shorter is not None:
            hi = shorter
        full = last is not None and shorter is None
        return Range(lo, hi, rows if full else self._count(lo, hi))

    def _nth(self, lo: int, hi: int, skipped: int) -> int | None:
        rows = self._conn.execute(
            f"select k.{self._column} from {self._table} k where k.{self._column} between :lo and :hi"
            f"{self._condition} order by k.{self._column} limit 1 offset :skipped",
            {"lo": lo, "hi": hi, "skipped": skipped, **self._nodes},
        )
        return int(rows[0][0]) if rows else None

    def _count(self, lo: int, hi: int) -> int:
        [(count,)] = self._conn.execute(
            f"select count(*) from {self._table} k"
            f" where k.{self._column} between :lo and :hi{self._condition}",
            {"lo": lo, "hi": hi, **self._nodes},
        )
        return int(count)
