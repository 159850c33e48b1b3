"""What a store still holds: the oldest row left of each purged table. A few index look-ups, no scan."""

from dataclasses import dataclass

from spark.formats.symmetricds import (
    DATA,
    DATA_EVENT,
    DATA_GAP,
    INCOMING_BATCH,
    OUTGOING_BATCH,
    KindName,
    Layout,
)
from spark.purge.cutoff import CutoffValue
from spark.purge.reading.catalog import table_sizes
from spark.targets.connection import Connection

# Kind, table, the id that its rows are ordered by.
_TABLES: tuple[tuple[KindName, str, str], ...] = (
    ("OUTGOING", DATA, "data_id"),
    ("OUTGOING", DATA_EVENT, "batch_id"),
    ("OUTGOING", OUTGOING_BATCH, "batch_id"),
    ("INCOMING", INCOMING_BATCH, "batch_id"),
    ("DATA_GAP", DATA_GAP, "start_id"),
)


@dataclass(frozen=True, slots=True)
class TableStats:
    """One table.

    Attributes:
        kind: the purge that removes its rows.
        min_id, max_id: data ids of `sym_data`, start ids of `sym_data_gap`, batch ids of the others.
        oldest_row_left: as the column keeps it (see `cutoff.instant_of`): the time of the lowest id that has
            one. Ids follow time, and no index does.
    """

    kind: KindName
    table: str
    min_id: int | None
    max_id: int | None
    oldest_row_left: CutoffValue | None
    rows_estimate: int | None


def purge_stats(conn: Connection, layout: Layout) -> tuple[TableStats, ...]:
    """The purged tables that are there, in the order of their deletes."""
    found = []
    for kind, table, key in _TABLES:
        time = layout.gap_time if table == DATA_GAP else "create_time"
        if not {key, time} <= set(layout.columns_of(table)):
            continue
        plain = f"{conn.target.table_prefix}{table}"
        name = conn.dialect.qualify(conn.target.schema, plain)
        [(lowest, highest)] = conn.execute(
            f"select (select min({key}) from {name}), (select max({key}) from {name})"
        )
        oldest = conn.execute(f"select {time} from {name} where {time} is not null order by {key} limit 1")
        rows, _bytes = table_sizes(conn, [table])[plain]
        found.append(TableStats(kind, plain, lowest, highest, oldest[0][0] if oldest else None, rows))
    return tuple(found)
