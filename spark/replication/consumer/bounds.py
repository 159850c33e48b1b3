"""The bound of purged tombstones as an arriving change is held against it.

A change from below it is harmless where the entry of its key is newer: it would lose anyway. So it is where
its key is extinct: no entry ever shows that. Only a value for another key may bring back what was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark.formats.arrow import pa
from spark.formats.csn import Csn
from spark.formats.extinction import ExtinctionStatus
from spark.formats.replica import ReplicaTables
from spark.replication.replica.extinction_index import read_index
from spark.targets.connection import Connection

_AT_ONCE: Final = 100


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
        found = dict(self._entries(sorted({(database, key) for database, key, _ in rows})))
        return [
            found.get((database, key), "") > csn or index.status(database, key) is ExtinctionStatus.EXTINCT
            for database, key, csn in rows
        ]

    def _entries(self, keys: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[tuple[bytes, bytes], str]]:
        for begin in range(0, len(keys), _AT_ONCE):
            some = keys[begin : begin + _AT_ONCE]
            params: dict[str, Any] = {}
            looks = []
            for at, (database, key) in enumerate(some):
                params |= {f"database{at}": database, f"key{at}": key}
                # One look by the key for each: given all keys at once the planner reads the whole table.
                looks.append(
                    f"select {at} as number, csn from {self.tables.entries}"
                    f" where database = :database{at} and key = :key{at}"
                )
            for number, csn in self.conn.execute(" union all ".join(looks), params):
                yield some[number], str(csn)


def buried_of(conn: Connection, tables: ReplicaTables, csn: Csn | None) -> Buried | None:
    """The bound of a replica; None: it has purged nothing."""
    return None if csn is None else Buried(csn, conn, tables)
