"""The record of a control file: who may not be written to, and by whose epoch. Bytes and edits, no files.

    0       stop counter, u64, the only field that is written in place
    4096    slot 0
    69632   slot 1
    slot    magic 8, payload length u32, CRC-32 of length and payload u32, payload
    payload generation, epoch, stop, device and inode of the directory, inode of the file: u64 each;
            number of ranges u16; of each: length and text of kind, length and text of id (u8 and UTF-8),
            first and last file u32, last 0xffffffff for "and all later ones"

Integers are little-endian. A slot is 64 KiB and not 4: a thousand ranges with ids of 30 characters take
55 KB, and the CRC covers all of it, so a slot may tear anywhere.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from spark.targets.files.control_errors import ControlFileFull

SLOT_BYTES: Final = 64 * 1024
SLOT_OFFSETS: Final = (4096, 4096 + SLOT_BYTES)
FILE_BYTES: Final = 4096 + 2 * SLOT_BYTES
RANGES_MAX: Final = 1_000
ID_BYTES_MAX: Final = 40
KIND_BYTES_MAX: Final = 15
FILE_NUMBER_MAX: Final = 0x7FFFFFFF
COUNTER_MAX: Final = 2**62

COUNTER: Final = struct.Struct("<Q")
_MAGIC: Final = b"LETHECT1"
_HEADER: Final = struct.Struct("<8sII")
_LENGTH: Final = struct.Struct("<I")
_FIXED: Final = struct.Struct("<QQQQQQH")
_FILES: Final = struct.Struct("<II")
_OPEN_END: Final = 0xFFFFFFFF

_RANGE_BYTES_MAX: Final = 2 + KIND_BYTES_MAX + ID_BYTES_MAX + _FILES.size
assert _HEADER.size + _FIXED.size + RANGES_MAX * _RANGE_BYTES_MAX <= SLOT_BYTES


@dataclass(frozen=True, slots=True)
class ProtectedRange:
    """Files that nobody may write to.

    Attributes:
        id: of the protection; an id may come with several ranges.
        last: the last file that is covered; None covers all later ones too.
    """

    id: str
    kind: str
    first: int
    last: int | None

    def covers(self, number: int) -> bool:
        """Tell whether a file is among them."""
        return self.first <= number and (self.last is None or number <= self.last)


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """What is in force.

    Attributes:
        generation: counts the changes.
        epoch: of the one claim whose writers may write.
        stop: the value that the stop counter has while this record is in force.
    """

    generation: int
    epoch: int
    stop: int
    directory_device: int
    directory_inode: int
    own_inode: int
    ranges: tuple[ProtectedRange, ...] = ()

    def covering(self, number: int) -> tuple[ProtectedRange, ...]:
        """The ranges that forbid to write to a file."""
        return tuple(held for held in self.ranges if held.covers(number))

    def protecting(self, *added: ProtectedRange) -> "ControlRecord":
        """The record with more ranges, each held once."""
        return replace(self, ranges=tuple(dict.fromkeys((*self.ranges, *added))))

    def claimed(self, epoch: int) -> "ControlRecord":
        """The record with an epoch that is not lower."""
        return replace(self, epoch=max(self.epoch, epoch))


def encode(record: ControlRecord) -> bytes:
    """Make the bytes of a slot.

    Raises: ControlFileFull: there are more than 1,000 ranges.
    """
    if len(record.ranges) > RANGES_MAX:
        raise ControlFileFull(f"{len(record.ranges)} protected ranges; a control file holds {RANGES_MAX}")
    numbers = (
        record.generation,
        record.epoch,
        record.stop,
        record.directory_device,
        record.directory_inode,
        record.own_inode,
    )
    assert max(numbers[:3]) <= COUNTER_MAX, "no counter comes as far as this by counting"
    payload = _FIXED.pack(*numbers, len(record.ranges)) + b"".join(_range_bytes(record.ranges))
    length = _LENGTH.pack(len(payload))
    return _HEADER.pack(_MAGIC, len(payload), zlib.crc32(length + payload)) + payload


def decode(slot: bytes) -> ControlRecord | None:
    """Read a slot; None unless every byte of it is what was once written."""
    if len(slot) < _HEADER.size:
        return None
    magic, size, crc = _HEADER.unpack_from(slot)
    payload = slot[_HEADER.size : _HEADER.size + size]
    if magic != _MAGIC or len(payload) != size or size < _FIXED.size:
        return None
    if zlib.crc32(_LENGTH.pack(size) + payload) != crc:
        return None
    generation, epoch, stop, device, directory, own, count = _FIXED.unpack_from(payload)
    ranges = _ranges(payload, count)
    if ranges is None or max(generation, epoch, stop) > COUNTER_MAX:
        return None
    return ControlRecord(generation, epoch, stop, device, directory, own, ranges)


def _range_bytes(ranges: Iterable[ProtectedRange]) -> Iterable[bytes]:
    for held in ranges:
        kind, name = held.kind.encode(), held.id.encode()
        assert 0 < len(kind) <= KIND_BYTES_MAX, held
        assert 0 < len(name) <= ID_BYTES_MAX, held
        assert 0 <= held.first <= FILE_NUMBER_MAX, held
        assert held.last is None or held.first <= held.last <= FILE_NUMBER_MAX, held
        yield bytes([len(kind)]) + kind + bytes([len(name)]) + name
        yield _FILES.pack(held.first, _OPEN_END if held.last is None else held.last)


def _ranges(payload: bytes, count: int) -> tuple[ProtectedRange, ...] | None:
    """Read so many ranges, which must end where the payload ends; the CRC has vouched for the bytes."""
    at, found = _FIXED.size, []
    try:
        for _ in range(min(count, RANGES_MAX)):
            texts = []
            for _ in range(2):
                size = payload[at]
                texts.append(payload[at + 1 : at + 1 + size].decode())
                at += 1 + size
            first, last = _FILES.unpack_from(payload, at)
            at += _FILES.size
            found.append(ProtectedRange(texts[1], texts[0], first, None if last == _OPEN_END else last))
    except (IndexError, UnicodeDecodeError, struct.error):
        return None
    return tuple(found) if at == len(payload) and len(found) == count else None
