"""The first look at a file, when each file is another task: all of it read and checked, little of it kept.

What goes on from here to the overview of the log: nodes, rare entries, the ends of transactions as packed
numbers, and no key of any record.
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark.erase.errors import LogFileChanged, LogRefused
from spark.erase.native.types import Table
from spark.erase.reading.columns import ENDS, LNS, NODES, FileColumns
from spark.erase.reading.directory import Identity, file_names, make_durable, opened
from spark.erase.reading.files import Reads, Room, read_file
from spark.erase.reading.log import Log, Mask, all_entries, all_lns, numbers
from spark.erase.reading.transactions import TRANSACTIONAL
from spark.erase.rule.barren import newest_others
from spark.formats.je.items import CheckpointEnd, RareLn
from spark.formats.je.log import (
    FLAG_INVISIBLE,
    FLAG_REPLICATED,
    NULL_LSN,
    EntryType,
    file_name,
    lsn_file,
    lsn_of,
    lsn_offset,
)

SIZE_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class FileTask:
    """A file that a task reads; it must be what it was when it was found."""

    directory: str
    number: int
    identity: Identity
    is_last: bool

    def read(self, *, verify: bool) -> tuple[FileColumns, Reads]:
        """Read all entries of the file, and close it.

        Raises: LogRefused
        """
        room = Room.make()
        with opened(Path(self.directory), [file_name(self.number)]) as [file]:
            if file.identity != self.identity:
                raise LogFileChanged(f"{self.identity} became {file.identity}", file=file.name)
            columns = read_file(file, is_last=self.is_last, verify=verify, room=room)
        return columns, room.reads


@dataclass(frozen=True, slots=True)
class TransactionEnds:
    """Visible commits and aborts: transaction, LSN, and type of entry; LSNs of one transaction ascend."""

    txn: Table
    lsn: Table
    type: Table


@dataclass(frozen=True, slots=True)
class Survey:
    """What the overview needs of one file.

    Attributes:
        columns: the file without most of its entries, see `thin`.
        ln_count, key_bytes: of all of its LNs.
        ended: its TransactionEnds by transaction, packed.
        ended_range: the lowest and the highest of these transactions.
        open: transactions of LNs that do not end in this file.
        newest: see `barren.newest_others`, packed.
        lists: of each list of obsolete offsets: its anchor's LSN and the LSNs on it.
    """

    task: FileTask
    columns: FileColumns
    ln_count: int
    key_bytes: int
    ended: bytes
    ended_count: int
    ended_range: tuple[int, int]
    open: Table
    newest: bytes
    lists: tuple[tuple[int, Table], ...]
    reads: tuple[int, int]

    def ends(self) -> TransactionEnds:
        """Unpack the ends of transactions, by transaction."""
        txn, offset, kind = unpack(self.ended)
        lsn = offset.astype(np.int64) + lsn_of(self.task.number, 0)
        return TransactionEnds(np.cumsum(txn), lsn, kind)


def find_tasks(directory: Path) -> list[FileTask]:
    """Find the files of an environment, and make them durable.

    Raises: LogRefused
    """
    names = file_names(directory)
    with opened(directory, names) as files:
        make_durable(directory, files)
        return [
            FileTask(str(directory), each.number, each.identity, is_last=each is files[-1]) for each in files
        ]


def survey_file(task: FileTask, *, with_lists: bool) -> Survey | LogRefused:
    """Read a file with all of its checks; a refusal is a value here, since Spark would repeat an exception.

    Args:
        with_lists: also keep JE's lists of obsolete offsets.
    """
    try:
        columns, reads = task.read(verify=True)
    except LogRefused as refused:
        return refused
    log = Log(Path(task.directory), (), (columns,), reads)
    flags, types = numbers(columns.entries, "flags"), numbers(columns.entries, "type")
    offsets = numbers(columns.entries, "offset")
    entry, txn = numbers(columns.ends, "entry"), numbers(columns.ends, "txn")
    visible = (flags[entry] & FLAG_INVISIBLE) == 0
    entry, txn = entry[visible], txn[visible]
    order = np.argsort(txn, kind="stable")
    entry, txn = entry[order], txn[order]
    ln_entry = numbers(columns.lns, "entry")
    of_lns = np.unique(numbers(columns.lns, "txn")[TRANSACTIONAL[types[ln_entry]]])
    return Survey(
        task=task,
        columns=thin(columns, nodes=True, offsets=_own_starts(columns)),
        ln_count=columns.lns.num_rows,
        key_bytes=columns.lns["key"].nbytes,
        ended=pack((np.diff(txn, prepend=0), offsets[entry], types[entry])),
        ended_count=len(txn),
        ended_range=(int(txn[0]), int(txn[-1])) if len(txn) else (0, -1),
        open=of_lns[~among(of_lns, txn)],
        newest=pack(newest_others(log, all_entries(log), all_lns(log))),
        lists=_lists(columns) if with_lists else (),
        reads=(reads.count, reads.byte_count),
    )


def thin(
    columns: FileColumns, *, lns: Mask | None = None, nodes: bool = False, offsets: Sequence[int] = ()
) -> FileColumns:
    """Leave out most entries of a file.

    Left are rare entries that say something of the whole log, the last entry, those with the highest VLSNs,
    and what is asked for. No end of a transaction is left.

    Args:
        lns: LNs that stay; none by default.
        nodes: whether all nodes stay.
        offsets: where entries begin that stay.
    """
    entries = columns.entries
    types = numbers(entries, "type")
    rare = [(row, each) for row, each in columns.rare if _says_much(each)]
    keep = types == EntryType.RESTORE_REQUIRED
    keep[-1:] = True
    keep[[row for row, _ in rare]] = True
    keep[_highest_vlsns(entries)] = True
    keep |= np.isin(numbers(entries, "offset"), np.array(offsets, dtype=np.int64))
    # An empty slice would drag its whole table along when it is pickled.
    kept_nodes = columns.nodes if nodes else NODES.empty_table()
    kept_lns = LNS.empty_table() if lns is None else columns.lns.filter(pa.array(lns))
    keep[numbers(kept_nodes, "entry")] = True
    keep[numbers(kept_lns, "entry")] = True
    row_of = np.cumsum(keep) - 1

    def moved(table: pa.Table) -> pa.Table:
        entry = row_of[numbers(table, "entry")]
        return table.set_column(0, table.schema.field(0), pa.array(entry, pa.int32()))

    return replace(
        columns,
        entries=entries.filter(pa.array(keep)),
        lns=moved(kept_lns),
        nodes=moved(kept_nodes),
        ends=ENDS.empty_table(),
        rare=tuple((int(row_of[row]), each) for row, each in rare),
    )


def _says_much(rare: Any) -> bool:
    if isinstance(rare, RareLn):
        return rare.database is not None or rare.named_id is not None or rare.extinct_scan is not None
    return rare is not None


def _highest_vlsns(entries: pa.Table) -> list[int]:
    """Find the entry of the highest VLSN, and that of the highest one that replication sees."""
    vlsn, flags = numbers(entries, "vlsn"), numbers(entries, "flags")
    seen = ((flags & FLAG_REPLICATED) != 0) & ((flags & FLAG_INVISIBLE) == 0)
    found = []
    for chosen in (vlsn > 0, (vlsn > 0) & seen):
        rows = np.flatnonzero(chosen)
        if len(rows):
            found.append(int(rows[np.argmax(vlsn[rows])]))
    return found


def _own_starts(columns: FileColumns) -> list[int]:
    """Return where this file's checkpoints say that recovery starts, if that is in this file."""
    starts = [each.first_active_lsn for _, each in columns.rare if isinstance(each, CheckpointEnd)]
    return [lsn_offset(lsn) for lsn in starts if lsn != NULL_LSN and lsn_file(lsn) == columns.number]


def _lists(columns: FileColumns) -> tuple[tuple[int, Table], ...]:
    return tuple(
        (
            each.anchor_lsn,
            np.array(each.obsolete_offsets, dtype=np.int64) + (int.from_bytes(each.key[:4], "big") << 32),
        )
        for _, each in columns.rare
        if isinstance(each, RareLn) and each.obsolete_offsets
    )


def among(values: Table, wanted: Table) -> Mask:
    """Mark the values that are among the wanted ones, which ascend."""
    if not len(wanted):
        return np.zeros(len(values), dtype=bool)
    at = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    found: Mask = wanted[at] == values
    return found


def pack(value: object) -> bytes:
    """Make few bytes of a value."""
    raw = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    packed: bytes = pa.compress(raw, codec="zstd", asbytes=True)
    return len(raw).to_bytes(SIZE_BYTES, "little") + packed


def unpack(content: bytes) -> Any:
    """Make the value of its bytes again; they are our own."""
    size = int.from_bytes(content[:SIZE_BYTES], "little")
    return pickle.loads(pa.decompress(content[SIZE_BYTES:], size, codec="zstd", asbytes=True))  # noqa: S301


def pack_rising(values: Table) -> bytes:
    """Make few bytes of numbers that ascend."""
    return pack(np.diff(values, prepend=0))


def unpack_rising(content: bytes) -> Table:
    """Make numbers of their bytes again."""
    values: Table = np.cumsum(unpack(content), dtype=np.int64)
    return values
