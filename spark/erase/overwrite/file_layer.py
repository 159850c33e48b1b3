"""The system calls by which files are erased, one method each, so that a test can trace, fail or end them.

Python itself repeats a call that a signal interrupts; `OpenFile` carries on after a short read or write.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spark.erase.calls.calls import Costs, RefusalCode
from spark.erase.calls.refusing import Refused
from spark.targets.files.beneath import open_beneath, rename_beneath, stat_beneath, unlink_beneath

Clock = Callable[[], float]

READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
# Never O_CREAT: a file that vanished stays away.
WRITE_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class FileLayer:
    """Each method is one system call."""

    def open(self, path: Path, flags: int) -> int:
        """Open a file."""
        return open_beneath(path, flags)

    def stat(self, path: Path) -> os.stat_result:
        """Look at a name; a symbolic link is not followed."""
        return stat_beneath(path)

    def fstat(self, descriptor: int) -> os.stat_result:
        """Look at an open file."""
        return os.fstat(descriptor)

    def pread(self, descriptor: int, target: memoryview, offset: int) -> int:
        """Read into a buffer; return how many bytes there were."""
        return os.preadv(descriptor, [target], offset)

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Write; return how many bytes were taken."""
        return os.pwrite(descriptor, data, offset)

    def fsync(self, descriptor: int) -> None:
        """Wait until the medium has all that was written."""
        os.fsync(descriptor)

    def drop_pages(self, descriptor: int) -> None:
        """Drop what memory holds of a file, so that the next read asks the medium."""
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name."""
        rename_beneath(old, new)

    def unlink(self, path: Path) -> None:
        """Take a name away."""
        unlink_beneath(path)

    def close(self, descriptor: int) -> None:
        """Close a file."""
        os.close(descriptor)


@dataclass(slots=True)
class Tally:
    """What has been done so far: real calls and real bytes. `clock` measures fsyncs and nothing else."""

    clock: Clock
    reads: int = 0
    read_bytes: int = 0
    writes: int = 0
    write_bytes: int = 0
    fsync_s: list[float] = field(default_factory=list)

    def costs(self) -> Costs:
        """Take the sum."""
        fsyncs = len(self.fsync_s)
        return Costs(self.reads, self.read_bytes, self.writes, self.write_bytes, fsyncs, tuple(self.fsync_s))


@dataclass(slots=True)
class OpenFile:
    """An open file or directory. What the operating system refuses becomes `Refused`."""

    layer: FileLayer
    tally: Tally
    descriptor: int
    name: str

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill a buffer; fewer bytes only where the file ends."""
        filled = 0
        while filled < len(target):
            count = self.read_once(target[filled:], offset + filled)
            if count == 0:
                break
            filled += count
        return filled

    def read_once(self, target: memoryview, offset: int) -> int:
        """Read by one call; return how many bytes came."""
        try:
            count = self.layer.pread(self.descriptor, target, offset)
        except OSError as error:
            raise Refused.of_disk(error, "read", file=self.name, offset=offset) from error
        self.tally.reads += 1
        self.tally.read_bytes += count
        return count

    def read_whole(self, target: memoryview, offset: int) -> None:
        """Fill a buffer with bytes that must be there.

        Raises: Refused: FILE_RESIZED, DISK_ERROR.
        """
        if (count := self.read_into(target, offset)) != len(target):
            detail = f"the file ends at {offset + count}, {len(target) - count} bytes early"
            raise Refused(RefusalCode.FILE_RESIZED, detail, file=self.name, offset=offset + count)

    def write(self, data: memoryview, offset: int) -> None:
        """Write all bytes.

        Raises: Refused: DISK_ERROR.
        """
        taken = 0
        while taken < len(data):
            try:
                count = self.layer.pwrite(self.descriptor, data[taken:], offset + taken)
                if count == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                raise Refused.of_disk(error, "write", file=self.name, offset=offset + taken) from error
            self.tally.writes += 1
            self.tally.write_bytes += count
            taken += count

    def fsync(self) -> None:
        """Make durable what was written.

        Raises: Refused: UNPROVEN. Nobody may try again: a second success would say nothing of the lost pages.
            These are dropped: the next plan has to see what the medium has, not what it was to have.
        """
        started = self.tally.clock()
        try:
            self.layer.fsync(self.descriptor)
        except OSError as error:
            with suppress(OSError):
                self.layer.drop_pages(self.descriptor)
            detail = f"fsync failed: {Refused.reason(error)}"
            raise Refused(
                RefusalCode.UNPROVEN, detail, ref=Refused.errno_name(error), file=self.name
            ) from error
        self.tally.fsync_s.append(self.tally.clock() - started)

    def status(self) -> os.stat_result:
        """Look at the open file."""
        try:
            return self.layer.fstat(self.descriptor)
        except OSError as error:
            raise Refused.of_disk(error, "fstat", file=self.name) from error

    def drop_pages(self) -> None:
        """Have the next read ask the medium; what was written must be durable."""
        try:
            self.layer.drop_pages(self.descriptor)
        except OSError as error:
            raise Refused.of_disk(error, "posix_fadvise", file=self.name) from error

    def close(self) -> None:
        """Close it; all that counts was made durable before."""
        self.layer.close(self.descriptor)
