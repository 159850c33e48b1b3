"""Reading a log while JE writes it.

The list of files is taken until two lists are equal, then every file is opened and its size noted, the last
one too. Nothing behind a noted size is ever read. So what is read is a beginning of the log: a file that was
created later is not in it, and all that a checkpoint before a deletion wrote is.

Files that are not the last must be whole, to the last byte and checksum. The last one, and the one before it
while the last has no header yet, is read up to the first entry that is not sound.

All files stay open until the end, as far as this process may open so many. One that JE deletes meanwhile is
read to its end all the same: what was read is the log as it was when the list was taken, with nothing missing
(why that must be so: design.md, Erase, LIVE). `vanished` tells afterwards which ones have no name any more.
Only a file that went before it was opened is not to be had: the list is taken again, or, where not all files
could be kept open, the reading ends. A file that is not what it was ends the reading too.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark.erase.errors import EnvironmentUnreadable, LogFileChanged, LogFileVanished
from spark.erase.reading.columns import FileColumns
from spark.erase.reading.directory import (
    LISTS_MAX,
    OPEN_FILES_MAX,
    Descriptors,
    Identity,
    LogFile,
    identity_of,
    make_durable,
    read_file_header,
    stable_names,
)
from spark.erase.reading.files import Room, read_file
from spark.erase.reading.log import Log, check_link
from spark.formats.je import log as je_log
from spark.targets.files.log_place import log_paths

# Descriptors that this process wants for other things than log files.
OTHER_DESCRIPTORS: Final = 200


@dataclass(frozen=True, slots=True)
class MovingFile(LogFile):
    """A file that may grow behind the size that was noted when it was opened, and that may vanish."""

    @property
    def descriptor(self) -> int:
        """An open descriptor; opened anew it must be the same file.

        Raises: LogFileVanished, LogFileChanged, LogFileNotRegular, EnvironmentUnreadable.
        """
        descriptor, is_new = _open(self.descriptors, self.path)
        if is_new:
            self._compare(os.fstat(descriptor), may_grow=True)
        return descriptor

    def look_again(self) -> None:
        """Assert that nothing was cut off or replaced; growing is what a last file does."""
        self.look_at_end(may_grow=True)

    def look_at_end(self, *, may_grow: bool) -> None:
        """Assert that the open file, and what has its name, are what they were.

        Raises: LogFileVanished: it is not open any more; LogFileChanged.
        """
        self._compare(os.fstat(self.descriptor), may_grow=may_grow)
        named = self._named()
        if named is not None:
            self._compare(named, may_grow=may_grow)

    def has_vanished(self) -> bool:
        """Whether nothing has its name any more.

        Raises: LogFileChanged: another file has it.
        """
        named = self._named()
        if named is None:
            return True
        self._compare(named, may_grow=True)
        return False

    def _named(self) -> os.stat_result | None:
        try:
            return os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LogFileChanged(os.strerror(error.errno or 0), file=self.name) from error

    def _compare(self, status: os.stat_result, *, may_grow: bool) -> None:
        now, then = identity_of(status), self.identity
        if (now.device, now.inode) != (then.device, then.inode):
            raise LogFileChanged("another file has its name", file=self.name)
        if now.size < then.size or (now.size > then.size and not may_grow):
            raise LogFileChanged(f"{then.size} bytes became {now.size}", file=self.name)


@contextmanager
def read_moving_log(directory: Path) -> Iterator[Log]:
    """Read a log that may be in use; then sync what was read, so that nothing of it can vanish any more.

    Raises: LogRefused: LogFileVanished and LogFileChanged pass by themselves.
    """
    descriptors, files = _open_all(directory)
    try:
        room = Room.make()
        columns = _read(files, room)
        for file in files:
            file.look_at_end(may_grow=file is files[-1])
        make_durable(directory, list(files))
        yield Log(directory, tuple(files), tuple(columns), room.reads)
    finally:
        descriptors.close()


def vanished(log: Log) -> frozenset[int]:
    """Files that were read and have no name any more: JE has deleted them since.

    Raises: LogFileChanged.
    """
    return frozenset(
        file.number for file in log.open_files if isinstance(file, MovingFile) and file.has_vanished()
    )


def room_for(count: int) -> int:
    """How many files may stay open; the soft limit of this process is raised as far as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(OPEN_FILES_MAX, soft - OTHER_DESCRIPTORS)


def _open_all(directory: Path) -> tuple[Descriptors, list[MovingFile]]:
    """Open all files of a list that was true when the first of them was opened, and note their sizes."""
    for _ in range(LISTS_MAX):
        names = stable_names(directory)
        descriptors = Descriptors(room_for(len(names)))
        with ExitStack() as undo, suppress(LogFileVanished):
            undo.callback(descriptors.close)
            found = [_find(path, descriptors) for path in log_paths(directory, names)]
            undo.pop_all()
            return descriptors, found
    raise LogFileChanged(f"{directory}: files go faster than they can be opened")


def _find(path: Path, descriptors: Descriptors) -> MovingFile:
    descriptor, _ = _open(descriptors, path)
    identity: Identity = identity_of(os.fstat(descriptor))
    return MovingFile(je_log.file_number(path.name), path, identity, descriptors)


def _open(descriptors: Descriptors, path: Path) -> tuple[int, bool]:
    try:
        return descriptors.of(path)
    except EnvironmentUnreadable as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise _vanished(path) from error
        raise


def _vanished(path: Path) -> LogFileVanished:
    return LogFileVanished("it was deleted while the log was read", file=path.name)


def _read(files: list[MovingFile], room: Room) -> list[FileColumns]:
    growing = files[-1:]
    if len(files) > 1 and read_file_header(files[-1]) is None:
        growing = files[-2:]
    found: list[FileColumns] = []
    for file in files:
        is_growing = file in growing
        found.append(read_file(file, is_last=is_growing, verify=True, growing=is_growing, room=room))
        check_link(found)
    return found
