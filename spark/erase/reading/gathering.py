"""From the rows that the walk fills, buffer by buffer, to the Arrow tables of a file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from spark.erase.native import types as t
from spark.erase.native.reading import hash_key
from spark.erase.native.types import Buffer, Table
from spark.erase.reading.columns import ENDS, ENTRIES, LNS, NODES, Rare
from spark.formats.je.items import RareLn

ENTRY_COLUMNS: Final = (
    t.OFFSET,
    t.TYPE,
    t.FLAGS,
    t.ITEM_BYTES,
    t.PREVIOUS,
    t.CHECKSUM,
    t.VLSN,
    t.ALL_ZERO,
)
LN_COLUMNS: Final = (
    t.LN_ENTRY,
    t.LN_DB,
    t.LN_TXN,
    t.LN_TXN_PREVIOUS,
    t.LN_ABORT_LSN,
    t.LN_VALUE_BYTES,
    t.LN_EXPIRATION,
    t.LN_FLAGS,
    t.LN_ABORT_DATA_BYTES,
    t.LN_HASH_1,
    t.LN_HASH_2,
)
NODE_COLUMNS: Final = (
    t.NODE_ENTRY,
    t.NODE_DB,
    t.NODE_ID,
    t.NODE_LAST_FULL,
    t.NODE_LEVEL,
    t.NODE_FLAGS,
    t.NODE_SLOTS,
)
END_COLUMNS: Final = (t.END_ENTRY, t.END_TXN)


@dataclass(slots=True)
class Rows:
    """Room for what one call of the walk finds. It is used again for the next call."""

    headers: Table
    lns: Table
    nodes: Table
    ends: Table
    rare: Table
    keys: Buffer
    state: Table
    no_slots: Table
    prefix: Table

    @classmethod
    def of(cls, entries: int, key_bytes: int) -> "Rows":
        """Make room for so many entries, and so many bytes of keys."""

        def table(columns: int) -> Table:
            return np.empty((entries, columns), dtype=np.int64)

        return cls(
            # Column by column in memory, as they are taken out.
            headers=np.empty((t.HEADER_COLUMNS, entries), dtype=np.int64).T,
            lns=np.empty((t.LN_COLUMNS, entries), dtype=np.int64).T,
            nodes=table(t.NODE_COLUMNS),
            ends=table(t.END_COLUMNS),
            rare=np.empty(entries, dtype=np.int64),
            keys=np.empty(key_bytes, dtype=np.uint8),
            state=np.zeros(t.STATE_COLUMNS, dtype=np.int64),
            no_slots=np.empty((0, t.SLOT_COLUMNS), dtype=np.int64),
            prefix=np.empty(2, dtype=np.int64),
        )

    def begin_call(self) -> None:
        """Forget the rows of the call before; the offset of the previous entry stays."""
        self.state[t.STATE_HEADERS :] = 0


@dataclass(slots=True)
class Gathering:
    """The tables of a file in the making."""

    count: int = 0
    entries: list[pa.RecordBatch] = field(default_factory=list)
    lns: list[pa.RecordBatch] = field(default_factory=list)
    nodes: list[pa.RecordBatch] = field(default_factory=list)
    ends: list[pa.RecordBatch] = field(default_factory=list)
    rare: list[tuple[int, Rare]] = field(default_factory=list)

    def take(self, rows: Rows) -> None:
        """Take over the rows of one call."""
        state = rows.state
        self.entries.append(_batch(ENTRIES, rows.headers[: state[t.STATE_HEADERS]], ENTRY_COLUMNS))
        for kind, schema, found, columns in (
            (self.nodes, NODES, rows.nodes[: state[t.STATE_NODES]], NODE_COLUMNS),
            (self.ends, ENDS, rows.ends[: state[t.STATE_ENDS]], END_COLUMNS),
        ):
            found[:, 0] += self.count
            kind.append(_batch(schema, found, columns))
        lns = rows.lns[: state[t.STATE_LNS]]
        lns[:, t.LN_ENTRY] += self.count
        self.lns.append(_ln_batch(lns, rows.keys[: state[t.STATE_KEY_BYTES]]))
        self.count += int(state[t.STATE_HEADERS])

    def tables(self) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
        """Return the tables ENTRIES, LNS, NODES and ENDS."""
        rare = [(row, each) for row, each in self.rare if isinstance(each, RareLn)]
        lns = pa.Table.from_batches(self.lns, LNS)
        if rare:
            lns = pa.concat_tables([lns, _rare_table(rare)]).sort_by("entry")
        return (
            pa.Table.from_batches(self.entries, ENTRIES).combine_chunks(),
            lns.combine_chunks(),
            pa.Table.from_batches(self.nodes, NODES).combine_chunks(),
            pa.Table.from_batches(self.ends, ENDS).combine_chunks(),
        )


def _batch(schema: pa.Schema, rows: Table, columns: Sequence[int]) -> pa.RecordBatch:
    arrays = [
        pa.array(rows[:, column].astype(each.type.to_pandas_dtype()), each.type)
        for column, each in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _ln_batch(rows: Table, keys: Buffer) -> pa.RecordBatch:
    numbers = _batch(pa.schema(list(LNS)[:-1]), rows, LN_COLUMNS)
    bounds = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(rows[:, t.LN_KEY_BYTES], out=bounds[1:])
    data = [None, pa.py_buffer(bounds), pa.py_buffer(keys.tobytes())]
    key = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(rows), data)
    return pa.RecordBatch.from_arrays([*numbers.columns, key], schema=LNS)


def _rare_table(rare: Sequence[tuple[int, RareLn]]) -> pa.Table:
    rows = []
    for entry, ln in rare:
        raw = np.frombuffer(bytearray(ln.key), dtype=np.uint8)
        hash_1, hash_2 = hash_key(raw, 0, len(raw), ln.db_id)
        rows.append(
            {
                "entry": entry,
                "db": ln.db_id,
                "txn": ln.txn_id,
                "txn_previous": ln.txn_previous,
                "abort_lsn": ln.abort_lsn,
                "value_bytes": -1 if ln.value is None else len(ln.value),
                "expiration": ln.expiration,
                "flags": ln.flags,
                "abort_data_bytes": ln.abort_data_bytes,
                "hash_1": hash_1,
                "hash_2": hash_2,
                "key": ln.key,
            }
        )
    return pa.Table.from_pylist(rows, LNS)
