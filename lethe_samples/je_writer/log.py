"""Writes the files of a log: headers, checksums, the chains of offsets, and new files at a size limit."""

import struct
import zlib
from pathlib import Path
from typing import Final

from spark.formats.je import log as je_log
from spark.formats.je.log import NULL_LSN, EntryType, file_name, lsn_of

FILE_BYTES_DEFAULT: Final = 10_000_000
LOCK_NAME: Final = "je.lck"


def entry_bytes(
    entry_type: int, flags: int, previous: int, item: bytes, vlsn: int | None = None
) -> tuple[bytes, bytes]:
    """Make the header of an entry, and give it with the item."""
    assert bool(flags & je_log.FLAGS_WITH_VLSN) == (vlsn is not None)
    rest = struct.pack("<BBIi", entry_type, flags, previous, len(item))
    if vlsn is not None:
        rest += struct.pack("<q", vlsn)
    # The mark of a rolled-back entry is set later, and no part of its checksum.
    covered = rest
    if flags & je_log.FLAG_INVISIBLE:
        covered = bytes((rest[0], rest[1] & ~je_log.FLAG_INVISIBLE)) + rest[2:]
    checksum = zlib.adler32(item, zlib.adler32(covered))
    return struct.pack("<I", checksum) + rest, item


def header_item(number: int, created_ms: int, previous_last: int) -> bytes:
    """Make the item of a file's header."""
    return struct.pack("<qIqi", created_ms, number, previous_last, je_log.VERSION)


class LogWriter:
    """Appends entries to a log in an empty directory. A file is on the disk once the next one is begun.

    Attributes:
        now_ms: the time that a new file gets; whoever writes sets it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        file_bytes_max: int = FILE_BYTES_DEFAULT,
        created_ms: int,
        first_file: int = 0,
    ) -> None:
        """Begin a log with its first file's header."""
        assert file_bytes_max > 2 * je_log.FILE_HEADER_BYTES
        assert directory.is_dir()
        assert not list(directory.glob("*.jdb"))
        self.directory = directory
        self.file_bytes_max = file_bytes_max
        self.now_ms = created_ms
        self.number = first_file
        self.last_lsn = NULL_LSN
        self._data = bytearray()
        self._previous = 0
        self._begin_file(previous_last=0)

    @property
    def offset(self) -> int:
        """Where the next entry of the current file would lie."""
        return len(self._data)

    @property
    def previous(self) -> int:
        """Where the last entry of the current file lies."""
        return self._previous

    def append(
        self, entry_type: int, item: bytes, *, provisional: int = 0, vlsn: int | None = None, flags: int = 0
    ) -> int:
        """Append an entry, to a new file where it does not fit, and return its LSN.

        Args:
            entry_type: its type.
            item: its item.
            provisional: FLAG_PROVISIONAL, FLAG_PROVISIONAL_BEFORE_CHECKPOINT_END or 0.
            vlsn: its place in the replicated stream, if it has one.
            flags: others, such as FLAG_REPLICATED or FLAG_INVISIBLE.
        """
        flags |= provisional
        if vlsn is not None and not flags & je_log.FLAGS_WITH_VLSN:
            flags |= je_log.FLAG_REPLICATED
        size = je_log.HEADER_BYTES if vlsn is None else je_log.HEADER_BYTES_WITH_VLSN
        size += len(item)
        if len(self._data) + size > self.file_bytes_max and len(self._data) > je_log.FILE_HEADER_BYTES:
            self.flip()
        offset = len(self._data)
        self._data += b"".join(entry_bytes(entry_type, flags, self._previous, item, vlsn))
        self._previous = offset
        self.last_lsn = lsn_of(self.number, offset)
        return self.last_lsn

    def extend(self, entries: bytes, last: int) -> None:
        """Append whole entries to the current file as they are.

        Args:
            entries: their bytes, with right offsets and checksums.
            last: the offset of the last one.
        """
        self._data += entries
        self._previous = last
        self.last_lsn = lsn_of(self.number, last)

    def flip(self) -> None:
        """End the current file and begin the next."""
        self._write_file()
        self.number += 1
        self._begin_file(previous_last=self._previous)

    def make_invisible(self, lsn: int) -> None:
        """Mark an entry as rolled back, as JE does in place."""
        offset = je_log.lsn_offset(lsn) + je_log.FLAGS_AT
        if je_log.lsn_file(lsn) == self.number:
            self._data[offset] |= je_log.FLAG_INVISIBLE
            return
        with (self.directory / file_name(je_log.lsn_file(lsn))).open("r+b") as file:
            file.seek(offset)
            flags = file.read(1)[0]
            file.seek(offset)
            file.write(bytes((flags | je_log.FLAG_INVISIBLE,)))

    def close(self, *, torn: bytes = b"") -> None:
        """Write the last file.

        Args:
            torn: what a crash left of an entry that was being written.
        """
        self._data += torn
        self._write_file()
        (self.directory / LOCK_NAME).touch()

    def _begin_file(self, *, previous_last: int) -> None:
        self._data = bytearray()
        item = header_item(self.number, self.now_ms, previous_last)
        self._data += b"".join(entry_bytes(EntryType.FILE_HEADER, 0, 0, item))
        self._previous = 0

    def _write_file(self) -> None:
        (self.directory / file_name(self.number)).write_bytes(self._data)
