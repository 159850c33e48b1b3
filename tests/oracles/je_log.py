"""A reader of JE's log in plain Python: slow, simple, written from the description of the format alone.

It shares no line and no number with the compiled reader that it judges.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


class Wrong(Exception):
    """The bytes are not what the format says."""


@dataclass
class Item:
    data: bytes
    at: int = 0

    def raw(self, count: int) -> bytes:
        at, end = self.at, self.at + count
        if count < 0 or end > len(self.data):
            raise Wrong(f"{count} bytes at {at} of {len(self.data)}")
        self.at = end
        return self.data[at:end]

    def u8(self) -> int:
        at = self.at
        if at >= len(self.data):
            raise Wrong(f"1 byte at {at} of {len(self.data)}")
        self.at = at + 1
        return self.data[at]

    def integer(self, widest: int) -> int:
        first = self.u8()
        if first <= 119:
            return first
        if first >= 256 - 119:
            return first - 256
        is_positive = first < 128
        width = first - 119 if is_positive else 256 - 119 - first
        if width > widest:
            raise Wrong("packed integer too wide")
        value = int.from_bytes(self.raw(width), "little")
        value = value + 119 if is_positive else -value - 119
        limit = 1 << (31 if widest == 4 else 63)
        if not -limit <= value < limit or (widest == 8 and value == -limit):
            raise Wrong("packed integer out of range")
        return value

    def i(self) -> int:
        return self.integer(4)

    def l(self) -> int:  # noqa: E743 -- a long
        return self.integer(8)

    def array(self) -> bytes | None:
        length = self.i()
        if length == -1:
            return None
        return self.raw(length)

    def end(self) -> None:
        if self.at != len(self.data):
            raise Wrong(f"{len(self.data) - self.at} bytes left")


def read_ln(data: bytes, kind: int) -> dict[str, Any]:
    """One LN of a user type, 40, 41 or 42."""
    item = Item(data)
    one, two, three = item.u8(), item.u8(), item.u8()
    db = item.l()
    expiration = item.i() if one & 0x80 else 0
    item.l()
    if kind in {31, 32, 35, 36, 44, 45} or three & 1:
        item.l()
    key = item.array()
    if key is None:
        raise Wrong("no key")
    value = item.array()
    abort_lsn = previous = -1
    txn = 0
    if kind in {3, 5, 31, 33, 35, 42, 44, 45}:
        if one & 0x20:
            abort_lsn = item.l()
            if (abort_lsn >> 32) % 2**32 == 2**32 - 1:
                abort_lsn = -1
        txn, previous = item.l(), item.l()
    abort_key = item.array() if one & 4 else None
    abort_data = item.array() if one & 8 else None
    for present, wide in ((one & 0x10, 8), (one & 0x40, 4), (two & 0x10, 8), (two & 0x80, 8)):
        if present:
            item.integer(wide)
    for present, wide in ((two & 1, 4), (two & 2, 8), (kind in {44, 45}, 4)):
        if present:
            item.integer(wide)
    item.end()
    return {
        "db": db, "txn": txn, "txn_previous": previous, "abort_lsn": abort_lsn, "expiration": expiration,
        "value_bytes": -1 if value is None else len(value), "flags": one + 256 * two + 65536 * three,
        "abort_data_bytes": -1 if abort_data is None else len(abort_data), "key": key, "value": value,
        "abort_key": abort_key, "abort_data": abort_data,
    }  # fmt: skip


def read_node(data: bytes, kind: int) -> dict[str, Any]:
    """One IN (12), BIN (13) or BIN-delta (37) with its slots."""
    item = Item(data)
    db, last_full = item.l(), item.l()
    item.i()
    item.l()
    item.i()
    base = -1
    if kind != 12:
        base = item.i()
        item.l()
        item.l()
    node = item.l()
    item.array()
    flags = item.u8()
    prefix = (item.array() or b"") if flags & 2 else b""
    item.i()
    count, level, _ = item.i(), item.i(), item.i()
    if count < 0:
        raise Wrong("slots")
    slots = []
    for _ in range(count):
        suffix = item.array() or b""
        (lsn,) = struct.unpack("<q", item.raw(8))
        state = item.u8()
        embedded = bool(state & 0x10)
        if flags & 4 and not embedded:
            item.i()
        if flags & 16 and embedded:
            item.l()
        if base != -1:
            item.i()
        value = None
        if embedded:
            item.l()
            item.l()
            value = b""
            if not state & 0x20:
                suffix, value = split_embedded(suffix)
        slots.append((prefix + suffix, lsn, state, value))
    if kind == 37:
        item.i()
        item.i()
        if flags & 8:
            item.array()
    item.end()
    return {"db": db, "node": node, "last_full": last_full, "level": level, "slots": slots, "flags": flags}


def split_embedded(data: bytes) -> tuple[bytes, bytes]:
    """Key and value of an embedded slot: the key's length is packed backwards at the end."""
    if not data:
        raise Wrong("empty embedded slot")
    (last,) = struct.unpack("b", data[-1:])
    if last < 0:
        raise Wrong("negative length")
    width = max(last - 119, 0)
    if width > 4 or width + 1 > len(data):
        raise Wrong("length of an embedded key")
    length = last
    if width:
        length = 119 + int.from_bytes(data[-2 : -2 - width : -1], "little")
    if length > len(data) - 1 - width:
        raise Wrong("embedded key longer than its slot")
    return data[:length], data[length : len(data) - 1 - width]


def read_end(data: bytes) -> dict[str, Any]:
    """One commit or abort."""
    item = Item(data)
    item.l()
    txn = item.l()
    item.l()
    item.i()
    item.l()
    item.l()
    item.end()
    return {"txn": txn}


def walk(data: bytes) -> Iterator[dict[str, Any]]:
    """Every entry of a file's bytes in order, with its item where that is an LN, a node or an end."""
    at = previous = 0
    while at < len(data):
        if len(data) - at < 14:
            raise Wrong(f"torn at {at}")
        checksum, kind, flags, before, size = struct.unpack_from("<IBBIi", data, at)
        header = 22 if flags & 0x28 and kind != 25 else 14
        if size < 0 or at + header + size > len(data):
            raise Wrong(f"torn at {at}")
        if before != previous:
            raise Wrong(f"chain at {at}")
        vlsn = struct.unpack_from("<q", data, at + 14)[0] if header == 22 else 0
        covered = bytearray(data[at + 4 : at + header + size])
        covered[1] &= 0xEF
        if kind != 43 and zlib.adler32(covered) != checksum:
            raise Wrong(f"checksum at {at}")
        item = data[at + header : at + header + size]
        entry: dict[str, Any] = {
            "offset": at, "type": kind, "flags": flags, "previous": before, "item_bytes": size,
            "checksum": checksum, "vlsn": vlsn, "header": header,
            "all_zero": int(kind == 43 and not any(item)),
        }  # fmt: skip
        if kind in {31, 32, 33, 34, 35, 36, 40, 41, 42, 44, 45}:
            entry["ln"] = read_ln(item, kind)
        elif kind in {12, 13, 37}:
            entry["node"] = read_node(item, kind)
        elif kind in {17, 18}:
            entry["end"] = read_end(item)
        yield entry
        previous = at
        at += header + size
