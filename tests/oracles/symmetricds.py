"""The oracle of the outgoing purge: the rows that are left, by sets; and the document's own statements.

Independent of spark.purge on purpose: written from seeds/symmetricds-purge and section 4 of
facts/symmetricds-purge.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Literal

from tests.oracles.symmetricds_database import (
    Place,
    Row,
    Rows,
    Session,
    build,
    create,
    empty,
    load,
    session,
    snapshot,
)
from tests.oracles.symmetricds_random import CUTOFF, random_database
from tests.oracles.symmetricds_schema import VERSIONS, Version, reference_database, tables
from tests.oracles.symmetricds_text import Collation, exact

__all__ = [
    "CUTOFF",
    "VERSIONS",
    "Place",
    "Row",
    "Rows",
    "Session",
    "Stranded",
    "Version",
    "build",
    "chunks",
    "create",
    "empty",
    "expected_after_purge",
    "literal_purge",
    "load",
    "random_database",
    "reference_database",
    "removed_keys",
    "session",
    "snapshot",
    "statement_in_place",
    "stranded_batches",
    "tables",
]

Stranded = Literal["MARK", "SKIP"]
DELIVERED = frozenset({"OK", "IG"})
PURGED = ("data", "data_event", "outgoing_batch")

STRANDED_SQL = (
    "update sym_outgoing_batch set status='OK' where node_id not in "
    "(select node_id from sym_node where sync_enabled=1) and status != 'OK'"
)
DATA_RANGE_SQL = (
    "select min(data_id), max(data_id) from sym_data where data_id < (select max(data_id) from sym_data)"
)
DATA_SQL = (
    "delete from sym_data where data_id between :MIN and :MAX and create_time < :CUTOFF_TIME and data_id in "
    "(select e.data_id from sym_data_event e where e.data_id between :MIN and :MAX) and data_id not in "
    "(select e.data_id from sym_data_event e where e.data_id between :MIN and :MAX and (e.data_id is null or "
    "e.batch_id in (select batch_id from sym_outgoing_batch where status not in ('OK','IG'))))"
)
BATCH_RANGE_SQL = (
    "select min(batch_id), max(batch_id) from sym_outgoing_batch where create_time < :CUTOFF_TIME and "
    "status in ('OK','IG') and batch_id < (select max(batch_id) from sym_outgoing_batch)"
)
EVENT_SQL = (
    "delete from sym_data_event where batch_id not in (select batch_id from sym_outgoing_batch where "
    "batch_id between :MIN and :MAX and status not in ('OK','IG')) and batch_id between :MIN and :MAX"
)
BATCH_SQL = (
    "delete from sym_outgoing_batch where status in ('OK','IG') and batch_id between :MIN and :MAX and "
    "batch_id not in (select batch_id from sym_data_event where batch_id between :MIN and :MAX)"
)


def expected_after_purge(
    rows: Rows,
    cutoff: Any,
    *,
    strict: bool = False,
    stranded: Stranded = "MARK",
    stranded_nodes: Collection[str] | None = None,
    collation: Collation = exact,
) -> Rows:
    """Every row that the purge must leave, as it must leave it; `rows` is not changed.

    Args:
        rows: all tables, a snapshot or generated rows.
        cutoff: of the same type as the rows' times.
        strict: a NULL status protects data and events.
        stranded: whether stranded batches are marked OK first.
        stranded_nodes: mark only batches of these nodes; None marks those of every node not enabled.
        collation: when the database takes two texts for the same, Place.collation.
    Source: symmetricds-purge, Outgoing Purge; facts/symmetricds-purge, section 4.
    """
    marked = stranded_batches(rows, stranded_nodes, collation=collation) if stranded == "MARK" else set()
    batches = [
        {**row, "status": "OK"} if _batch_key(row) in marked else row for row in rows["outgoing_batch"]
    ]
    protected = {
        row["batch_id"]
        for row in batches
        if (strict if row["status"] is None else not _is_delivered(row, collation))
    }
    events = rows["data_event"]
    left_events, left_batches = events, batches
    batch_range = _batch_range(batches, cutoff, collation)
    if batch_range is not None:
        low, high = batch_range
        left_events = [e for e in events if not low <= e["batch_id"] <= high or e["batch_id"] in protected]
        used = {event["batch_id"] for event in left_events}
        left_batches = [
            row
            for row in batches
            if not (_is_delivered(row, collation) and low <= row["batch_id"] <= high)
            or row["batch_id"] in used
        ]
    left_data = _left_data(rows["data"], events, protected, cutoff)
    return {**rows, "data": left_data, "data_event": left_events, "outgoing_batch": left_batches}


def stranded_batches(
    rows: Rows, nodes: Collection[str] | None = None, *, collation: Collation = exact
) -> set[tuple[int, str]]:
    """Keys of the batches that the stranded step turns to OK: not OK, and their node is not enabled."""
    enabled = {collation(row["node_id"]) for row in rows["node"] if row["sync_enabled"] == 1}
    return {
        _batch_key(row)
        for row in rows["outgoing_batch"]
        if collation(row["node_id"]) not in enabled
        and row["status"] is not None
        and collation(row["status"]) != "OK"
        and (nodes is None or collation(row["node_id"]) in set(map(collation, nodes)))
    }


def _batch_key(row: Row) -> tuple[int, str]:
    return row["batch_id"], row["node_id"]


def _is_delivered(row: Row, collation: Collation) -> bool:
    return row["status"] is not None and collation(row["status"]) in DELIVERED


def _left_data(data: list[Row], events: list[Row], protected: set[int], cutoff: Any) -> list[Row]:
    highest = max((row["data_id"] for row in data), default=None)
    routed = {event["data_id"] for event in events}
    undelivered = {event["data_id"] for event in events if event["batch_id"] in protected}
    return [
        row
        for row in data
        if row["data_id"] == highest
        or row["create_time"] is None
        or not row["create_time"] < cutoff
        or row["data_id"] not in routed
        or row["data_id"] in undelivered
    ]


def _batch_range(batches: list[Row], cutoff: Any, collation: Collation) -> tuple[int, int] | None:
    highest = max((row["batch_id"] for row in batches), default=None)
    eligible = [
        row["batch_id"]
        for row in batches
        if _is_delivered(row, collation)
        and row["create_time"] is not None
        and row["create_time"] < cutoff
        and row["batch_id"] != highest
    ]
    return (min(eligible), max(eligible)) if eligible else None


def removed_keys(place: Place, before: Rows, after: Rows) -> dict[str, list[tuple[Any, ...]]]:
    """Primary keys, in order, of the rows of the three purged tables that are in `before` only."""
    found = {}
    for name in PURGED:
        key = tables(place.version)[name].primary_key
        if name == "outgoing_batch":
            key = ("batch_id", "node_id")
        left = {tuple(row[column] for column in key) for row in after[name]}
        keys = [tuple(row[column] for column in key) for row in before[name]]
        found[name] = sorted(row for row in keys if row not in left)
    return found


def literal_purge(
    place: Place,
    cutoff: Any,
    *,
    data_limit: int = 5000,
    events_limit: int = 5,
    batches_limit: int = 5000,
    stranded: Stranded = "MARK",
    strict: bool = False,
) -> dict[str, int]:
    """Run the document's statements as they are written, each chunk a transaction, and count the rows.

    A chunk spans MIN to MIN + limit, both included (facts, section 3).

    Args:
        place: the database; its prefix and schema replace `sym_`.
        cutoff: naive time, encoded as the place keeps times.
        data_limit: job.purge.max.num.data.to.delete.in.tx.
        events_limit: job.purge.max.num.data.events.to.delete.in.tx (batches).
        batches_limit: job.purge.max.num.batches.to.delete.in.tx.
        stranded: SKIP leaves the first statement out.
        strict: not the document's: in the deletes of data and events a NULL status counts as not delivered.
    Returns: rows touched by step: stranded, data, data_event, outgoing_batch.
    """
    bound = {"CUTOFF_TIME": place.encode(cutoff)}
    counts = {"stranded": 0, "data": 0, "data_event": 0, "outgoing_batch": 0}
    with session(place) as target:
        if stranded == "MARK":
            counts["stranded"] = target.count(statement_in_place(STRANDED_SQL, place))
        ((low, high),) = target.run(statement_in_place(DATA_RANGE_SQL, place))
        for chunk in chunks(low, high, data_limit):
            counts["data"] += target.count(
                statement_in_place(DATA_SQL, place, strict=strict), {**chunk, **bound}
            )
        ((low, high),) = target.run(statement_in_place(BATCH_RANGE_SQL, place), bound)
        for chunk in chunks(low, high, events_limit):
            counts["data_event"] += target.count(statement_in_place(EVENT_SQL, place, strict=strict), chunk)
        for chunk in chunks(low, high, batches_limit):
            counts["outgoing_batch"] += target.count(statement_in_place(BATCH_SQL, place), chunk)
    return counts


def statement_in_place(sql: str, place: Place, *, strict: bool = False) -> str:
    """A statement of the document with the table names of a place; for `strict` see literal_purge."""
    if strict:
        sql = sql.replace("status not in ('OK','IG')", "(status is null or status not in ('OK','IG'))")
    return re.sub(r"\bsym_(\w+)", lambda match: place.name(match[1]), sql)


def chunks(low: int | None, high: int | None, limit: int) -> Iterator[dict[str, int]]:
    """The sub-ranges MIN and MAX of a range; each spans limit + 1 ids (facts, section 3)."""
    assert limit >= 0
    if low is None or high is None:
        return
    for start in range(low, high + 1, limit + 1):
        yield {"MIN": start, "MAX": min(start + limit, high)}
