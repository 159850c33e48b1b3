"""Packed integers, byte arrays and strings of JE, written: the counterpart of `je_log_packed`.

The modules of this folder make logs for tests, benchmarks and the demo. They are not in the wheel.
"""

import struct
from collections.abc import Sequence

ONE_BYTE_MAX = 119


def pack(value: int) -> bytes:
    """Write an int or a long in as few bytes as it needs."""
    if -ONE_BYTE_MAX <= value <= ONE_BYTE_MAX:
        return bytes((value & 0xFF,))
    rest = abs(value) - ONE_BYTE_MAX
    width = (rest.bit_length() + 7) // 8
    first = ONE_BYTE_MAX + width if value > 0 else -ONE_BYTE_MAX - width
    return bytes((first & 0xFF,)) + rest.to_bytes(width, "little")


def pack_backwards(length: int) -> bytes:
    """Write a length so that it is read from its last byte."""
    return pack(length)[::-1]


def byte_array(data: bytes | None) -> bytes:
    """Write a byte array behind its length; -1 where there is none."""
    return b"\xff" if data is None else pack(len(data)) + data


def text(value: str) -> bytes:
    """Write a string in UTF-8."""
    return byte_array(value.encode())


def fixed_long(value: int) -> bytes:
    """Write a signed integer of eight bytes."""
    return struct.pack("<q", value)


def two_part_key(key: bytes, data: bytes) -> bytes:
    """Write the key of a record in a database with duplicates, or the key and value of an embedded slot."""
    return key + data + pack_backwards(len(key))


def triggers(names: Sequence[bytes]) -> bytes:
    """Write the triggers of a database, which no database of ours has."""
    return pack(len(names)) + b"".join(byte_array(name) for name in names)
