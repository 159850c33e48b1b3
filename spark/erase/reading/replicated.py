"""Whether an environment is replicated, by the headers of a few entries: what a check may cost."""

import struct
from pathlib import Path
from typing import Final

from spark.erase.reading.directory import LogFile, file_names, opened
from spark.formats.je.log import (
    FILE_HEADER_BYTES,
    FLAGS_WITH_VLSN,
    HEADER_BYTES,
)

_HEADER: Final = struct.Struct("<IBBIi")
LOOK_BYTES: Final = 1 << 20


def has_vlsns(directory: Path) -> bool:
    """Whether an entry at the beginning of the oldest or newest file has a VLSN.

    A replicated environment writes one with its first transaction. What cannot be read as an entry ends the
    look: a plan says what is wrong there.

    Raises: LogRefused.
    """
    names = file_names(directory)
    for name in dict.fromkeys([names[0], names[-1]]):
        with opened(directory, [name]) as [file]:
            if _has_vlsn(file):
                return True
    return False


def _has_vlsn(file: LogFile) -> bool:
    block = bytearray(LOOK_BYTES)
    count = file.read_into(memoryview(block), 0)
    at = FILE_HEADER_BYTES
    while at + HEADER_BYTES <= count:
        _, kind, flags, _, item_bytes = _HEADER.unpack_from(block, at)
        if kind == 0 or item_bytes < 0:
            return False
        if flags & FLAGS_WITH_VLSN:
            return True
        at += HEADER_BYTES + item_bytes
    return False
