"""A log that is written while it grows, as JE writes it, and once more aside, where nobody erases.

Bytes reach the copy first: what the environment holds, the copy holds too. The copy loses no file either.
`durable` in the folder of the copy says, line by line, how far a file was synced.
"""

import os
import random
from pathlib import Path

from lethe_samples.je_writer.log import LogWriter
from spark.formats.je.log import file_name, lsn_file, lsn_offset

DURABLE_NAME = "durable"


class GrowingLog(LogWriter):
    """Pending bytes are pushed in pieces that may end within an entry; a file that is full is synced."""

    def __init__(
        self, directory: Path, copy: Path, *, file_bytes_max: int, created_ms: int, chance: random.Random
    ) -> None:
        self.copy = copy
        self.pushed = 0
        self._chance = chance
        self._fds: list[int] = []
        self._durable = os.open(copy / DURABLE_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        super().__init__(directory, file_bytes_max=file_bytes_max, created_ms=created_ms)

    def push(self, limit: int | None = None) -> None:
        """Write what is pending, up to an offset of the file."""
        limit = len(self._data) if limit is None else limit
        while self.pushed < limit:
            end = min(limit, self.pushed + self._chance.randint(1, 9000))
            for fd in self._fds:
                os.pwrite(fd, self._data[self.pushed : end], self.pushed)
            self.pushed = end

    def push_part(self) -> None:
        """Write a part of what is pending."""
        self.push(self._chance.randint(self.pushed, len(self._data)))

    def sync(self) -> None:
        """Write and sync what is pending."""
        self.push()
        os.fsync(self._fds[-1])
        os.write(self._durable, b"%d %d\n" % (self.number, self.pushed))

    def is_pushed(self, lsn: int, size: int) -> bool:
        return lsn_file(lsn) < self.number or lsn_offset(lsn) + size <= self.pushed

    def is_intact(self, lsn: int, size: int) -> bool:
        """Whether an entry is what was written; also where its file is gone, since who looks is late then."""
        raw = self._read(self.directory, lsn, size)
        return raw is None or raw == self._read(self.copy, lsn, size)

    def _read(self, directory: Path, lsn: int, size: int) -> bytes | None:
        try:
            fd = os.open(directory / file_name(lsn_file(lsn)), os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return os.pread(fd, size, lsn_offset(lsn))
        finally:
            os.close(fd)

    def _begin_file(self, *, previous_last: int) -> None:
        super()._begin_file(previous_last=previous_last)
        self.pushed = 0
        name = file_name(self.number)
        self._fds = [
            os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            for folder in (self.copy, self.directory)
        ]

    def _write_file(self) -> None:
        self.sync()
        while self._fds:
            os.close(self._fds.pop())
