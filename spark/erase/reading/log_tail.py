"""The end of a log since it was last read: has JE discarded records, or been given another log?

Only headers are read. Rules:
- a look says that nothing was discarded only where every entry behind the position was seen, one after the
  other, up to the size that the last file had when the look began;
- whatever is not understood makes the log one that must be read as a whole.
Source: facts je-log-format; eraser-behaviour, 11.
"""

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from spark.erase.errors import LogRefused
from spark.erase.reading.directory import file_names
from spark.formats.je.log import (
    FILE_HEADER_BYTES,
    FLAGS_WITH_VLSN,
    HEADER_BYTES,
    HEADER_BYTES_WITH_VLSN,
    PREVIOUS_FILE_LAST_AT,
    EntryType,
    file_name,
    file_number,
)
from spark.targets.files.log_place import log_path

_HEADER: Final = struct.Struct("<IBBIi")
_LONG: Final = struct.Struct("<q")
READ_BYTES: Final = 1 << 20
KNOWN_TYPES: Final = frozenset(int(each) for each in EntryType)
TELLING_TYPES: Final = frozenset(
    {
        EntryType.EXTINCT_SCAN_LN,
        EntryType.EXTINCT_SCAN_LN_TX,
        EntryType.ROLLBACK_START,
        EntryType.ROLLBACK_END,
    }
)
"""A discard, or an end of a rollback that may undo one: only the whole log tells what holds."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The last entry of a log up to which all was read, and the file that it stands in."""

    number: int
    offset: int
    checksum: int
    device: int
    inode: int


class TailCause(StrEnum):
    """Why the end of a log is not known."""

    UNREAD = "UNREAD"
    """It must be read as a whole."""
    GAP = "GAP"
    """Files that nobody has read are gone: what stood in them nobody can tell."""
    WRITING = "WRITING"
    """JE is in the middle of an entry."""


@dataclass(frozen=True, slots=True)
class TailLook:
    """The end of the log where it is known, else why not."""

    position: LogPosition | None
    cause: TailCause | None = None
    detail: str = ""


class _Stopped(Exception):
    def __init__(self, cause: TailCause, detail: str) -> None:
        super().__init__(detail)
        self.cause, self.detail = cause, detail


def look_at_tail(directory: Path, position: LogPosition, *, bytes_max: int, torn_before_ns: int) -> TailLook:
    """Walk from a position to the end of the log.

    Args:
        bytes_max: more than that is read as a whole, elsewhere.
        torn_before_ns: half an entry in a file that was last written before that time is what a crash left.
    """
    try:
        return TailLook(_walk(directory, position, bytes_max, torn_before_ns))
    except _Stopped as stopped:
        return TailLook(None, stopped.cause, stopped.detail)
    except (LogRefused, OSError) as error:
        return TailLook(None, TailCause.UNREAD, str(error))


def position_at(path: Path, offset: int) -> LogPosition:
    """The position of an entry that was read.

    Raises: OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        checksum = _HEADER.unpack(_read(descriptor, offset, HEADER_BYTES, status.st_size))[0]
    finally:
        os.close(descriptor)
    return LogPosition(file_number(path.name), offset, checksum, status.st_dev, status.st_ino)


def _walk(directory: Path, position: LogPosition, bytes_max: int, torn_before_ns: int) -> LogPosition:
    numbers = _numbers(file_names(directory), position)
    left = bytes_max
    found = position
    for number in numbers:
        path = log_path(directory, number)
        is_last = number == numbers[-1]
        before = None if number == position.number else found.offset
        start = position.offset if number == position.number else 0
        last, walked = _walk_file(
            path,
            start,
            position if number == position.number else None,
            before=before,
            is_last=is_last,
            bytes_max=left,
            torn_before_ns=torn_before_ns,
        )
        left -= walked
        if last is not None:
            found = position_at(path, last)
    return found


def _numbers(names: Sequence[str], position: LogPosition) -> list[int]:
    """The file of the position and all later ones, without a gap."""
    numbers = [file_number(name) for name in names]
    later = [number for number in numbers if number >= position.number]
    if not later:
        raise _Stopped(TailCause.UNREAD, "the log ends before the place that it was read up to")
    if later[0] > position.number + 1 or later != list(range(later[0], later[0] + len(later))):
        raise _Stopped(TailCause.GAP, f"files behind {file_name(position.number)} went before they were read")
    if later[0] != position.number:
        raise _Stopped(TailCause.UNREAD, f"{file_name(position.number)} was cleaned since it was read")
    return later


def _walk_file(
    path: Path,
    start: int,
    position: LogPosition | None,
    *,
    before: int | None,
    is_last: bool,
    bytes_max: int,
    torn_before_ns: int,
) -> tuple[int | None, int]:
    """Walk one file; returns the offset of its last entry (None: it has none yet), and the bytes walked."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        size = status.st_size
        if size - start > bytes_max:
            raise _Stopped(TailCause.UNREAD, f"{size - start} bytes were written since")
        if position is not None:
            _compare(descriptor, position, status)
        elif size >= FILE_HEADER_BYTES:
            _check_link(descriptor, before, size)
        last, end = _walk_entries(descriptor, start, size, is_new=position is None)
    finally:
        os.close(descriptor)
    if end < size and not (is_last and status.st_mtime_ns < torn_before_ns):
        cause = TailCause.WRITING if is_last else TailCause.UNREAD
        raise _Stopped(cause, f"{path.name} has no whole entry at {end:#x}")
    return last, size - start


def _compare(descriptor: int, position: LogPosition, status: os.stat_result) -> None:
    """See that the file is the one that was read, and still has its last entry."""
    same = (status.st_dev, status.st_ino) == (position.device, position.inode)
    if not same or status.st_size < position.offset + HEADER_BYTES:
        raise _Stopped(TailCause.UNREAD, f"{file_name(position.number)} is another file than was read")
    checksum, kind, *_ = _HEADER.unpack(_read(descriptor, position.offset, HEADER_BYTES, status.st_size))
    if checksum != position.checksum or kind not in KNOWN_TYPES:
        raise _Stopped(TailCause.UNREAD, f"{file_name(position.number)} has another entry than was read")


def _check_link(descriptor: int, before: int | None, size: int) -> None:
    """See that a new file follows the one that was walked before it."""
    [last] = _LONG.unpack(_read(descriptor, PREVIOUS_FILE_LAST_AT, _LONG.size, size))
    if before is not None and last != before:
        raise _Stopped(TailCause.UNREAD, "a file does not follow the one before it")


def _walk_entries(descriptor: int, start: int, size: int, *, is_new: bool) -> tuple[int | None, int]:
    """Walk whole entries from an offset on; returns the last one's offset and where it ends.

    Args:
        is_new: the first entry has not been seen before; else it is the one of the position.
    """
    last: int | None = None
    at, block, block_at = start, b"", start
    while at + HEADER_BYTES <= size:
        if at + HEADER_BYTES > block_at + len(block):
            block, block_at = os.pread(descriptor, min(READ_BYTES, size - at), at), at
            if len(block) < HEADER_BYTES:
                break
        _, kind, flags, previous, item_bytes = _HEADER.unpack_from(block, at - block_at)
        header = HEADER_BYTES_WITH_VLSN if flags & FLAGS_WITH_VLSN else HEADER_BYTES
        if kind not in KNOWN_TYPES or item_bytes < 0 or at + header + item_bytes > size:
            break
        if last is not None and previous != last:
            break
        if kind in TELLING_TYPES and (is_new or at != start):
            raise _Stopped(TailCause.UNREAD, f"an entry of type {kind} was written")
        last, at = at, at + header + item_bytes
    return last, at


def _read(descriptor: int, offset: int, count: int, size: int) -> bytes:
    if offset + count > size:
        raise _Stopped(TailCause.UNREAD, "a file is shorter than it was")
    found = os.pread(descriptor, count, offset)
    if len(found) != count:
        raise _Stopped(TailCause.UNREAD, "a file is shorter than it was")
    return found
