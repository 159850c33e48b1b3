"""The files of an environment, opened for reading only; never mapped: a map dies with its file."""

import os
import stat
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark.erase.errors import (
    EnvironmentUnreadable,
    LogFileChanged,
    LogFileNotRegular,
    LogHeaderInvalid,
    LogInDataDirectories,
    LogVersionUnsupported,
    NotAnEnvironment,
    RestoreRequired,
)
from spark.formats.je import log as je_log
from spark.targets.files.beneath import list_beneath, open_beneath
from spark.targets.files.log_place import PlaceWrong, files_below, log_paths

OPEN_FILES_MAX: Final = 64
# Two lists in a row differ only if JE created or deleted a file just then.
LISTS_MAX: Final = 100
# Without O_NONBLOCK a pipe that bears the name of a log file would hold us for ever.
OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Identity:
    """What must not have changed of a file since a plan was made."""

    device: int
    inode: int
    size: int
    links: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Witness:
    """The end of the checkpoint that a plan relies on: its LSN, and all of its bytes (see witness.py)."""

    lsn: int
    entry: bytes


class Descriptors:
    """Open descriptors of log files, few at a time: there may be more files than a process may open."""

    def __init__(self, room: int | None = None) -> None:
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._room = OPEN_FILES_MAX if room is None else room

    def of(self, path: Path) -> tuple[int, bool]:
        """Return the descriptor of a file, and whether it was opened just now."""
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found, False
        while len(self._open) >= self._room:
            os.close(self._open.popitem(last=False)[1])
        self._open[path] = descriptor = _open(path)
        return descriptor, True

    def close(self) -> None:
        """Close all."""
        while self._open:
            os.close(self._open.popitem()[1])


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log that can be read; it must stay what it was when it was found."""

    number: int
    path: Path
    identity: Identity
    descriptors: Descriptors

    @property
    def descriptor(self) -> int:
        """An open descriptor; opened anew it must be the same file.

        Raises: LogFileChanged, LogFileNotRegular, EnvironmentUnreadable.
        """
        descriptor, is_new = self.descriptors.of(self.path)
        if is_new and identity_of(os.fstat(descriptor)) != self.identity:
            raise LogFileChanged("it is not the file that it was", file=self.name)
        return descriptor

    @property
    def name(self) -> str:
        """The file's name within its directory."""
        return self.path.name

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill a buffer from an offset on; return how many bytes there were."""
        filled = 0
        while filled < len(target):
            try:
                count = os.preadv(self.descriptor, [target[filled:]], offset + filled)
            except OSError as error:
                raise EnvironmentUnreadable(_reason(error), file=self.name, offset=offset + filled) from error
            if count == 0:
                break
            filled += count
        return filled

    def read(self, offset: int, count: int) -> bytes:
        """Read bytes that must be there."""
        target = bytearray(count)
        if self.read_into(memoryview(target), offset) != count:
            raise LogFileChanged("it became shorter while it was read", file=self.name, offset=offset)
        return bytes(target)

    def look_again(self) -> None:
        """Assert that the open file, and the name, are what they were when it was opened."""
        try:
            opened = identity_of(os.fstat(self.descriptor))
            named = identity_of(os.stat(self.path, follow_symlinks=False))
        except OSError as error:
            raise LogFileChanged(_reason(error), file=self.name) from error
        if opened != self.identity or named != self.identity:
            raise LogFileChanged(f"{self.identity} became {named}", file=self.name)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The first entry of a file."""

    created_ms: int
    number: int
    previous_file_last: int
    version: int


def identity_of(status: os.stat_result) -> Identity:
    """Take what identifies a file out of its status."""
    return Identity(status.st_dev, status.st_ino, status.st_size, status.st_nlink, status.st_mtime_ns)


def file_names(directory: Path) -> list[str]:
    """List the log files of an environment in the order of their numbers, wherever they lie.

    Raises: NotAnEnvironment, EnvironmentUnreadable, LogInDataDirectories, RestoreRequired, LogHeaderInvalid.
    """
    try:
        names = sorted(list_beneath(directory))
    except FileNotFoundError as error:
        raise NotAnEnvironment(f"{directory} does not exist") from error
    except NotADirectoryError as error:
        raise NotAnEnvironment(f"{directory} is no directory") from error
    except OSError as error:
        raise EnvironmentUnreadable(f"{directory}: {_reason(error)}") from error
    found = [name for name in names if je_log.FILE_NAME.fullmatch(name)]
    found = _with_those_below(directory, names, found)
    if not found:
        raise NotAnEnvironment(f"{directory} holds no log file (*.jdb)")
    if je_log.RESTORE_MARKER_NAME in found:
        detail = "a network restore did not end; the environment is not whole"
        raise RestoreRequired(detail, file=je_log.RESTORE_MARKER_NAME)
    over = [name for name in found if je_log.file_number(name) > je_log.FILE_NUMBER_MAX]
    if over:
        raise LogHeaderInvalid("no log file has such a number", file=over[0])
    return found


def _with_those_below(directory: Path, names: list[str], found: list[str]) -> list[str]:
    """The files of data directories, where the log lies there; a part of a log tells nothing."""
    try:
        below = files_below(directory, names)
    except PlaceWrong as wrong:
        detail = f"{directory}: {wrong.detail} (je.log.nDataDirectories)"
        raise LogInDataDirectories(detail, file=wrong.name) from wrong
    except OSError as error:
        raise EnvironmentUnreadable(f"{directory}: {_reason(error)}") from error
    if below and found:
        name = next(name for name, files in below.items() if files)
        detail = (
            f"{directory} has log files of its own and in {name}/ (je.log.nDataDirectories); JE would read "
            "one or the other: put away those that do not belong to it"
        )
        raise LogInDataDirectories(detail, file=name)
    return sorted(name for files in below.values() for name in files) if below else found


def stable_names(directory: Path) -> list[str]:
    """List the log files as they were at one moment.

    A single list may lack a file that was created while it was made, and another that was deleted after that.
    """
    names = file_names(directory)
    for _ in range(LISTS_MAX):
        again = file_names(directory)
        if again == names:
            return names
        names = again
    raise LogFileChanged(f"{directory}: files come and go faster than they can be listed")


@contextmanager
def opened(directory: Path, names: list[str]) -> Iterator[list[LogFile]]:
    """Find files for reading, and close what is open of them at the end."""
    descriptors = Descriptors()
    try:
        yield [_find(path, descriptors) for path in log_paths(directory, names)]
    finally:
        descriptors.close()


def _find(path: Path, descriptors: Descriptors) -> LogFile:
    descriptor, _ = descriptors.of(path)
    return LogFile(je_log.file_number(path.name), path, identity_of(os.fstat(descriptor)), descriptors)


def _open(path: Path) -> int:
    try:
        descriptor = open_beneath(path, OPEN_FLAGS)
    except OSError as error:
        if path.is_symlink():
            raise LogFileNotRegular("a symbolic link is not followed", file=path.name) from error
        raise EnvironmentUnreadable(_reason(error), file=path.name) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LogFileNotRegular("it is no regular file", file=path.name)
    return descriptor


def read_file_header(file: LogFile) -> FileHeader | None:
    """Read the first entry of a file; None where the file ends within it, or was never written.

    Raises: LogVersionUnsupported, LogHeaderInvalid.
    """
    raw = bytearray(je_log.FILE_HEADER_BYTES)
    count = file.read_into(memoryview(raw), 0)
    if count < je_log.FILE_HEADER_BYTES or not any(raw):
        return None

    def number(at: int, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(raw[at : at + size], "little", signed=signed)

    version = number(je_log.VERSION_AT, 4, signed=True)
    if raw[je_log.TYPE_AT] != je_log.EntryType.FILE_HEADER:
        raise LogHeaderInvalid("it does not begin as a JE log file does", file=file.name, offset=0)
    if je_log.VERSION_OLDEST <= version < je_log.VERSION:
        raise LogVersionUnsupported(
            f"log version {version}; only version {je_log.VERSION} is worked on (JE upgrades by writing)",
            file=file.name,
            offset=je_log.VERSION_AT,
        )
    if version != je_log.VERSION:
        detail = f"log version {version}, which is not known; {je_log.VERSION} is"
        raise LogVersionUnsupported(detail, file=file.name, offset=je_log.VERSION_AT)
    header = FileHeader(
        created_ms=number(je_log.CREATED_AT, 8, signed=True),
        number=number(je_log.FILE_NUMBER_AT, 4),
        previous_file_last=number(je_log.PREVIOUS_FILE_LAST_AT, 8, signed=True),
        version=version,
    )
    if number(je_log.ITEM_SIZE_AT, 4) != je_log.FILE_HEADER_ITEM_BYTES:
        raise LogHeaderInvalid("its first entry has another size", file=file.name, offset=je_log.ITEM_SIZE_AT)
    if header.number != file.number:
        detail = f"it says that it is {header.number:08x}.jdb"
        raise LogHeaderInvalid(detail, file=file.name, offset=je_log.FILE_NUMBER_AT)
    return header


def make_durable(directory: Path, files: list[LogFile]) -> None:
    """Sync files and directory, so that what is decided on cannot vanish. Nothing is opened for writing."""
    try:
        for file in files:
            os.fsync(file.descriptor)
        for folder in sorted({directory, *(file.path.parent for file in files)}):
            descriptor = open_beneath(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise EnvironmentUnreadable(f"{directory} cannot be made durable: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
