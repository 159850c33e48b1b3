"""The log as a whole: its files read, checked against each other, and put together as columns with LSNs."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark.erase.errors import (
    LogChainBroken,
    LogFileMissing,
    NoCheckpoint,
    RestoreRequired,
    RollbackUnfinished,
)
from spark.erase.native.types import Buffer, Table
from spark.erase.reading.columns import FileColumns
from spark.erase.reading.directory import LogFile, file_names, make_durable, opened
from spark.erase.reading.files import Reads, Room, read_file
from spark.formats.je import log as je_log
from spark.formats.je.items import CheckpointEnd, Rollback
from spark.formats.je.log import EntryType, lsn_file, lsn_of, lsn_offset, show_lsn

Found = TypeVar("Found")
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Log:
    """The files of an environment in the order of their numbers, open, and all that was read of them."""

    directory: Path
    open_files: tuple[LogFile, ...]
    files: tuple[FileColumns, ...]
    reads: Reads

    def rare(self, kind: type[Found]) -> list[tuple[int, int, Found]]:
        """Return (LSN, entry type, what it holds) of all entries of a rare kind, in log order."""
        found = []
        for file in self.files:
            offsets, types = file.entries["offset"], file.entries["type"]
            for row, each in file.rare:
                if isinstance(each, kind):
                    lsn = lsn_of(file.number, offsets[row].as_py())
                    found.append((lsn, types[row].as_py(), each))
        return found

    def of_type(self, wanted: EntryType) -> list[int]:
        """Return the LSNs of all entries of a type."""
        return [
            lsn_of(file.number, int(offset))
            for file in self.files
            for offset in numbers(file.entries, "offset")[numbers(file.entries, "type") == wanted]
        ]

    def open_file(self, number: int) -> LogFile:
        """Return the open file of a number."""
        at = bisect_left(self.open_files, number, key=lambda file: file.number)
        file = self.open_files[at]
        assert file.number == number, (file.number, number)
        return file


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest checkpoint that ended; `first_active` is A of the safe rule."""

    lsn: int
    end: CheckpointEnd

    @property
    def first_active(self) -> int:
        """Return the LSN from which on recovery would read."""
        return self.end.first_active_lsn


@contextmanager
def read_log(directory: Path, *, verify: bool, durable: bool = False) -> Iterator[Log]:
    """Read all files of an environment; they stay open for as long as the log is asked.

    Args:
        directory: of the environment.
        verify: compare every checksum.
        durable: sync files and directory first, as whoever decides on them must.
    Raises: LogRefused
    """
    names = file_names(directory)
    with opened(directory, names) as open_files:
        if durable:
            make_durable(directory, open_files)
        room = Room.make()
        files: list[FileColumns] = []
        for file in open_files:
            is_last = file is open_files[-1]
            files.append(read_file(file, is_last=is_last, verify=verify, room=room))
            check_link(files)
        yield Log(directory, tuple(open_files), tuple(files), room.reads)


def check_link(files: Sequence[FileColumns]) -> None:
    """Compare what a file says of the one before it with that one, if the cleaner has left it."""
    this = files[-1]
    before = files[-2] if len(files) > 1 else None
    if this.header is None or before is None or before.number != this.number - 1:
        return
    last = before.entries["offset"][before.entries.num_rows - 1].as_py()
    if this.header.previous_file_last != last:
        raise LogChainBroken(
            f"the file before it ends with the entry {last}, not with {this.header.previous_file_last}",
            file=je_log.file_name(this.number),
            offset=je_log.PREVIOUS_FILE_LAST_AT,
        )


def newest_checkpoint(log: Log) -> Checkpoint:
    """Find the newest checkpoint that ended, and see that recovery from it has all that it needs.

    Raises: NoCheckpoint, LogFileMissing, LogChainBroken, RestoreRequired, RollbackUnfinished.
    """
    ends = log.rare(CheckpointEnd)
    if not ends:
        raise NoCheckpoint(f"no checkpoint has ended in the {len(log.files)} files of {log.directory}")
    lsn, _, end = ends[-1]
    checkpoint = Checkpoint(lsn, end)
    name, offset = je_log.file_name(lsn_file(lsn)), lsn_offset(lsn)
    _refuse_missing(log, checkpoint)
    if not is_entry(log, checkpoint.first_active) or checkpoint.first_active > lsn:
        detail = f"the checkpoint starts at {show_lsn(checkpoint.first_active)}, where no entry is"
        raise LogChainBroken(detail, file=name, offset=offset)
    refuse_restore(log, checkpoint)
    _refuse_open_rollback(log)
    return checkpoint


def _refuse_missing(log: Log, checkpoint: Checkpoint) -> None:
    """See that every file is there that a recovery would read. Gaps before are what JE's cleaner leaves."""
    if checkpoint.first_active < 0:
        return
    first, there = lsn_file(checkpoint.first_active), {file.number for file in log.files}
    for number in range(first, log.files[-1].number):
        if number not in there:
            detail = f"it is not there, and recovery would read every file from {je_log.file_name(first)} on"
            raise LogFileMissing(detail, file=je_log.file_name(number))


def refuse_restore(log: Log, checkpoint: Checkpoint) -> None:
    """See that recovery meets no word that the environment must be restored.

    Raises: RestoreRequired.
    """
    for marker in log.of_type(EntryType.RESTORE_REQUIRED):
        if marker >= checkpoint.first_active:
            detail = "the log says that the environment must be restored"
            raise RestoreRequired(detail, file=je_log.file_name(lsn_file(marker)), offset=lsn_offset(marker))


def _refuse_open_rollback(log: Log) -> None:
    rollbacks = log.rare(Rollback)
    ended = {each.start_lsn for _, kind, each in rollbacks if kind == EntryType.ROLLBACK_END}
    for lsn, kind, _ in rollbacks:
        if kind == EntryType.ROLLBACK_START and lsn not in ended:
            detail = "a rollback began and did not end"
            raise RollbackUnfinished(detail, file=je_log.file_name(lsn_file(lsn)), offset=lsn_offset(lsn))


def is_entry(log: Log, lsn: int) -> bool:
    """Whether an entry begins there."""
    for file in log.files:
        if file.number == lsn_file(lsn):
            offsets = numbers(file.entries, "offset")
            at = int(np.searchsorted(offsets, lsn_offset(lsn)))
            return at < len(offsets) and int(offsets[at]) == lsn_offset(lsn)
    return False


def numbers(table: pa.Table, column: str) -> Table:
    """Take a column of numbers as an array."""
    array: Table = table[column].to_numpy()
    return array


def distinct(lsns: Table) -> Table:
    """Sort LSNs and drop what is twice; numpy's own way by a hash table takes six times as long."""
    ordered = np.sort(lsns)
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    found: Table = ordered[first]
    return found


def mark(lsns: Table, wanted: Table) -> Mask:
    """Mark those LSNs, ascending as the log has them, that are among the wanted ones."""
    marked = np.zeros(len(lsns), dtype=bool)
    if len(lsns):
        at = np.minimum(np.searchsorted(lsns, wanted), len(lsns) - 1)
        marked[at[lsns[at] == wanted]] = True
    return marked


@dataclass(frozen=True, slots=True)
class Entries:
    """The columns of all entries, in log order."""

    lsn: Table
    type: Table
    flags: Table
    item_bytes: Table
    previous: Table
    checksum: Table
    vlsn: Table
    all_zero: Table


@dataclass(frozen=True, slots=True)
class Lns:
    """The columns of all LNs, in log order; `entry` is the row in Entries. `key_bounds` parts `keys`."""

    entry: Table
    db: Table
    txn: Table
    abort_lsn: Table
    value_bytes: Table
    expiration: Table
    flags: Table
    hash_1: Table
    hash_2: Table
    keys: Buffer
    key_bounds: Table

    def key(self, row: int) -> bytes:
        """Return the key of an LN."""
        return self.keys[self.key_bounds[row] : self.key_bounds[row + 1]].tobytes()


@dataclass(frozen=True, slots=True)
class Nodes:
    """The columns of all INs, BINs and BIN-deltas, in log order."""

    entry: Table
    db: Table
    node: Table
    last_full: Table
    level: Table
    flags: Table
    slots: Table


@dataclass(frozen=True, slots=True)
class Ends:
    """The columns of all commits and aborts, in log order."""

    entry: Table
    txn: Table


def all_entries(log: Log) -> Entries:
    """Put the entries of all files together."""

    def column(name: str) -> Table:
        return np.concatenate([numbers(file.entries, name) for file in log.files])

    lsn = np.concatenate(
        [
            (np.int64(file.number) << 32) + numbers(file.entries, "offset").astype(np.int64)
            for file in log.files
        ]
    )
    names = ("type", "flags", "item_bytes", "previous", "checksum", "vlsn", "all_zero")
    return Entries(lsn, *(column(name) for name in names))


def all_lns(log: Log) -> Lns:
    """Put the LNs of all files together."""
    tables = [file.lns for file in log.files]
    chunks = [chunk for table in tables for chunk in table["key"].chunks]
    keys = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())
    _, bounds, data = keys.buffers()
    raw = np.frombuffer(data or b"", dtype=np.uint8)
    return Lns(
        entry=_entries_of(log, tables),
        db=_column(tables, "db"),
        txn=_column(tables, "txn"),
        abort_lsn=_column(tables, "abort_lsn"),
        value_bytes=_column(tables, "value_bytes"),
        expiration=_column(tables, "expiration"),
        flags=_column(tables, "flags"),
        hash_1=_column(tables, "hash_1"),
        hash_2=_column(tables, "hash_2"),
        # Loops are compiled for arrays that may be written to.
        keys=raw if raw.flags.writeable else raw.copy(),
        key_bounds=np.frombuffer(bounds, dtype=np.int64)[keys.offset : keys.offset + len(keys) + 1]
        if bounds is not None
        else np.zeros(1, dtype=np.int64),
    )


def all_nodes(log: Log) -> Nodes:
    """Put the nodes of all files together."""
    tables = [file.nodes for file in log.files]
    names = ("db", "node", "last_full", "level", "flags", "slots")
    return Nodes(_entries_of(log, tables), *(_column(tables, name) for name in names))


def all_ends(log: Log) -> Ends:
    """Put the ends of transactions of all files together."""
    tables = [file.ends for file in log.files]
    return Ends(_entries_of(log, tables), _column(tables, "txn"))


def _column(tables: Sequence[pa.Table], name: str) -> Table:
    return np.concatenate([numbers(table, name) for table in tables])


def _entries_of(log: Log, tables: Sequence[pa.Table]) -> Table:
    """Put the column `entry` of all files together, as rows among all entries."""
    first_row, moved = 0, []
    for file, table in zip(log.files, tables, strict=True):
        moved.append(numbers(table, "entry").astype(np.int64) + first_row)
        first_row += file.entries.num_rows
    return np.concatenate(moved)
