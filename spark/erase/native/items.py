"""Items in a buffer: LNs, nodes with their slots, ends of transactions. Each must be used up exactly."""

from typing import Final

import numpy as np

from spark.erase.native import types as t
from spark.erase.native.compiling import compiled, inlined
from spark.erase.native.reading import (
    INT_BYTES,
    LONG_BYTES,
    byte_array,
    fixed,
    hash_key,
    packed,
    skip_packed,
)
from spark.erase.native.types import Buffer, Int, Table
from spark.formats.je import log as je_log
from spark.formats.je.items import (
    LN_ABORT_CREATION_TIME,
    LN_ABORT_DATA,
    LN_ABORT_EXPIRATION,
    LN_ABORT_KEY,
    LN_ABORT_LSN,
    LN_ABORT_MODIFICATION_TIME,
    LN_ABORT_VLSN,
    LN_EXPIRATION,
    LN_INSERT_CREATION_TIME,
    LN_PRIOR_FILE,
    LN_PRIOR_SIZE,
    NODE_BLOOM_FILTER,
    NODE_KEY_PREFIX,
    NODE_LOGGED_SIZES,
    NODE_VLSN_CACHE,
    SLOT_EMBEDDED,
    SLOT_NO_DATA,
    TRANSIENT_FILE,
)

BIN: Final = int(je_log.EntryType.BIN)
BIN_DELTA: Final = int(je_log.EntryType.BIN_DELTA)
IN: Final = int(je_log.EntryType.IN)
UPD_WITH_IMAGE: Final = int(je_log.EntryType.UPD_LN_TX_WITH_BEFORE_IMAGE)
DEL_WITH_IMAGE: Final = int(je_log.EntryType.DEL_LN_TX_WITH_BEFORE_IMAGE)


def _table(types: frozenset[je_log.EntryType]) -> Buffer:
    return np.array([number in types for number in range(256)], dtype=np.uint8)


IS_TRANSACTIONAL: Final = _table(je_log.TRANSACTIONAL_TYPES)
HAS_CREATION_TIME: Final = _table(je_log.HAS_CREATION_TIME_TYPES)


@inlined
def parse_ln(
    buffer: Buffer,
    start: Int,
    end: Int,
    entry_type: Int,
    rows: Table,
    number: Int,
    keys: Buffer,
    keys_at: Int,
) -> Int:
    """Read an LN that appends nothing to its value; copy its key, and return the position behind it."""
    if end - start < 3:
        return -1
    flags = np.int64(buffer[np.uint64(start)])
    flags2 = np.int64(buffer[np.uint64(start + 1)])
    flags3 = np.int64(buffer[np.uint64(start + 2)])
    rows[number, t.LN_FLAGS] = flags | (flags2 << 8) | (flags3 << 16)
    rows[number, t.LN_DB], at = packed(buffer, start + 3, end, LONG_BYTES)
    rows[number, t.LN_EXPIRATION] = 0
    if flags & LN_EXPIRATION:
        rows[number, t.LN_EXPIRATION], at = packed(buffer, at, end, INT_BYTES)
    at = skip_packed(buffer, at, end, LONG_BYTES)
    if HAS_CREATION_TIME[entry_type] or flags3 & LN_INSERT_CREATION_TIME:
        at = skip_packed(buffer, at, end, LONG_BYTES)
    length, key_at, at = byte_array(buffer, at, end)
    if at < 0 or length < 0:
        return -1
    rows[number, t.LN_KEY_BYTES] = length
    # Assigning a slice would bring in code for its error message, and four seconds of compiling.
    for index in range(length):
        keys[np.uint64(keys_at + index)] = buffer[np.uint64(key_at + index)]
    rows[number, t.LN_HASH_1], rows[number, t.LN_HASH_2] = hash_key(
        buffer, key_at, length, rows[number, t.LN_DB]
    )
    rows[number, t.LN_VALUE_BYTES], _, at = byte_array(buffer, at, end)
    return parse_ln_rest(buffer, at, end, entry_type, flags, flags2, rows, number)


@inlined
def parse_ln_rest(
    buffer: Buffer, at: Int, end: Int, entry_type: Int, flags: Int, flags2: Int, rows: Table, number: Int
) -> Int:
    """Read what follows the value of an LN: its transaction, what an abort would need, the version before."""
    rows[number, t.LN_TXN] = 0
    rows[number, t.LN_TXN_PREVIOUS] = -1
    rows[number, t.LN_ABORT_LSN] = -1
    if IS_TRANSACTIONAL[entry_type]:
        if flags & LN_ABORT_LSN:
            rows[number, t.LN_ABORT_LSN], at = packed(buffer, at, end, LONG_BYTES)
            if (rows[number, t.LN_ABORT_LSN] >> 32) & 0xFFFFFFFF == TRANSIENT_FILE:
                rows[number, t.LN_ABORT_LSN] = -1
        rows[number, t.LN_TXN], at = packed(buffer, at, end, LONG_BYTES)
        rows[number, t.LN_TXN_PREVIOUS], at = packed(buffer, at, end, LONG_BYTES)
    rows[number, t.LN_ABORT_DATA_BYTES], at = parse_version_before(buffer, at, end, flags, flags2)
    if entry_type in (UPD_WITH_IMAGE, DEL_WITH_IMAGE):
        at = skip_packed(buffer, at, end, INT_BYTES)
    return at


@inlined
def parse_version_before(buffer: Buffer, at: Int, end: Int, flags: Int, flags2: Int) -> tuple[Int, Int]:
    """Read what is kept of the version before; return the bytes of its value and the position behind."""
    data_bytes: Int = -1
    if flags & LN_ABORT_KEY:
        _, _, at = byte_array(buffer, at, end)
    if flags & LN_ABORT_DATA:
        data_bytes, _, at = byte_array(buffer, at, end)
    if flags & LN_ABORT_VLSN:
        at = skip_packed(buffer, at, end, LONG_BYTES)
    if flags & LN_ABORT_EXPIRATION:
        at = skip_packed(buffer, at, end, INT_BYTES)
    if flags2 & LN_ABORT_MODIFICATION_TIME:
        at = skip_packed(buffer, at, end, LONG_BYTES)
    if flags2 & LN_ABORT_CREATION_TIME:
        at = skip_packed(buffer, at, end, LONG_BYTES)
    if flags2 & LN_PRIOR_SIZE:
        at = skip_packed(buffer, at, end, INT_BYTES)
    if flags2 & LN_PRIOR_FILE:
        at = skip_packed(buffer, at, end, LONG_BYTES)
    return data_bytes, at


@inlined
def parse_end(buffer: Buffer, start: Int, end: Int, rows: Table, number: Int) -> Int:
    """Read a commit or an abort."""
    at = skip_packed(buffer, start, end, LONG_BYTES)
    rows[number, t.END_TXN], at = packed(buffer, at, end, LONG_BYTES)
    at = skip_packed(buffer, at, end, LONG_BYTES)
    at = skip_packed(buffer, at, end, INT_BYTES)
    at = skip_packed(buffer, at, end, LONG_BYTES)
    return skip_packed(buffer, at, end, LONG_BYTES)


@compiled
def parse_node(
    buffer: Buffer,
    start: Int,
    end: Int,
    entry_type: Int,
    rows: Table,
    number: Int,
    slots: Table,
    prefix: Table,
) -> Int:
    """Read a node; slots are kept as far as `slots` has rows; `prefix` gets the prefix's place and length."""
    rows[number, t.NODE_DB], at = packed(buffer, start, end, LONG_BYTES)
    rows[number, t.NODE_LAST_FULL], at = packed(buffer, at, end, LONG_BYTES)
    at = skip_packed(buffer, at, end, INT_BYTES)
    at = skip_packed(buffer, at, end, LONG_BYTES)
    at = skip_packed(buffer, at, end, INT_BYTES)
    has_expiration = False
    if entry_type != IN:
        base, at = packed(buffer, at, end, INT_BYTES)
        has_expiration = base != -1
        at = skip_packed(buffer, at, end, LONG_BYTES)
        at = skip_packed(buffer, at, end, LONG_BYTES)
    rows[number, t.NODE_ID], at = packed(buffer, at, end, LONG_BYTES)
    _, _, at = byte_array(buffer, at, end)
    if at < 0 or at >= end:
        return -1
    flags = np.int64(buffer[np.uint64(at)])
    at += 1
    prefix[0] = prefix[1] = 0
    if flags & NODE_KEY_PREFIX:
        length, prefix[0], at = byte_array(buffer, at, end)
        prefix[1] = length if length > 0 else 0
    at = skip_packed(buffer, at, end, INT_BYTES)
    count, at = packed(buffer, at, end, INT_BYTES)
    rows[number, t.NODE_LEVEL], at = packed(buffer, at, end, INT_BYTES)
    at = skip_packed(buffer, at, end, INT_BYTES)
    if at < 0 or count < 0:
        return -1
    rows[number, t.NODE_FLAGS] = flags
    rows[number, t.NODE_SLOTS] = count
    for index in range(count):
        at = parse_slot(buffer, at, end, flags, has_expiration, slots, index)
        if at < 0:
            return -1
    return skip_delta_rest(buffer, at, end, flags) if entry_type == BIN_DELTA else at


@compiled
def skip_delta_rest(buffer: Buffer, at: Int, end: Int, flags: Int) -> Int:
    """Step over what follows the slots of a BIN-delta."""
    at = skip_packed(buffer, at, end, INT_BYTES)
    at = skip_packed(buffer, at, end, INT_BYTES)
    if flags & NODE_BLOOM_FILTER:
        _, _, at = byte_array(buffer, at, end)
    return at


@compiled
def parse_slot(
    buffer: Buffer, start: Int, end: Int, flags: Int, has_expiration: bool, slots: Table, index: Int
) -> Int:
    """Read one slot of a node, and keep it if `slots` has a row for it."""
    length, key_at, at = byte_array(buffer, start, end)
    if at < 0 or end - at < 9:
        return -1
    lsn = fixed(buffer, at, 8)
    state = np.int64(buffer[np.uint64(at + 8)])
    at += 9
    embedded = state & SLOT_EMBEDDED
    if flags & NODE_LOGGED_SIZES and not embedded:
        at = skip_packed(buffer, at, end, INT_BYTES)
    if flags & NODE_VLSN_CACHE and embedded:
        at = skip_packed(buffer, at, end, LONG_BYTES)
    if has_expiration:
        at = skip_packed(buffer, at, end, INT_BYTES)
    if embedded:
        at = skip_packed(buffer, at, end, LONG_BYTES)
        at = skip_packed(buffer, at, end, LONG_BYTES)
        if not state & SLOT_NO_DATA:
            length = embedded_key_bytes(buffer, key_at, length)
            if length < 0:
                return -1
    if index < slots.shape[0]:
        slots[index, t.SLOT_LSN] = lsn
        slots[index, t.SLOT_STATE] = state
        slots[index, t.SLOT_KEY_AT] = key_at
        slots[index, t.SLOT_KEY_BYTES] = length if length > 0 else 0
    return at


@compiled
def embedded_key_bytes(buffer: Buffer, start: Int, length: Int) -> Int:
    """Return how many bytes of an embedded slot are its key; value and reversed packed length follow."""
    if length < 1:
        return -1
    first = np.int64(buffer[start + length - 1])
    if first > 127:
        first -= 256
    if first < 0:
        return -1
    count = first - 119 if first > 119 else np.int64(0)
    if count > INT_BYTES or count + 1 > length:
        return -1
    value = first
    if count > 0:
        value = np.int64(119)
        for index in range(count):
            value += np.int64(buffer[start + length - 2 - index]) << np.int64(8 * index)
    return value if value <= length - 1 - count else -1
