"""Planned entries: as an Arrow table, as the bytes that travel, and as the numbers that loops read.

The bytes are an Arrow IPC stream with zstd, in batches of one round's size: whoever wants some rows reads
past the batches before them without unpacking these.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark.erase.native import planned
from spark.erase.native.planned import PLANNED
from spark.erase.native.types import Table
from spark.formats.je import log as je_log
from spark.formats.je.log import NODE_TYPES, USER_LN_TYPES, EntryType

BATCH_ROWS: Final = 5_120
WRITE_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd")
ERASABLE_TYPES: Final = sorted(USER_LN_TYPES | NODE_TYPES | {EntryType.ERASED})


@dataclass(frozen=True, slots=True)
class EntryRows:
    """Planned entries as loops read them (columns of `native.erasing`), ascending and apart.

    Attributes:
        rows: a row for each entry.
        ends: the offset behind each entry.
    """

    rows: Table
    ends: Table

    @property
    def count(self) -> int:
        """Return how many there are."""
        return len(self.rows)

    @property
    def offsets(self) -> Table:
        """Return where the entries begin."""
        return self.rows[:, planned.OFFSET]

    @property
    def items_at(self) -> Table:
        """Return where their items begin."""
        found: Table = self.rows[:, planned.OFFSET] + self.rows[:, planned.HEADER_BYTES]
        return found


def pack(table: pa.Table) -> bytes:
    """Make bytes of a table (PLANNED): every batch but the last is full."""
    assert table.schema.equals(PLANNED), table.schema
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, PLANNED, options=WRITE_OPTIONS) as stream:
        stream.write_table(table.combine_chunks(), max_chunksize=BATCH_ROWS)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpack(entries: bytes) -> pa.Table:
    """Make the table (PLANNED) of bytes again."""
    with pa.ipc.open_stream(entries) as stream:
        table = stream.read_all()
    assert table.schema.equals(PLANNED), table.schema
    return table


def slice_entries(entries: bytes, first: int, last: int) -> bytes:
    """Take the rows from `first` up to but without `last`."""
    assert 0 <= first <= last, (first, last)
    batches = []
    messages = pa.ipc.MessageReader.open_stream(entries)
    assert messages.read_next_message().type == "schema"
    for number, message in enumerate(messages):
        row = number * BATCH_ROWS
        if row >= last:
            break
        if row + BATCH_ROWS > first:
            batch = pa.ipc.read_record_batch(message, PLANNED)
            begin = max(first - row, 0)
            batches.append(batch.slice(begin, min(last - row, batch.num_rows) - begin))
    table = pa.Table.from_batches(batches, schema=PLANNED)
    assert table.num_rows == last - first, (table.num_rows, first, last)
    return pack(table)


def rows_of(entries: bytes, *, file_size: int) -> EntryRows:
    """Take the numbers of entries out of their bytes.

    No plan of ours breaks what is asserted here; a plan that did would overwrite what nobody planned.
    """
    return _rows(unpack(entries), behind=je_log.FILE_HEADER_BYTES, file_size=file_size)


class Coming:
    """The planned entries of a file that is read from its beginning; few of them are in memory at a time.

    Attributes:
        done: how many lie behind what was read.
    """

    def __init__(self, entries: bytes, *, file_size: int) -> None:
        """Begin at the beginning of the file."""
        self._stream = pa.ipc.open_stream(entries)
        assert self._stream.schema.equals(PLANNED), self._stream.schema
        self._is_read = False
        self._file_size = file_size
        self._behind = je_log.FILE_HEADER_BYTES
        self._rows: Table = np.empty((0, planned.COLUMNS), dtype=np.int64)
        self.done = 0

    def before(self, limit: int) -> Table:
        """Return, as rows, those that are not done and begin before an offset, and perhaps some more."""
        while not self._is_read and (not len(self._rows) or self._rows[-1, planned.OFFSET] < limit):
            self._read_batch()
        return self._rows

    def drop(self, count: int) -> None:
        """Be done with the first so many."""
        assert 0 <= count <= len(self._rows), count
        self._rows = self._rows[count:]
        self.done += count

    def _read_batch(self) -> None:
        try:
            batch = self._stream.read_next_batch()
        except StopIteration:
            self._is_read = True
            return
        table = pa.Table.from_batches([batch])
        planned = _rows(table, behind=self._behind, file_size=self._file_size)
        if planned.count:
            self._behind = int(planned.ends[-1])
        self._rows = np.concatenate([self._rows, planned.rows])


def _rows(table: pa.Table, *, behind: int, file_size: int) -> EntryRows:
    rows = np.empty((table.num_rows, planned.COLUMNS), dtype=np.int64)
    for column, name in planned.NAMES.items():
        rows[:, column] = table[name].to_numpy()
    rows[:, planned.VLSN] = np.where(
        rows[:, planned.FLAGS] & je_log.FLAGS_WITH_VLSN, rows[:, planned.VLSN], 0
    )
    rows[:, planned.HEADER_BYTES] = np.where(
        rows[:, planned.FLAGS] & je_log.FLAGS_WITH_VLSN, je_log.HEADER_BYTES_WITH_VLSN, je_log.HEADER_BYTES
    )
    items_at = rows[:, planned.OFFSET] + rows[:, planned.HEADER_BYTES]
    ends = items_at + rows[:, planned.ITEM_BYTES]
    assert (rows[:, planned.ITEM_BYTES] >= 0).all()
    assert np.isin(rows[:, planned.TYPE], ERASABLE_TYPES).all()
    if len(rows):
        assert rows[0, planned.OFFSET] >= behind
        assert ends[-1] <= file_size, (ends[-1], file_size)
        assert (rows[1:, planned.OFFSET] >= ends[:-1]).all()
    return EntryRows(rows, ends)
