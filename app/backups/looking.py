"""The files of an environment as stat tells them: what a session remembers, and what it compares."""

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.backups.rows import BackupFile, FileFault
from app.protection.control import Environment, busy_files, control_faults
from app.protection.errors import EnvironmentUnusable
from app.protection.files import name_of
from spark.targets.files import ofd_lock
from spark.targets.files.control_errors import ControlFileInvalid, ControlFileMissing
from spark.targets.files.control_file import ControlFile
from spark.targets.files.log_place import log_path

LOCK_FILE = "je.lck"
WRITER_BYTE = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What identifies a file and its content, as far as stat can tell."""

    size: int
    device: int
    inode: int
    mtime_ns: int


def look(directory: Path, numbers: Iterable[int]) -> dict[int, Seen]:
    """The files that are there; one that is no regular file any more is not.

    Raises: EnvironmentUnusable.
    """
    found = {}
    for number in numbers:
        try:
            status = os.stat(log_path(directory, number), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            detail = f"{name_of(number)} cannot be looked at: {error.strerror}"
            raise EnvironmentUnusable(detail, code="ENVIRONMENT_UNREADABLE") from error
        if stat.S_ISREG(status.st_mode):
            found[number] = Seen(status.st_size, status.st_dev, status.st_ino, status.st_mtime_ns)
    return found


def growing_file(environment: Environment, numbers: Sequence[int]) -> int | None:
    """The file that a running engine appends to: the last of the log, while somebody has it open to write.

    A round of Lethe in CLOSED mode holds the same byte of je.lck, by its descriptor as no engine does; it
    also holds the byte of the file that it works on. A round in LIVE mode is no sign that no engine is there.

    Args:
        numbers: all files of the log, ascending.
    """
    writer = _writer(environment.directory)
    if not numbers or writer is None:
        return None
    is_engine = writer.pid != ofd_lock.OF_A_DESCRIPTOR
    return numbers[-1] if is_engine or not _round_is_at_work(environment.directory, numbers) else None


def _writer(directory: Path) -> ofd_lock.Holder | None:
    try:
        fd = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:  # no lock file, no engine; one that cannot be read tells nothing
        return None
    try:
        with control_faults():
            holder = ofd_lock.posix_holder(fd, WRITER_BYTE)
    finally:
        os.close(fd)
    return holder if holder is not None and holder.kind == "WRITE" else None


def _round_is_at_work(directory: Path, numbers: Sequence[int]) -> bool:
    with control_faults():
        try:
            with ControlFile.open(directory, create=False) as control:
                return bool(busy_files(control, numbers))
        except (ControlFileMissing, ControlFileInvalid):
            return False


def fault_of(kept: BackupFile, seen: Seen | None) -> FileFault | None:
    """What has happened to a file since its session became ACTIVE; None: nothing that matters."""
    if seen is None:
        return FileFault.VANISHED
    if (str(seen.device), str(seen.inode)) != (kept.device, kept.inode):
        return FileFault.REPLACED
    if kept.is_growing:
        return FileFault.RESIZED if seen.size < kept.size else None
    if seen.size != kept.size:
        return FileFault.RESIZED
    return FileFault.TOUCHED if seen.mtime_ns != kept.mtime_ns else None
