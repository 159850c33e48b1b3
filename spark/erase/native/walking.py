"""The walk along the entries of a file, one buffer after another."""

from typing import Final

import numpy as np

from spark.erase.native import types as t
from spark.erase.native.compiling import compiled, inlined
from spark.erase.native.items import parse_end, parse_ln, parse_node
from spark.erase.native.reading import entry_checksum, fixed, is_zero
from spark.erase.native.types import Buffer, Int, Outcome, Table
from spark.formats.je import log as je_log

DONE: Final = int(Outcome.DONE)
MORE: Final = int(Outcome.MORE)
FULL: Final = int(Outcome.FULL)
TYPE_UNKNOWN: Final = int(Outcome.TYPE_UNKNOWN)
FLAGS_UNKNOWN: Final = int(Outcome.FLAGS_UNKNOWN)
PREVIOUS_WRONG: Final = int(Outcome.PREVIOUS_WRONG)
SIZE_NEGATIVE: Final = int(Outcome.SIZE_NEGATIVE)
HEADER_MISPLACED: Final = int(Outcome.HEADER_MISPLACED)
CHECKSUM_WRONG: Final = int(Outcome.CHECKSUM_WRONG)
ITEM_MALFORMED: Final = int(Outcome.ITEM_MALFORMED)

HEADER_BYTES: Final = je_log.HEADER_BYTES
HEADER_BYTES_WITH_VLSN: Final = je_log.HEADER_BYTES_WITH_VLSN
FILE_HEADER: Final = int(je_log.EntryType.FILE_HEADER)
ERASED: Final = int(je_log.EntryType.ERASED)

# What the walk does with the item of a type.
UNKNOWN: Final = 0
RARE: Final = 1
LN: Final = 2
NODE: Final = 3
END: Final = 4
SKIPPED: Final = 5


def _kinds() -> Buffer:
    kinds = np.zeros(256, dtype=np.uint8)
    kinds[list(je_log.EntryType)] = RARE
    plain = je_log.LN_TYPES - {
        je_log.EntryType.MAP_LN_TX,
        je_log.EntryType.MAP_LN,
        je_log.EntryType.NAME_LN_TX,
        je_log.EntryType.NAME_LN,
        je_log.EntryType.FILE_SUMMARY_LN,
        je_log.EntryType.EXTINCT_SCAN_LN,
        je_log.EntryType.EXTINCT_SCAN_LN_TX,
    }
    kinds[list(plain)] = LN
    kinds[list(je_log.NODE_TYPES)] = NODE
    kinds[[je_log.EntryType.COMMIT, je_log.EntryType.ABORT]] = END
    kinds[[FILE_HEADER, ERASED]] = SKIPPED
    return kinds


KIND: Final = _kinds()


@inlined
def check_header(buffer: Buffer, at: Int, offset: Int, previous: Int) -> Int:
    """Check the fourteen bytes of an entry's header as far as they can be checked alone."""
    entry_type = np.int64(buffer[np.uint64(at + je_log.TYPE_AT)])
    if KIND[entry_type] == UNKNOWN:
        return TYPE_UNKNOWN
    if (entry_type == FILE_HEADER) != (offset == 0):
        return HEADER_MISPLACED
    if entry_type != FILE_HEADER and buffer[np.uint64(at + je_log.FLAGS_AT)] & je_log.FLAGS_UNUSED:
        return FLAGS_UNKNOWN
    if fixed(buffer, at + je_log.PREVIOUS_AT, 4) != previous:
        return PREVIOUS_WRONG
    if buffer[np.uint64(at + je_log.ITEM_SIZE_AT + 3)] & 0x80:
        return SIZE_NEGATIVE
    return DONE


@inlined
def entry_bytes(buffer: Buffer, at: Int) -> Int:
    """Return the size of an entry whose first fourteen bytes are there."""
    header = HEADER_BYTES
    if (
        buffer[np.uint64(at + je_log.FLAGS_AT)] & je_log.FLAGS_WITH_VLSN
        and buffer[np.uint64(at + je_log.TYPE_AT)] != FILE_HEADER
    ):
        header = HEADER_BYTES_WITH_VLSN
    return header + fixed(buffer, at + je_log.ITEM_SIZE_AT, 4)


@inlined
def fill_header(
    buffer: Buffer, at: Int, offset: Int, item_at: Int, end: Int, rows: Table, number: Int
) -> None:
    """Fill the row of an entry that is wholly in the buffer."""
    rows[number, t.OFFSET] = offset
    rows[number, t.TYPE] = buffer[np.uint64(at + je_log.TYPE_AT)]
    rows[number, t.FLAGS] = buffer[np.uint64(at + je_log.FLAGS_AT)]
    rows[number, t.ITEM_BYTES] = end - item_at
    rows[number, t.PREVIOUS] = fixed(buffer, at + je_log.PREVIOUS_AT, 4)
    rows[number, t.CHECKSUM] = fixed(buffer, at + je_log.CHECKSUM_AT, 4)
    rows[number, t.VLSN] = (
        fixed(buffer, at + je_log.VLSN_AT, 8) if item_at - at == HEADER_BYTES_WITH_VLSN else 0
    )
    rows[number, t.ALL_ZERO] = 0
    if rows[number, t.TYPE] == ERASED:
        rows[number, t.ALL_ZERO] = 1 if is_zero(buffer, item_at, end) else 0


@inlined
def parse_item(
    buffer: Buffer,
    item_at: Int,
    end: Int,
    entry_type: Int,
    state: Table,
    lns: Table,
    nodes: Table,
    ends: Table,
    rare: Table,
    keys: Buffer,
    no_slots: Table,
    prefix: Table,
) -> Int:
    """Parse one item into the row of its kind; return whether it was used up exactly, as an outcome."""
    kind = KIND[entry_type]
    at = end
    if kind == LN:
        number = state[t.STATE_LNS]
        at = parse_ln(buffer, item_at, end, entry_type, lns, number, keys, state[t.STATE_KEY_BYTES])
        if at == end:
            lns[number, t.LN_ENTRY] = state[t.STATE_HEADERS]
            state[t.STATE_LNS] += 1
            state[t.STATE_KEY_BYTES] += lns[number, t.LN_KEY_BYTES]
    elif kind == NODE:
        number = state[t.STATE_NODES]
        at = parse_node(buffer, item_at, end, entry_type, nodes, number, no_slots, prefix)
        if at == end:
            nodes[number, t.NODE_ENTRY] = state[t.STATE_HEADERS]
            state[t.STATE_NODES] += 1
    elif kind == END:
        number = state[t.STATE_ENDS]
        at = parse_end(buffer, item_at, end, ends, number)
        if at == end:
            ends[number, t.END_ENTRY] = state[t.STATE_HEADERS]
            state[t.STATE_ENDS] += 1
    elif kind == RARE:
        rare[state[t.STATE_RARE]] = state[t.STATE_HEADERS]
        state[t.STATE_RARE] += 1
    return DONE if at == end else ITEM_MALFORMED


@inlined
def is_sound(buffer: Buffer, at: Int, end: Int, entry_type: Int) -> bool:
    """Compare the checksum of a whole entry; one that is erased has none."""
    flags = np.int64(buffer[np.uint64(at + je_log.FLAGS_AT)])
    return entry_type == ERASED or entry_checksum(buffer, at, end, flags) == fixed(
        buffer, at + je_log.CHECKSUM_AT, 4
    )


@compiled
def walk(
    buffer: Buffer,
    start: Int,
    limit: Int,
    base: Int,
    verify: bool,
    parse: bool,
    state: Table,
    headers: Table,
    lns: Table,
    nodes: Table,
    ends: Table,
    rare: Table,
    keys: Buffer,
    no_slots: Table,
    prefix: Table,
) -> tuple[Int, Int]:
    """Walk from `start` to `limit` of a buffer whose first byte stands at `base` of the file.

    Returns the outcome and the position of the first entry that was not taken: MORE if it is not wholly in
    the buffer, FULL if there is no row left for it.
    """
    at = start
    while at < limit:
        if state[t.STATE_HEADERS] >= headers.shape[0]:
            return FULL, at
        if limit - at < HEADER_BYTES:
            return MORE, at
        fault = check_header(buffer, at, base + at, state[t.STATE_PREVIOUS])
        if fault != DONE:
            return fault, at
        end = at + entry_bytes(buffer, at)
        if end > limit:
            return MORE, at
        entry_type = np.int64(buffer[np.uint64(at + je_log.TYPE_AT)])
        if verify and not is_sound(buffer, at, end, entry_type):
            return CHECKSUM_WRONG, at
        item_at = end - fixed(buffer, at + je_log.ITEM_SIZE_AT, 4)
        fill_header(buffer, at, base + at, item_at, end, headers, state[t.STATE_HEADERS])
        if parse:
            fault = parse_item(
                buffer, item_at, end, entry_type, state, lns, nodes, ends, rare, keys, no_slots, prefix
            )
            if fault != DONE:
                return fault, at
        state[t.STATE_HEADERS] += 1
        state[t.STATE_PREVIOUS] = base + at
        at = end
    return DONE, at
