"""Entries of a JE log made by hand, byte by byte, for environments that no JE would leave behind so neatly.

Written from facts je-log-format; it shares nothing with the writers of spark/.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

NONE = -1
TIME_MS = 1_795_163_064_856
WITH_TXN = frozenset({3, 5, 31, 33, 35, 42, 44, 45})
WITH_CREATION = frozenset({31, 32, 35, 36, 44, 45})
REPLICATED = frozenset({17, 18, 31, 33, 35, 44, 45})  # of a replicated node, as far as written here
BIN_LEVEL = 0x10001


def packed(value: int) -> bytes:
    if -119 <= value <= 119:
        return struct.pack("b", value)
    rest = value - 119 if value > 0 else -value - 119
    raw = rest.to_bytes(max((rest.bit_length() + 7) // 8, 1), "little")
    return struct.pack("b", 119 + len(raw) if value > 0 else -119 - len(raw)) + raw


def array(data: bytes | None) -> bytes:
    return packed(-1) if data is None else packed(len(data)) + data


def composite(key: bytes, data: bytes) -> bytes:
    """Key and data in one, the key's length packed backwards at the end."""
    length = packed(len(key))
    return key + data + length[:0:-1] + length[:1]


@dataclass(frozen=True)
class NodeSlot:
    key: bytes
    lsn: int
    state: int = 0
    value: bytes | None = None


@dataclass(frozen=True)
class Abort:
    """What an abort would go back to: the version before the transaction."""

    lsn: int = NONE
    known_deleted: bool = False
    data: bytes | None = None


def ln_item(
    kind: int,
    db: int,
    key: bytes,
    value: bytes | None,
    *,
    txn: int = 0,
    abort: Abort | None = None,
    embedded: bool = False,
    expiration: int = 0,
    tail: bytes = b"",
) -> bytes:
    abort = abort or Abort()
    flags = 0x01 * abort.known_deleted | 0x02 * embedded | 0x08 * (abort.data is not None)
    flags |= 0x20 * (abort.lsn != NONE) | 0x80 * (expiration != 0)
    item = bytes([flags, 0, 0]) + packed(db) + (packed(expiration) if expiration else b"") + packed(TIME_MS)
    item += packed(TIME_MS) if kind in WITH_CREATION else b""
    item += array(key) + array(value) + tail
    if kind in WITH_TXN:
        item += packed(abort.lsn) if abort.lsn != NONE else b""
        item += packed(txn) + packed(NONE)
    return item + (array(abort.data) if abort.data is not None else b"")


def database_item(db: int, name: str, root: int, flags: int, comparator: bytes = b"") -> bytes:
    item = packed(db) + (b"" if db in {0, 1} else array(name.encode()))
    item += b"\0" if root == NONE else b"\1" + array(b"") + packed(root) + b"\0"
    return item + bytes([flags]) + array(comparator) + array(b"") + packed(128) + bytes([26]) + packed(0)


def node_item(
    kind: int, db: int, node: int, slots: Iterable[NodeSlot], *, last_full: int = NONE, is_root: bool = False
) -> bytes:
    found = list(slots)
    item = packed(db) + packed(last_full) + packed(0) + packed(NONE) + packed(0)
    item += b"" if kind == 12 else packed(-1) + packed(-1) + packed(-1)
    item += packed(node) + array(found[0].key if found else b"") + bytes([1 if is_root else 0]) + packed(-1)
    item += packed(len(found)) + packed(BIN_LEVEL + (kind == 12)) + packed(128)
    for slot in found:
        embedded = bool(slot.state & 0x10)
        key = slot.key if not embedded or slot.state & 0x20 else composite(slot.key, slot.value or b"")
        item += array(key) + struct.pack("<q", slot.lsn) + bytes([slot.state])
        item += packed(0) + packed(0) if embedded else b""
    return item + (packed(len(found)) + packed(128) if kind == 37 else b"")


class LogBytes:
    """Files of a log while they are written."""

    def __init__(self, first: int = 0, *, version: int = 26) -> None:
        self.files: dict[int, bytearray] = {}
        self.number, self.last, self.version = first - 1, 0, version
        self.next_vlsn: int | None = None
        self.next_file(first)

    def next_file(self, number: int | None = None) -> None:
        before = self.last
        self.number = self.number + 1 if number is None else number
        self.files[self.number] = bytearray()
        self.last = 0
        self.append(25, struct.pack("<qIqi", TIME_MS + self.number, self.number, before, self.version))

    @property
    def end(self) -> int:
        return (self.number << 32) + len(self.files[self.number])

    def append(self, kind: int, item: bytes, *, flags: int = 0, vlsn: int | None = None) -> int:
        data = self.files[self.number]
        at = len(data)
        if self.next_vlsn is not None and kind in REPLICATED:
            vlsn, self.next_vlsn = self.next_vlsn, self.next_vlsn + 1
        flags |= 0x20 if vlsn is not None else 0
        frame = struct.pack("<BBIi", kind, flags, self.last, len(item))
        frame += struct.pack("<q", vlsn) if vlsn is not None else b""
        covered = bytearray(frame + item)
        covered[1] &= 0xEF
        data += struct.pack("<I", zlib.adler32(covered)) + frame + item
        self.last = at
        return (self.number << 32) + at

    def end_txn(self, txn: int, *, commit: bool, flags: int = 0) -> int:
        item = packed(NONE) + packed(txn) + packed(TIME_MS) + packed(-1) + packed(0) + packed(0)
        return self.append(17 if commit else 18, item, flags=flags)

    def name(self, db: int, name: str, txn: int, *, remove: bool = False, abort: Abort | None = None) -> int:
        item = ln_item(
            5,
            1,
            name.encode(),
            None if remove else b"",
            txn=txn,
            abort=abort,
            tail=packed(db) + bytes([remove]),
        )
        return self.append(5, item + (b"\x02" if remove else b"\x01\x00\x78\x09\x00\x00\x00"))

    def map(
        self, db: int, name: str, root: int, *, flags: int = 0, remove: bool = False, comparator: bytes = b""
    ) -> int:
        tail = database_item(db, name, root, flags, comparator) + bytes([remove])
        return self.append(4, ln_item(4, 0, str(db).encode(), None if remove else b"", tail=tail))

    def trees(self, mapping: int, naming: int) -> int:
        item = struct.pack("<qq", 100, -256) + database_item(0, "", mapping, 0)
        return self.append(16, item + database_item(1, "", naming, 0) + bytes([0]) + packed(26))

    def checkpoint_start(self, number: int) -> int:
        return self.append(19, packed(TIME_MS) + packed(number) + array(b"hand"))

    def checkpoint_end(self, number: int, *, start: int, root: int, first_active: int) -> int:
        item = array(b"hand") + packed(TIME_MS) + packed(start) + b"\1" + packed(root) + packed(first_active)
        for last in (1000, -10, 100, -256, 1_000_000, -10, 0, 0):
            item += packed(last)
        return self.append(20, item + packed(number) + packed(0))

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for number, data in self.files.items():
            (directory / f"{number:08x}.jdb").write_bytes(data)
