"""How many rows each step of the purge OUTGOING will look at, and how many of them are old enough to go.

An estimate for clients that want to know when it ends: COUNTED rows are counted, what lies behind them is
taken to lie as densely, and the age of the rows is looked up at some places. Nothing is removed by it.
"""

from collections.abc import Mapping
from typing import Final

from spark.purge.ranges import eligible_batches, key_order, step_bounds
from spark.purge.statements import STEPS, PurgeSpec, Statements, bound_nodes
from spark.targets.connection import Connection

COUNTED: Final = 300_000
PLACES: Final = 40
"""Where the age of the captured rows is looked up."""

Reach = tuple[int, int]
"""Rows that are looked at, and those of them that are old enough, the first ones."""


def reach_of_steps(conn: Connection, spec: PurgeSpec) -> Mapping[str, Reach]:
    """By step, in their order; a step that has nothing to do is named with zeros.

    Raises: any TargetError.
    """
    statements = Statements.of(conn, spec, as_if_marked=True)
    names = statements.names
    data = step_bounds(conn, "DATA", spec)
    batches = eligible_batches(conn, statements, spec)
    data_rows = _rows(conn, names.data, "data_id", data)
    event_rows = _rows(conn, names.data_event, "batch_id", batches)
    batch_rows = _rows(conn, names.outgoing_batch, "batch_id", batches)
    found = {
        "STRANDED": (0, 0),
        "DATA": (data_rows, round(data_rows * _old_share(conn, names.data, data, spec))),
        "EVENTS": (event_rows, event_rows),
        "BATCHES": (batch_rows, batch_rows),
    }
    if spec.mark_stranded:
        marked = _stranded(conn, spec)
        found["STRANDED"] = (marked, marked)
        return found
    return {step: found[step] for step in STEPS[1:]}


def _stranded(conn: Connection, spec: PurgeSpec) -> int:
    statements = Statements.of(conn, spec)
    source = f"select 1 from {statements.names.outgoing_batch} b where {statements.stranded('b')}"
    [(rows,)] = conn.execute(
        f"select count(*) from ({source} limit {COUNTED}) s",
        bound_nodes(spec.stranded_nodes, conn.dialect.name),
    )
    return int(rows)


def _rows(conn: Connection, table: str, column: str, bounds: tuple[int, int] | None) -> int:
    """Rows between two ids: counted up to COUNTED, the rest by the share of the ids."""
    if bounds is None:
        return 0
    lo, hi = bounds
    between = f"from {table} k where k.{column} between :lo and :hi order by k.{column} limit {COUNTED}"
    with key_order(conn):
        [(rows, first, last)] = conn.execute(
            f"select count(*), min(s.{column}), max(s.{column}) from (select k.{column} {between}) s",
            {"lo": lo, "hi": hi},
        )
    if rows < COUNTED:
        return int(rows)
    return round(int(rows) * (hi - int(first) + 1) / (int(last) - int(first) + 1))


def _old_share(conn: Connection, table: str, bounds: tuple[int, int] | None, spec: PurgeSpec) -> float:
    """The share of the places at which the next row is older than the cut-off."""
    if bounds is None:
        return 0.0
    lo, hi = bounds
    places = sorted({lo + (hi - lo) * place // PLACES for place in range(PLACES)})
    looks = [
        f"coalesce((select case when d.create_time < :cutoff then 1 else 0 end from {table} d"
        f" where d.data_id >= {place} order by d.data_id limit 1), 0)"
        for place in places
    ]
    [(old,)] = conn.execute(f"select {' + '.join(looks)}", {"cutoff": spec.cutoff})
    return int(old) / len(places)
