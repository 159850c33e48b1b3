"""Reading a file of the log: 4 MiB at a time, every entry checked, into Arrow tables.

Strict: the chain of previous offsets, sizes, each item used up exactly, and the checksums if asked for. An
entry that is cut off is an error, except where the last file of the log ends in it and nothing valid follows:
then it is a torn tail, which JE itself would cut off.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from spark.erase.errors import (
    LogChainBroken,
    LogChecksumWrong,
    LogCorrupt,
    LogEntryTorn,
    LogEntryUnknown,
    LogFileChanged,
    LogHeaderInvalid,
    LogItemMalformed,
)
from spark.erase.native import types as t
from spark.erase.native.searching import find_entry
from spark.erase.native.types import Buffer, Outcome
from spark.erase.native.walking import entry_bytes, walk
from spark.erase.reading.columns import FileColumns, Rare
from spark.erase.reading.directory import LogFile, read_file_header
from spark.erase.reading.gathering import Gathering, Rows
from spark.formats.je import log as je_log
from spark.formats.je.items import (
    check_plain,
    read_checkpoint_end,
    read_db_tree,
    read_rare_ln,
    read_rollback,
)
from spark.formats.je.log import EntryType
from spark.formats.je.packed import ItemMalformed

UNIT_BYTES: Final = 4 * 1024 * 1024
# No power of two: columns that lie so far apart would want the same lines of the processor's cache.
ENTRIES_PER_CALL: Final = 16_000
# A tail that is longer is not searched but refused: JE writes its buffers of 1 MB in order.
TORN_TAIL_BYTES_MAX: Final = 64 * 1024 * 1024

RARE_LN_TYPES: Final = frozenset(
    {
        EntryType.MAP_LN,
        EntryType.MAP_LN_TX,
        EntryType.NAME_LN,
        EntryType.NAME_LN_TX,
        EntryType.FILE_SUMMARY_LN,
        EntryType.EXTINCT_SCAN_LN,
        EntryType.EXTINCT_SCAN_LN_TX,
    }
)
FAULTS: Final[dict[Outcome, tuple[type[LogCorrupt], str]]] = {
    Outcome.TYPE_UNKNOWN: (LogEntryUnknown, "an entry type that log version 26 does not have"),
    Outcome.FLAGS_UNKNOWN: (LogEntryUnknown, "a flag that log version 26 does not have"),
    Outcome.PREVIOUS_WRONG: (LogChainBroken, "it does not name the entry before it"),
    Outcome.SIZE_NEGATIVE: (LogEntryUnknown, "its size is negative"),
    Outcome.HEADER_MISPLACED: (LogEntryUnknown, "a file header stands at offset 0, and nowhere else"),
    Outcome.CHECKSUM_WRONG: (LogChecksumWrong, "its bytes do not have the checksum that it names"),
    Outcome.ITEM_MALFORMED: (LogItemMalformed, "its item does not hold what its type says"),
}


@dataclass(slots=True)
class Reads:
    """What reading has cost: each unit is one read of its real bytes."""

    count: int = 0
    byte_count: int = 0


@dataclass(slots=True)
class Room:
    """Buffers for reading one file after another."""

    buffer: Buffer
    rows: Rows
    reads: Reads

    @classmethod
    def make(cls, unit_bytes: int = UNIT_BYTES) -> "Room":
        """Make room for units of a size."""
        rows = Rows.of(ENTRIES_PER_CALL, unit_bytes)
        return cls(np.empty(unit_bytes, dtype=np.uint8), rows, Reads())

    def grow(self, wanted: int, filled: int) -> None:
        """Make room for an entry that is larger than the buffer."""
        larger = np.empty(wanted, dtype=np.uint8)
        larger[:filled] = self.buffer[:filled]
        self.buffer = larger
        self.rows.keys = np.empty(wanted, dtype=np.uint8)


def read_file(
    file: LogFile, *, is_last: bool, verify: bool, growing: bool = False, room: Room | None = None
) -> FileColumns:
    """Read all entries of a file.

    Args:
        file: open for reading.
        is_last: of its log; only there a torn tail is legal, and there checksums are always compared: they
            tell the tail.
        verify: also compare every checksum.
        growing: somebody may be writing at its end: what follows a torn entry tells nothing.
        room: buffers to use again; made anew without.
    Raises: LogRefused: naming file and offset.
    """
    room = room or Room.make()
    header = read_file_header(file)
    gathering = Gathering()
    torn_at: int | None = None
    try:
        if header is None:
            raise LogHeaderInvalid("it ends within its first entry", file=file.name, offset=0)
        _walk_file(file, gathering, room, size=file.identity.size, verify=verify or is_last)
    except LogCorrupt as fault:
        if not is_last or isinstance(fault, LogItemMalformed) or fault.offset is None:
            raise
        if not growing:
            _refuse_if_followed(file, fault)
        torn_at = fault.offset
    file.look_again()
    entries, lns, nodes, ends = gathering.tables()
    return FileColumns(
        number=file.number,
        identity=file.identity,
        header=header,
        torn_at=torn_at,
        entries=entries,
        lns=lns,
        nodes=nodes,
        ends=ends,
        rare=tuple(gathering.rare),
    )


class Source(Protocol):
    """Something that bytes of a log file can be read from, in order."""

    @property
    def name(self) -> str: ...

    def read_into(self, target: memoryview, offset: int) -> int: ...


def check_chain(source: Source, *, size: int, room: Room) -> None:
    """Walk all entries of a whole file by their headers; nothing is gathered, no item is read.

    Raises: LogRefused: naming file and offset.
    """
    _walk_file(source, None, room, size=size, verify=False)


def _walk_file(file: Source, gathering: Gathering | None, room: Room, *, size: int, verify: bool) -> None:
    """Walk a file to its end. Whatever was found before a fault is gathered when the fault is raised."""
    room.rows.state[:] = 0
    base = filled = 0
    while base + filled < size:
        wanted = min(len(room.buffer) - filled, size - base - filled)
        count = file.read_into(memoryview(room.buffer.data)[filled : filled + wanted], base + filled)
        room.reads.count += 1
        room.reads.byte_count += count
        if count != wanted:
            raise LogFileChanged(
                "it became shorter while it was read", file=file.name, offset=base + filled + count
            )
        filled += count
        taken = _walk_buffer(file, gathering, room, base=base, filled=filled, verify=verify)
        rest = filled - taken
        room.buffer[:rest] = room.buffer[taken:filled].copy()
        base += taken
        filled = rest
        _make_room(file, room, size=size, base=base, filled=filled)
    if filled:
        raise LogEntryTorn("the entry ends behind the end of the file", file=file.name, offset=base)


def _walk_buffer(
    file: Source, gathering: Gathering | None, room: Room, *, base: int, filled: int, verify: bool
) -> int:
    """Walk all whole entries of the buffer, and return how many bytes they are."""
    rows = room.rows
    at = 0
    while True:
        rows.begin_call()
        number, position = walk(
            room.buffer,
            at,
            filled,
            base,
            verify,
            gathering is not None,
            rows.state,
            rows.headers,
            rows.lns,
            rows.nodes,
            rows.ends,
            rows.rare,
            rows.keys,
            rows.no_slots,
            rows.prefix,
        )
        outcome, at = Outcome(int(number)), int(position)
        if gathering is not None:
            _take_rare(file, gathering, room, base=base)
            gathering.take(rows)
        if outcome in (Outcome.DONE, Outcome.MORE):
            return at
        if outcome != Outcome.FULL:
            kind, detail = FAULTS[outcome]
            raise kind(detail, file=file.name, offset=base + at)


def _make_room(file: Source, room: Room, *, size: int, base: int, filled: int) -> None:
    """See that the entry at the front of the buffer fits into it, if it fits into the file."""
    if filled < je_log.HEADER_BYTES:
        return
    wanted = int(entry_bytes(room.buffer, 0))
    if base + wanted > size:
        raise LogEntryTorn("the entry ends behind the end of the file", file=file.name, offset=base)
    if wanted > len(room.buffer):
        room.grow(wanted, filled)


def _take_rare(file: Source, gathering: Gathering, room: Room, *, base: int) -> None:
    """Read those entries of the call that are read one by one, while their bytes are in the buffer."""
    state, headers = room.rows.state, room.rows.headers
    for row in room.rows.rare[: state[t.STATE_RARE]].tolist():
        offset, entry_type, item_bytes = (int(headers[row, c]) for c in (t.OFFSET, t.TYPE, t.ITEM_BYTES))
        has_vlsn = headers[row, t.FLAGS] & je_log.FLAGS_WITH_VLSN
        start = offset - base + (je_log.HEADER_BYTES_WITH_VLSN if has_vlsn else je_log.HEADER_BYTES)
        try:
            found = read_rare(room.buffer[start : start + item_bytes].tobytes(), entry_type)
        except ItemMalformed as error:
            raise LogItemMalformed(
                f"{EntryType(entry_type).name}: {error}", file=file.name, offset=offset
            ) from error
        gathering.rare.append((gathering.count + row, found))


def read_rare(item: bytes, entry_type: int) -> Rare:
    """Read the item of an entry that is read one by one.

    Raises: ItemMalformed.
    """
    if entry_type in RARE_LN_TYPES:
        return read_rare_ln(item, entry_type)
    if entry_type == EntryType.CKPT_END:
        return read_checkpoint_end(item)
    if entry_type == EntryType.DB_TREE:
        return read_db_tree(item)
    if entry_type in (EntryType.ROLLBACK_START, EntryType.ROLLBACK_END):
        return read_rollback(item, entry_type)
    check_plain(item, entry_type)
    return None


def _refuse_if_followed(file: LogFile, fault: LogCorrupt) -> None:
    """Tell a torn tail from damage in the middle: behind a tail there is no whole entry."""
    assert fault.offset is not None
    rest = file.identity.size - fault.offset
    if rest > TORN_TAIL_BYTES_MAX:
        raise fault
    data = np.frombuffer(bytearray(file.read(fault.offset, rest)), dtype=np.uint8)
    following = find_entry(data, 1, fault.offset)
    if following >= 0:
        fault.detail += f"; yet a whole entry follows at offset {fault.offset + following}"
        raise fault
