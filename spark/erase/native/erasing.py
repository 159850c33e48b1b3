"""Planned entries in a window of their file: compared, erased, and looked at again.

A window is a buffer whose first byte stands at `base` of the file. Entries may begin before it and end behind
it: of each, what lies in the window is worked on, header bytes one by one.
"""

from typing import Final

import numpy as np

from spark.erase.native.compiling import compiled
from spark.erase.native.planned import CHECKSUM, FLAGS, HEADER_BYTES, ITEM_BYTES, OFFSET, PREVIOUS, TYPE, VLSN
from spark.erase.native.reading import is_zero
from spark.erase.native.types import Buffer, Int, Table
from spark.formats.je import log as je_log

ERASED: Final = int(je_log.EntryType.ERASED)
NOTHING: Final = -1


@compiled
def header_byte(rows: Table, row: Int, index: Int) -> Int:
    """Return one byte of an entry's header as it was planned."""
    if index == je_log.TYPE_AT:
        return np.int64(rows[row, TYPE])
    column, first = VLSN, je_log.VLSN_AT
    if index < je_log.TYPE_AT:
        column, first = CHECKSUM, je_log.CHECKSUM_AT
    elif index == je_log.FLAGS_AT:
        column, first = FLAGS, je_log.FLAGS_AT
    elif index < je_log.ITEM_SIZE_AT:
        column, first = PREVIOUS, je_log.PREVIOUS_AT
    elif index < je_log.VLSN_AT:
        column, first = ITEM_BYTES, je_log.ITEM_SIZE_AT
    return np.int64((rows[row, column] >> (8 * (index - first))) & 0xFF)


@compiled
def has_header(buffer: Buffer, base: Int, limit: Int, rows: Table, row: Int, must_be_erased: bool) -> bool:
    """Compare what lies in the window of an entry's header; its type may be the planned one or 43."""
    offset = rows[row, OFFSET]
    for index in range(max(0, base - offset), min(rows[row, HEADER_BYTES], limit - offset)):
        found = buffer[offset + index - base]
        if index == je_log.TYPE_AT:
            if found != ERASED and (must_be_erased or found != rows[row, TYPE]):
                return False
        elif found != header_byte(rows, row, index):
            return False
    return True


@compiled
def compare(buffer: Buffer, base: Int, filled: Int, rows: Table, first: Int) -> Int:
    """Return the first row from `first` on whose header is another than planned, or -1."""
    limit = base + filled
    for row in range(first, rows.shape[0]):
        if rows[row, OFFSET] >= limit:
            break
        if not has_header(buffer, base, limit, rows, row, False):
            return row
    return NOTHING


@compiled
def mark_types(buffer: Buffer, base: Int, filled: Int, rows: Table, first: Int) -> None:
    """Set the types of all entries in the window to 43."""
    limit = base + filled
    for row in range(first, rows.shape[0]):
        at = rows[row, OFFSET] + je_log.TYPE_AT
        if at >= limit:
            break
        if at >= base:
            buffer[at - base] = ERASED


@compiled
def zero_items(buffer: Buffer, base: Int, filled: Int, rows: Table, first: Int) -> Int:
    """Set the items of all entries in the window to zero; return the first row that ends behind it."""
    limit = base + filled
    for row in range(first, rows.shape[0]):
        item_at = rows[row, OFFSET] + rows[row, HEADER_BYTES]
        end = item_at + rows[row, ITEM_BYTES]
        begin = max(item_at, base)
        until = min(end, limit)
        if begin < until:
            buffer[begin - base : until - base] = 0
        if end > limit:
            return row
    return np.int64(rows.shape[0])


@compiled
def find_unerased(buffer: Buffer, base: Int, filled: Int, rows: Table, first: Int) -> tuple[Int, Int]:
    """Look for an entry that is not erased: another header or type, or an item with a byte that is not zero.

    Returns the first row that ends behind the window, and the row of such an entry, or -1.
    """
    limit = base + filled
    for row in range(first, rows.shape[0]):
        if rows[row, OFFSET] >= limit:
            return row, NOTHING
        if not has_header(buffer, base, limit, rows, row, True):
            return row, row
        item_at = rows[row, OFFSET] + rows[row, HEADER_BYTES]
        end = item_at + rows[row, ITEM_BYTES]
        if not is_zero(buffer, max(item_at, base) - base, min(end, limit) - base):
            return row, row
        if end > limit:
            return row, NOTHING
    return rows.shape[0], NOTHING
