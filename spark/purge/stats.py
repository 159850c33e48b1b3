"""What a store still holds: the oldest row left of each purged table. A few index look-ups, no scan."""

from dataclasses import dataclass

from spark.formats.symmetricds import DATA, DATA_EVENT, OUTGOING_BATCH
from spark.purge.catalog import table_sizes
from spark.purge.cutoff import CutoffValue
from spark.targets.connection import Connection

_KEY_OF = {DATA: "data_id", DATA_EVENT: "batch_id", OUTGOING_BATCH: "batch_id"}


@dataclass(frozen=True, slots=True)
class TableStats:
    """One table.

    Attributes:
        min_id, max_id: data ids of `sym_data`, batch ids of the others.
        oldest_row_left: as the column keeps it (see `cutoff.instant_of`): the time of the lowest id that has
            one. Ids follow time, and no index does.
    """

    table: str
    min_id: int | None
    max_id: int | None
    oldest_row_left: CutoffValue | None
    rows_estimate: int | None


def purge_stats(conn: Connection) -> tuple[TableStats, ...]:
    """The purged tables in the order of their deletes."""
    sizes = table_sizes(conn)
    found = []
    for table, key in _KEY_OF.items():
        plain = f"{conn.target.table_prefix}{table}"
        name = conn.dialect.qualify(conn.target.schema, plain)
        [(lowest, highest)] = conn.execute(
            f"select (select min({key}) from {name}), (select max({key}) from {name})"
        )
        oldest = conn.execute(
            f"select create_time from {name} where create_time is not null order by {key} limit 1"
        )
        found.append(TableStats(plain, lowest, highest, oldest[0][0] if oldest else None, sizes[plain][0]))
    return tuple(found)
