"""The oracles of the incoming purge and of the data gap purge; and the document's own statements.

Independent of spark.purge on purpose: written from seeds/symmetricds-purge and facts/symmetricds-purge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.oracles.symmetricds import Place, Row, Rows, chunks, session, statement_in_place
from tests.oracles.symmetricds_schema import Version
from tests.oracles.symmetricds_text import Collation, exact

INCOMING_RANGE_SQL = (
    "select node_id, min(batch_id), max(batch_id) from sym_incoming_batch where create_time < :CUTOFF_TIME "
    "and status = 'OK' group by node_id"
)
INCOMING_SQL = (
    "delete from sym_incoming_batch where batch_id between :MIN and :MAX and node_id = :NODE_ID and "
    "status = 'OK'"
)
# The document's. 3.9 put is_expired in the place of the status and has no last_update_time any more (facts,
# sections 1 and 5); the design says what is removed there.
GAP_SQL: dict[Version, str] = {
    "2.x": "delete from sym_data_gap where last_update_time < :CUTOFF_TIME and status != 'GP'",
    "3.x": "delete from sym_data_gap where create_time < :CUTOFF_TIME and is_expired = 1 "
    "and start_id <= end_id and end_id < (select cast(context_value as decimal(20)) from sym_context "
    "where name = 'purge.last.data.id' and cast(context_value as decimal(20)) > 0) "
    "and not exists (select 1 from sym_data d where d.data_id between start_id and end_id "
    "and d.data_id not in (select e.data_id from sym_data_event e))",
}


def expected_after_incoming_purge(rows: Rows, cutoff: Any, *, collation: Collation = exact) -> Rows:
    """Every row that the incoming purge must leave; `rows` is not changed.

    Args:
        rows: all tables.
        cutoff: of the same type as the rows' times.
        collation: when the database takes two texts for the same, Place.collation.
    Source: symmetricds-purge, Incoming Purge; facts/symmetricds-purge, section 4, point 6.
    """
    accepted = [
        row
        for row in rows["incoming_batch"]
        if row["status"] is not None and collation(row["status"]) == "OK"
    ]
    old: dict[str, list[int]] = {}
    for row in accepted:
        if row["create_time"] is not None and row["create_time"] < cutoff:
            old.setdefault(collation(row["node_id"]), []).append(row["batch_id"])
    bounds = {node: (min(ids), max(ids)) for node, ids in old.items()}

    def is_purged(row: Row) -> bool:
        # No test of the time here: an OK row younger than the cut-off goes with its node's range.
        low, high = bounds.get(collation(row["node_id"]), (1, 0))
        return low <= row["batch_id"] <= high

    purged = {incoming_key(row) for row in accepted if is_purged(row)}
    left = [row for row in rows["incoming_batch"] if incoming_key(row) not in purged]
    return {**rows, "incoming_batch": left}


def incoming_key(row: Row) -> tuple[int, str]:
    """The primary key of sym_incoming_batch."""
    return row["batch_id"], row["node_id"]


def expected_after_gap_purge(
    rows: Rows, cutoff: Any, *, version: Version, collation: Collation = exact
) -> Rows:
    """Every row that the data gap purge must leave; `rows` is not changed.

    Args:
        rows: all tables.
        cutoff: of the same type as the rows' times; of the gaps' own retention.
        version: 2.x judges status and last_update_time, 3.x is_expired and create_time.
        collation: as above.
    Source: symmetricds-purge, Data Gap Purge; facts/symmetricds-purge, section 4, point 7, and section 5.
    """

    def is_over(row: Row) -> bool:
        if version == "3.x":
            return row["is_expired"] == 1
        return row["status"] is not None and collation(row["status"]) != "GP"

    routed = {event["data_id"] for event in rows.get("data_event", ())}
    unrouted = [row["data_id"] for row in rows.get("data", ()) if row["data_id"] not in routed]
    purged = purged_id(rows)

    def is_needed(row: Row) -> bool:
        # Issue: what holds unrouted rows, or is not below the id up to which the program has purged.
        start, end = row["start_id"], row["end_id"]
        if purged is None or end < start or end >= purged:
            return True
        return any(start <= data_id <= end for data_id in unrouted)

    time = "last_update_time" if version == "2.x" else "create_time"
    left = [
        row
        for row in rows["data_gap"]
        if row[time] is None
        or not row[time] < cutoff
        or not is_over(row)
        or (version == "3.x" and is_needed(row))
    ]
    return {**rows, "data_gap": left}


def purged_id(rows: Rows) -> int | None:
    """What the program has noted of its purge (facts, section 5: "start = last purged id")."""
    noted = [row["context_value"] for row in rows.get("context", ()) if row["name"] == "purge.last.data.id"]
    return int(noted[0]) if noted and int(noted[0]) > 0 else None


def noted_purge(data_id: int) -> list[Row]:
    """The row of sym_context by which the program has purged up to a data id."""
    return [{"name": "purge.last.data.id", "context_value": str(data_id)}]


def literal_incoming_purge(place: Place, cutoff: Any, *, batches_limit: int = 5000) -> int:
    """Run the document's statements as they are written, each chunk a transaction, and count the rows.

    Args:
        place: the database; its prefix and schema replace `sym_`.
        cutoff: naive time, encoded as the place keeps times.
        batches_limit: job.purge.max.num.batches.to.delete.in.tx.
    """
    removed = 0
    with session(place) as target:
        ranges = target.run(
            statement_in_place(INCOMING_RANGE_SQL, place), {"CUTOFF_TIME": place.encode(cutoff)}
        )
        for node_id, low, high in ranges:
            for chunk in chunks(low, high, batches_limit):
                removed += target.count(
                    statement_in_place(INCOMING_SQL, place), {**chunk, "NODE_ID": node_id}
                )
    return removed


def literal_gap_purge(place: Place, cutoff: Any) -> int:
    """Run the document's statement, in one transaction, and count the rows."""
    with session(place) as target:
        statement = statement_in_place(GAP_SQL[place.version], place)
        return target.count(statement, {"CUTOFF_TIME": place.encode(cutoff)})


def expected_after(kind: str, place: Place, rows: Rows, cutoff: Any) -> Rows:
    """What a purge of kind INCOMING or DATA_GAP must leave of a snapshot of a place."""
    made: dict[str, Callable[[], Rows]] = {
        "INCOMING": lambda: expected_after_incoming_purge(
            rows, place.encode(cutoff), collation=place.collation
        ),
        "DATA_GAP": lambda: expected_after_gap_purge(
            rows, place.encode(cutoff), version=place.version, collation=place.collation
        ),
    }
    return made[kind]()
