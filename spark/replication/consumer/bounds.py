"""The bound of purged tombstones as an arriving change is held against it.

A change from below it is harmless where the entry of its key is newer: it would lose anyway. So it is where
its key is extinct: no entry ever shows that. Only a value for another key may bring back what was deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark.formats.arrow import pa
from spark.formats.csn import Csn
from spark.formats.extinction import ExtinctionStatus
from spark.formats.replica import ReplicaTables
from spark.replication.replica.entries import read_standing
from spark.replication.replica.extinction_index import read_index
from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class Buried:
    """The bound, and the entries that stand beside it, inside the transaction that applies."""

    csn: Csn
    conn: Connection
    tables: ReplicaTables

    def is_harmless(self, records: pa.RecordBatch) -> Sequence[bool]:
        """Of each change whether its key is extinct, or has an entry here with a greater CSN.

        Args:
            records: of `record_schema`, all of them changes.
        """
        index = read_index(self.conn, self.tables)
        names = ("database", "key", "csn")
        rows = list(zip(*(records.column(name).to_pylist() for name in names), strict=True))
        keys = sorted({(database, key) for database, key, _ in rows})
        found = {key: csn for key, csn, _ in read_standing(self.conn, self.tables, keys)}
        return [
            found.get((database, key), "") > csn or index.status(database, key) is ExtinctionStatus.EXTINCT
            for database, key, csn in rows
        ]


def buried_of(conn: Connection, tables: ReplicaTables, csn: Csn | None) -> Buried | None:
    """The bound of a replica; None: it has purged nothing."""
    return None if csn is None else Buried(csn, conn, tables)
