"""The purge of incoming batches: per node the range of its old accepted ones, then all accepted ones in it.

The list of nodes with their ranges is fixed when the purge begins and numbered; a key is (number of the node,
batch id). A batch that becomes old enough, or a node that appears, while the purge runs is the next one's.
A NULL status is not OK and a NULL node is no node: the literal statements leave both.
Source: symmetricds-purge, Incoming Purge; facts/symmetricds-purge, section 4, point 6.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark.formats.symmetricds import INCOMING_BATCH, KNOWN_STATUSES, OK
from spark.purge.cutoff import CutoffValue
from spark.purge.findings import Finding, Found, warnings_of
from spark.purge.keys import KeySink, among, bound_keys
from spark.purge.planned import PurgePlan, TablePlan
from spark.purge.ranges import key_order
from spark.purge.scan import CHUNK_ROWS, PlanStopped, ShouldStop, Source, scan
from spark.targets.connection import Connection
from spark.targets.transaction import Done, UnitResult, delete_rows, run_in_transaction
from spark.targets.walk import Bounds, Key, Piece

STEP = "INCOMING"
STEPS = (STEP,)
INCOMING_STATUSES = (*KNOWN_STATUSES, "SK")
HASH_CHARS = 12
OF_NODE = f"node_id = :node and batch_id between :lo and :hi and status = '{OK}'"


@dataclass(frozen=True, slots=True)
class NodeRange:
    """A node and the least and greatest id of its accepted batches that are older than the cut-off.

    Attributes:
        rows: accepted batches in the range when it was computed; `young` of them are not older.
    """

    node_id: Any
    lo: int
    hi: int
    rows: int
    young: int = 0


def node_ranges(conn: Connection, cutoff: CutoffValue) -> tuple[NodeRange, ...]:
    """The document's ranges, in the order of the nodes' names; a node's place in it is its number, from 1."""
    table = table_of(conn)
    rows = conn.execute(
        "select r.node_id, r.lo, r.hi, count(*),"
        " coalesce(sum(case when b.create_time < :cutoff then 0 else 1 end), 0)"
        f" from (select node_id, min(batch_id) as lo, max(batch_id) as hi from {table}"
        f" where create_time < :cutoff and status = '{OK}' and node_id is not null group by node_id) r"
        f" join {table} b on b.node_id = r.node_id and b.batch_id between r.lo and r.hi and b.status = '{OK}'"
        " group by r.node_id, r.lo, r.hi order by r.node_id",
        {"cutoff": cutoff},
    )
    return tuple(NodeRange(node, *map(int, numbers)) for node, *numbers in rows)


@dataclass(frozen=True, slots=True)
class IncomingUnit:
    """One transaction over batch ids `lo` to `hi` of one node; picklable. See `transaction.AnyUnit`."""

    job_id: str
    unit_id: str
    node_id: Any
    lo: int
    hi: int
    token: int
    resource: str
    has_ledger: bool = True
    archive_dir: str | None = None
    step: str = STEP
    only: tuple[tuple[int, ...], ...] | None = None
    most: int | None = None


def unit_id(number: int, node_id: Any, lo: int, hi: int) -> str:
    """A name that is safe in file names, whatever the node is called, and differs between nodes."""
    digest = hashlib.sha256(repr(node_id).encode()).hexdigest()[:HASH_CHARS]
    return f"incoming-{number}.{digest}-{lo}-{hi}"


def run_incoming(conn: Connection, unit: IncomingUnit) -> UnitResult:
    """Remove the accepted batches of a unit; PostgreSQL and MariaDB look at the status of a locked row again.

    Raises: as `run_in_transaction`.
    """

    def work() -> Done:
        delete = f"delete from {table_of(conn)} where {OF_NODE}"
        bound = {"node": unit.node_id, "lo": unit.lo, "hi": unit.hi}
        if unit.only is not None:
            delete += f" and {among(conn.dialect.name, ('batch_id',))}"
            bound |= bound_keys(conn.dialect.name, unit.only)
        rows, entry = delete_rows(conn, unit, delete, bound, table=INCOMING_BATCH)
        return Done(rows, entry, detail={"node_id": str(unit.node_id), "lo": unit.lo, "hi": unit.hi})

    return run_in_transaction(conn, unit, work, most=unit.most)


@dataclass(frozen=True, slots=True)
class IncomingWalk:
    """Node after node, each in keyset ranges of its accepted batches."""

    nodes: Sequence[NodeRange]

    @property
    def steps(self) -> Sequence[str]:
        """One."""
        return STEPS

    def bounds(self, _conn: Connection, _step: str, _known: Mapping[str, Bounds | None]) -> Bounds | None:
        """From the first batch of the first node to the last of the last."""
        if not self.nodes:
            return None
        return ((1, self.nodes[0].lo), (len(self.nodes), self.nodes[-1].hi))

    def pieces(
        self, conn: Connection, _step: str, bounds: Bounds, *, after: Key | None, rows: int, count: int
    ) -> list[Piece]:
        """Ranges of accepted batches, none over two nodes."""
        (number, lo), (last, upto) = bounds
        if after is not None:
            number, lo = after[0], after[1] + 1
        found: list[Piece] = []
        with key_order(conn):
            while number <= last and len(found) < count:
                node = self.nodes[number - 1]
                hi = min(node.hi, upto) if number == last else node.hi
                lo = max(lo, node.lo)
                if _is_small(node, lo, hi, rows=rows):
                    piece: Piece | None = Piece((number, lo), (number, hi), node.rows)
                else:
                    piece = _next_piece(conn, node, number, lo, hi, rows=rows)
                if piece is None:
                    number, lo = number + 1, node.lo if number == last else self.nodes[number].lo
                    continue
                found.append(piece)
                lo = piece.hi[1] + 1
        return found


def _is_small(node: NodeRange, lo: int, hi: int, *, rows: int) -> bool:
    """Whether all of a node is surely one piece, even if some more of its batches were accepted since."""
    return (lo, hi) == (node.lo, node.hi) and 2 * node.rows <= rows


def _next_piece(
    conn: Connection, node: NodeRange, number: int, lo: int, hi: int, *, rows: int
) -> Piece | None:
    """The range of the next accepted batches of a node from `lo` on; one look, for each walks past the ids of
    all other nodes.
    """
    if lo > hi:
        return None
    [(last, counted)] = conn.execute(
        "select max(k.batch_id), count(*) from"
        f" (select batch_id from {table_of(conn)} where {OF_NODE} order by batch_id limit :rows) k",
        {"node": node.node_id, "lo": lo, "hi": hi, "rows": rows},
    )
    if not counted:
        return None
    return Piece((number, lo), (number, int(last) if counted == rows else hi), int(counted))


def plan_incoming(
    conn: Connection,
    cutoff: CutoffValue,
    should_stop: ShouldStop,
    *,
    now: CutoffValue,
    keys: KeySink | None = None,
) -> PurgePlan:
    """Count what the purge would remove, and look at every row for what is awkward.

    Args:
        now: the target's clock, converted like the cut-off.
        keys: gets (node, batch id) of every row that would go.
    Raises: PlanStopped.
    """
    nodes = node_ranges(conn, cutoff)
    if keys is not None:
        nodes = _with_keys(conn, nodes, should_stop, keys)
    removable, young = sum(node.rows for node in nodes), sum(node.young for node in nodes)
    name = f"{conn.target.table_prefix}{INCOMING_BATCH}"
    lo = min((node.lo for node in nodes), default=None)
    hi = max((node.hi for node in nodes), default=None)
    found = scan(
        conn,
        Source(
            keys=table_of(conn),
            key="batch_id",
            rows=f"{table_of(conn)} b where b.batch_id between :lo and :hi",
            row_key="b.batch_id",
        ),
        table=name,
        removable="1 = 0",
        findings=_findings(),
        parameters={"cutoff": cutoff, "now": now},
        should_stop=should_stop,
    )
    detail = "not older than the cut-off, but between ids of its node that are: SymmetricDS's SQL removes it"
    table = TablePlan(name, found.rows, removable, lo, hi)
    warnings = warnings_of([Found(name, "BATCH_YOUNGER_IN_RANGE", detail, young), *found.found])
    start = {
        "nodes": [[item.node_id, item.lo, item.hi, item.rows] for item in nodes],
        "total_rows": removable,
    }
    return PurgePlan(tables=(table,), warnings=warnings, nodes=len(nodes), start=start)


def _with_keys(
    conn: Connection, nodes: tuple[NodeRange, ...], should_stop: ShouldStop, keys: KeySink
) -> tuple[NodeRange, ...]:
    """Hand over the keys of all ranges; the ranges with as many rows as there were."""
    found = []
    for node in nodes:
        lo, rows = node.lo, 0
        while lo <= node.hi:
            if should_stop():
                raise PlanStopped
            batches = conn.execute(
                f"select batch_id from {table_of(conn)} where {OF_NODE} order by batch_id limit :rows",
                {"node": node.node_id, "lo": lo, "hi": node.hi, "rows": CHUNK_ROWS},
            )
            if not batches:
                break
            keys(STEP, [(node.node_id, int(batch)) for (batch,) in batches])
            rows += len(batches)
            lo = int(batches[-1][0]) + 1
        if rows:
            found.append(replace(node, rows=rows))
    return tuple(found)


def _findings() -> tuple[Finding, ...]:
    """On `sym_incoming_batch b`; samples are batch ids."""
    known = ", ".join(f"'{status}'" for status in INCOMING_STATUSES)
    old = "b.create_time < :cutoff"
    return (
        Finding(
            "BATCH_TIME_NULL", "b.create_time is null", "create_time is NULL: does not widen a node's range"
        ),
        Finding(
            "BATCH_TIME_IN_FUTURE", "b.create_time > :now", "made after the target's clock: check clocks"
        ),
        Finding("BATCH_STATUS_NULL", "b.status is null", "status is NULL: not accepted, never removed"),
        Finding(
            "BATCH_STATUS_UNKNOWN",
            f"b.status not in ({known})",
            "unknown status: not accepted, never removed",
        ),
        Finding(
            "BATCH_NOT_ACCEPTED",
            f"{old} and b.status != '{OK}'",
            "old, but not OK (IG and SK neither): stays, whatever its age",
        ),
    )


def table_of(conn: Connection) -> str:
    """The quoted name of the table."""
    return conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{INCOMING_BATCH}")
