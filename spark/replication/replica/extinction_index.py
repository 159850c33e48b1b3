"""The extinctions that a replica knows, as its writers look keys up in them.

Whoever writes entries reads the index under its own lock (local writers: the generator's row; batches: the
session's), which whoever commits an extinction holds too: no key of it is written after its commit.

The CSNs of all extinctions name an index; it is built once for each set of them and process.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark.formats.arrow import np, pa, pc
from spark.formats.extinction import Extinction, ExtinctionIndex, ExtinctionInvalid, ExtinctionStatus
from spark.formats.replica import ReplicaTables
from spark.replication.errors import ReplicationRefused
from spark.targets.connection import Connection, Target

if TYPE_CHECKING:
    from numpy.typing import NDArray

INDEXES_KEPT: Final = 64
NO_EXTINCTIONS: Final = ExtinctionIndex(())
_guard = threading.Lock()
_indexes: OrderedDict[tuple[Target, str], ExtinctionIndex] = OrderedDict()


class ExtinctionUnreadable(ReplicationRefused):
    """An extinction at the target was written by a later version: no key can be judged here."""

    code = "EXTINCTION_UNREADABLE"


@dataclass(frozen=True, slots=True)
class Judged:
    """The rows of a batch whose keys are extinct.

    Attributes:
        is_extinct: a flag for each row; None: there is none.
        extinctions: how many rows each of them covers, by its id; a row counts for one.
    """

    is_extinct: NDArray[np.bool_] | None
    extinctions: Counter[str]

    def rest_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not."""
        return batch if self.is_extinct is None else batch.filter(pa.array(~self.is_extinct))

    def those_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are."""
        return batch.slice(0, 0) if self.is_extinct is None else batch.filter(pa.array(self.is_extinct))


def mark_of(conn: Connection, tables: ReplicaTables) -> str:
    """The SQL of a scalar that names which extinctions there are; null: none."""
    if conn.dialect.name == "postgresql":
        return f"(select string_agg(csn, ',' order by csn) from {tables.extinctions})"
    return f"(select group_concat(csn, ',') from (select csn from {tables.extinctions} order by csn))"


def read_index(conn: Connection, tables: ReplicaTables) -> ExtinctionIndex:
    """The index of what is there now, under the caller's lock.

    Raises: ExtinctionUnreadable.
    """
    [(mark,)] = conn.execute(f"select {mark_of(conn, tables)}")
    return index_of(conn, tables, mark)


def index_of(conn: Connection, tables: ReplicaTables, mark: str | None) -> ExtinctionIndex:
    """The index that a mark names, which was read in this transaction.

    Raises: ExtinctionUnreadable.
    """
    if mark is None:
        return NO_EXTINCTIONS
    name = (conn.target, mark)
    with _guard:
        known = _indexes.get(name)
        if known is not None:
            _indexes.move_to_end(name)
            return known
    rows = conn.execute(f"select payload from {tables.extinctions}")
    made = ExtinctionIndex(parse_stored(bytes(payload)) for (payload,) in rows)
    with _guard:
        _indexes[name] = made
        while len(_indexes) > INDEXES_KEPT:
            _indexes.popitem(last=False)
    return made


def parse_stored(payload: bytes) -> Extinction:
    """An extinction as a row keeps it.

    Raises: ExtinctionUnreadable.
    """
    try:
        return Extinction.parse(payload)
    except ExtinctionInvalid as error:
        detail = f"an extinction of this replica cannot be read: {error.detail}"
        raise ExtinctionUnreadable(detail) from error


def judge(index: ExtinctionIndex, batch: pa.RecordBatch) -> Judged:
    """Find the rows of a batch whose keys are extinct.

    Args:
        batch: with the columns database and key.
    """
    found: Counter[str] = Counter()
    if not index or not batch.num_rows:
        return Judged(None, found)
    flags = np.zeros(batch.num_rows, dtype=np.bool_)
    databases = batch.column("database")
    for database in pc.unique(databases).to_pylist():
        rows = np.flatnonzero(np.asarray(pc.equal(databases, database)))
        keys = batch.column("key").take(pa.array(rows)).to_pylist()
        for row, key, status in zip(rows, keys, index.status_many(database, keys), strict=True):
            if status is ExtinctionStatus.EXTINCT:
                flags[row] = True
                covering = index.find(database, key)
                assert covering is not None, "what is extinct is covered"
                found[covering.id] += 1
    return Judged(flags if found else None, found)
