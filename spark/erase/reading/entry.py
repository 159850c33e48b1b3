"""One entry of a log, read where it lies and checked as far as it can be alone.

That an entry begins at an offset is not written down anywhere: the offset is believed if the entry before it
ends there, and the entry itself has a known type, ends within the file, and has its checksum (an erased one
has none: then the entry behind it must name it).
"""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark.erase.errors import NotAnEnvironment
from spark.erase.reading.directory import LogFile, file_names, opened, read_file_header
from spark.formats.je import log as je_log
from spark.formats.je.log import EntryType

READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """What an entry is, and whether nothing but zeros is left of its item."""

    type: EntryType
    item_bytes: int
    all_zero: bool


@dataclass(frozen=True, slots=True)
class _Header:
    checksum: int
    type: EntryType
    flags: int
    previous: int
    item_bytes: int
    header_bytes: int

    @property
    def size(self) -> int:
        return self.header_bytes + self.item_bytes


def read_entry(directory: Path, name: str, offset: int) -> Entry | None:
    """Read the entry of a file that begins at an offset; None where none does, or there is no such file.

    Raises: LogRefused.
    """
    if name not in file_names(directory):
        return None
    try:
        with opened(directory, [name]) as [file]:
            read_file_header(file)
            return _read(file, offset)
    except NotAnEnvironment:
        return None


def _read(file: LogFile, offset: int) -> Entry | None:
    header = _header(file, offset)
    if header is None or not _is_linked(file, offset, header):
        return None
    checksum, all_zero = _walk(file, offset, header)
    if header.type is EntryType.ERASED:
        if not _is_named_by_next(file, offset, header):
            return None
    elif checksum != header.checksum:
        return None
    return Entry(header.type, header.item_bytes, all_zero)


def _header(file: LogFile, offset: int) -> _Header | None:
    raw = bytearray(je_log.HEADER_BYTES)
    if file.read_into(memoryview(raw), offset) < len(raw) or raw[je_log.TYPE_AT] not in set(EntryType):
        return None
    flags = raw[je_log.FLAGS_AT]
    size = int.from_bytes(raw[je_log.ITEM_SIZE_AT : je_log.ITEM_SIZE_AT + 4], "little", signed=True)
    header_bytes = je_log.HEADER_BYTES
    if flags & je_log.FLAGS_WITH_VLSN:
        header_bytes = je_log.HEADER_BYTES_WITH_VLSN
    if size < 0 or offset + header_bytes + size > file.identity.size:
        return None
    return _Header(
        checksum=int.from_bytes(raw[:4], "little"),
        type=EntryType(raw[je_log.TYPE_AT]),
        flags=flags,
        previous=int.from_bytes(raw[je_log.PREVIOUS_AT : je_log.PREVIOUS_AT + 4], "little"),
        item_bytes=size,
        header_bytes=header_bytes,
    )


def _is_linked(file: LogFile, offset: int, header: _Header) -> bool:
    """Whether the entry that it names as the one before ends where it begins."""
    if offset == 0:
        return header.type is EntryType.FILE_HEADER
    if header.previous >= offset:
        return False
    before = _header(file, header.previous)
    return before is not None and header.previous + before.size == offset


def _is_named_by_next(file: LogFile, offset: int, header: _Header) -> bool:
    end = offset + header.size
    following = _header(file, end)
    return end == file.identity.size or (following is not None and following.previous == offset)


def _walk(file: LogFile, offset: int, header: _Header) -> tuple[int, bool]:
    """The checksum of an entry, and whether its item is all zero, in pieces of bounded size."""
    at, end, item_at = offset + je_log.TYPE_AT, offset + header.size, offset + header.header_bytes
    checksum, all_zero = 1, True
    while at < end:
        piece = bytearray(file.read(at, min(READ_BYTES, end - at)))
        item = piece[max(0, item_at - at) :]
        all_zero = all_zero and not any(item)
        if at == offset + je_log.TYPE_AT:  # it was written before the entry became invisible
            piece[je_log.FLAGS_AT - je_log.TYPE_AT] &= ~je_log.FLAG_INVISIBLE & 0xFF
        checksum = zlib.adler32(piece, checksum)
        at += len(piece)
    return checksum, all_zero
