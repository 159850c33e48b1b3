"""Packed integers, byte arrays, checksums and hashes in a buffer.

Indices are unsigned: of a signed one the compiled code would ask each time whether it counts from the end,
which halves its speed. A position of -1 means that something was not readable; every function hands it on, so
that a parser looks once, at its end.
"""

from typing import Final

import numpy as np

from spark.erase.native.compiling import compiled, inlined
from spark.erase.native.types import Buffer, Int

INT_BYTES: Final = 4
LONG_BYTES: Final = 8
INT_MAX: Final = 2**31 - 1

ADLER_BASE: Final = 65521
# As many bytes as keep the weighted sum within 32 bits, so that the loop becomes vector instructions.
ADLER_STRETCH: Final = 4096

# Zeros are looked for in stretches without a way out, which become vector instructions.
ZERO_STRETCH: Final = 512

MIX_1: Final = np.uint64(0x9E3779B97F4A7C15)
MIX_2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
FOLD: Final = np.uint64(29)
SPREAD: Final = np.uint64(32)


@inlined
def packed(buffer: Buffer, position: Int, end: Int, value_bytes_max: Int) -> tuple[Int, Int]:
    """Read a packed integer and return it with the position behind it."""
    if position < 0 or position >= end:
        return 0, -1
    first = np.int64(buffer[np.uint64(position)])
    if first > 127:
        first -= 256
    position += 1
    if -119 <= first <= 119:
        return first, position
    count = first - 119 if first > 0 else -first - 119
    if count > value_bytes_max or position + count > end:
        return 0, -1
    value = np.int64(0)
    for index in range(count):
        value |= np.int64(buffer[np.uint64(position + index)]) << np.int64(8 * index)
    if value < 0 or value > 2**63 - 1 - 119:
        return 0, -1
    value += 119
    if first < 0:
        value = -value
    if value_bytes_max == INT_BYTES and (value > INT_MAX or value < -INT_MAX - 1):
        return 0, -1
    return value, position + count


@inlined
def byte_array(buffer: Buffer, position: Int, end: Int) -> tuple[Int, Int, Int]:
    """Read a byte array: its length (-1: absent), where its bytes begin, and the position behind them."""
    length, position = packed(buffer, position, end, INT_BYTES)
    if position < 0 or length < -1:
        return 0, 0, -1
    if length < 0:
        return -1, position, position
    if position + length > end:
        return 0, 0, -1
    return length, position, position + length


@inlined
def skip_packed(buffer: Buffer, position: Int, end: Int, value_bytes_max: Int) -> Int:
    """Step over a packed integer; only one of full width can be out of range, and is looked at."""
    if position < 0 or position >= end:
        return -1
    first = np.int64(buffer[np.uint64(position)])
    if first > 127:
        first = 256 - first
    behind = position + 1 if first <= 119 else position + first - 118
    if behind - position > value_bytes_max:
        _, behind = packed(buffer, position, end, value_bytes_max)
        return behind
    return behind if behind <= end else -1


@inlined
def fixed(buffer: Buffer, position: Int, count: Int) -> Int:
    """Read an unsigned little-endian integer whose bytes are there; one of eight bytes is signed."""
    value = np.int64(0)
    for index in range(count):
        value |= np.int64(buffer[np.uint64(position + index)]) << np.int64(8 * index)
    return value


@compiled
def adler32(buffer: Buffer, start: Int, end: Int, low: Int, high: Int) -> Int:
    """Carry an Adler-32 on over a range of bytes, from its two sums."""
    position = start
    while position < end:
        count = min(end - position, ADLER_STRETCH)
        total = np.uint32(0)
        weighted = np.uint32(0)
        for index in range(count):
            byte = np.uint32(buffer[np.uint64(position + index)])
            total += byte
            weighted += byte * np.uint32(count - index)
        high = (high + count * low + np.int64(weighted)) % ADLER_BASE
        low = (low + np.int64(total)) % ADLER_BASE
        position += count
    return (high << 16) | low


@compiled
def entry_checksum(buffer: Buffer, start: Int, end: Int, flags: Int) -> Int:
    """Compute the checksum of an entry: it was written before the entry became invisible."""
    low = 1 + np.int64(buffer[np.uint64(start + 4)])
    high = low
    low += flags & 0xEF
    high += low
    return adler32(buffer, start + 6, end, low, high)


@inlined
def hash_key(buffer: Buffer, start: Int, length: Int, db_id: Int) -> tuple[Int, Int]:
    """Hash a database id and a key to 128 bits; a hint only, bytes are compared before it counts."""
    one = (np.uint64(db_id) ^ np.uint64(length)) * MIX_1
    two = (np.uint64(db_id) + MIX_1) * MIX_2
    whole = length & ~7
    for index in range(0, whole, 8):
        word = np.uint64(fixed(buffer, start + index, 8))
        one = (one ^ word) * MIX_1
        one ^= one >> SPREAD
        two = (two + word) * MIX_2
        two ^= two >> FOLD
    word = np.uint64(fixed(buffer, start + whole, length - whole))
    one = (one ^ word) * MIX_1
    one ^= one >> SPREAD
    two = (two + word) * MIX_2
    two ^= two >> FOLD
    return np.int64(one), np.int64(two)


@compiled
def same_bytes(one: Buffer, one_at: Int, two: Buffer, two_at: Int, length: Int) -> bool:
    """Compare two stretches of bytes that are known to be there."""
    for index in range(length):  # noqa: SIM110 -- a loop is what becomes machine code
        if one[np.uint64(one_at + index)] != two[np.uint64(two_at + index)]:
            return False
    return True


@compiled
def is_zero(buffer: Buffer, start: Int, end: Int) -> bool:
    """Tell whether a range of bytes is nothing but zeros."""
    position = start
    while position < end:
        until = min(position + ZERO_STRETCH, end)
        found = np.uint8(0)
        for index in range(position, until):
            found |= buffer[np.uint64(index)]
        if found != 0:
            return False
        position = until
    return True
