"""Files of ours beside the files of a log: opened without following links, made whole or not at all."""

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from spark.formats.je import log as je_log
from spark.targets.files.control_errors import (
    ControlError,
    ControlFileFailed,
    ControlFileMissing,
    MediumRefused,
    NotRegular,
    PermissionRefused,
)
from spark.targets.files.system_calls import SystemCalls

# Without O_NONBLOCK a pipe that bears the name would hold us for ever.
FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
UNFINISHED_SUFFIX: Final = ".new"
# Where log files lie if not beside these ones (log_place.py).
DATA_DIRECTORY: Final = re.compile(r"data[0-9]{3}")
ATTEMPTS_MAX: Final = 5
WRITES_MAX: Final = 1_000
LEFT_BEHIND_MAX: Final = 100


def open_directory(directory: Path, *, calls: SystemCalls) -> int:
    """Open a directory, so that every name below is looked up in this one and no other."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return calls.open(str(directory), flags, mode=0, dir_fd=None)
    except OSError as error:
        raise named(error, str(directory)) from error


def open_regular(name: str, flags: int, *, dir_fd: int, calls: SystemCalls) -> int | None:
    """Open a file that is there; None where it is not.

    Raises: NotRegular, PermissionRefused, ControlFileFailed.
    """
    try:
        fd = calls.open(name, flags | FLAGS, mode=0, dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise named(error, name) from error
    status = calls.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        calls.close(fd)
        raise NotRegular(f"{name} is no regular file")
    if flags & os.O_RDWR and status.st_nlink > 1:
        _clear(name, dir_fd=dir_fd, calls=calls)  # its maker was killed before it had removed the other name
    return fd


def create_whole(name: str, content: Callable[[int], bytes], *, dir_fd: int, calls: SystemCalls) -> None:
    """Make a file that has its content, owner and mode from the moment on at which it can be seen.

    It is written under a name of its own and linked to its place; whoever links first has made it. Who is
    killed leaves a `.new` file, which the next one who opens or creates clears away.

    Args:
        content: makes the bytes, given the inode of the file.
    Raises: PermissionRefused: owner, group and mode of the newest log file cannot be had.
    """
    like = newest_log_file(dir_fd)
    unfinished = f"{name}.{secrets.token_hex(8)}{UNFINISHED_SUFFIX}"
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | FLAGS
        fd = calls.open(unfinished, flags, mode=0o600, dir_fd=dir_fd)
        try:
            _own(fd, like, calls=calls)
            write_all(fd, content(calls.fstat(fd).st_ino), 0, calls=calls)
            calls.fsync(fd)
            _place(unfinished, name, dir_fd=dir_fd, calls=calls)
        finally:
            calls.close(fd)
        calls.fsync(dir_fd)
    except OSError as error:
        raise named(error, name) from error
    finally:
        _clear(name, dir_fd=dir_fd, calls=calls)


def newest_log_file(dir_fd: int) -> os.stat_result:
    """Find the log file with the highest number; its owner, group and mode are those of the environment."""
    try:
        names = os.listdir(dir_fd)
        logs = _logs(names, "") or _logs_below(names, dir_fd)
        newest = max(logs, key=os.path.basename, default=None)
        found = None if newest is None else os.stat(newest, dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        raise named(error, "the newest log file") from error
    if found is None or not stat.S_ISREG(found.st_mode):
        raise PermissionRefused("there is no log file (*.jdb) to take owner, group and mode from")
    return found


def _logs(names: Iterable[str], folder: str) -> list[str]:
    return [
        os.path.join(folder, name)
        for name in names
        if je_log.FILE_NAME.fullmatch(name) and name != je_log.RESTORE_MARKER_NAME
    ]


def _logs_below(names: Iterable[str], dir_fd: int) -> list[str]:
    """The log files in data directories (log_place.py)."""
    found = []
    for name in filter(DATA_DIRECTORY.fullmatch, names):
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | FLAGS, dir_fd=dir_fd)
        try:
            found += _logs(os.listdir(below), name)
        finally:
            os.close(below)
    return found


def write_all(fd: int, data: bytes, offset: int, *, calls: SystemCalls) -> None:
    """Write all bytes, in as many calls as the kernel asks for."""
    for _ in range(WRITES_MAX):
        if not data:
            return
        count = calls.pwrite(fd, data, offset)
        data, offset = data[count:], offset + count
    raise OSError(errno.EIO, "the kernel takes next to nothing with a write")


def named(error: OSError, name: str) -> ControlError:
    """Name what the operating system said about a file."""
    detail = f"{name}: {os.strerror(error.errno) if error.errno else error}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionRefused(detail)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return ControlFileMissing(detail)
    if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EMLINK):
        return NotRegular(f"{detail}; links are not followed")
    return ControlFileFailed(detail)


def _own(fd: int, like: os.stat_result, *, calls: SystemCalls) -> None:
    mine = calls.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
        calls.fchown(fd, like.st_uid, like.st_gid)
    # Who may write log files may write this one; nobody ever executes it.
    calls.fchmod(fd, like.st_mode & 0o666 | 0o600)


def _place(unfinished: str, name: str, *, dir_fd: int, calls: SystemCalls) -> None:
    try:
        calls.link(unfinished, name, dir_fd=dir_fd)
    except FileExistsError:
        return  # somebody else was first, and theirs is as good
    except FileNotFoundError:
        return  # somebody who was first has cleared ours away
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise MediumRefused(f"{name}: the file system knows no hard links") from error
        raise


def _clear(name: str, *, dir_fd: int, calls: SystemCalls) -> None:
    """Remove what we and the dead left unfinished; who lives finds the name taken, or begins again."""
    try:
        left = [found for found in os.listdir(dir_fd) if _is_unfinished(found, name)]
        for found in left[:LEFT_BEHIND_MAX]:
            calls.unlink(found, dir_fd=dir_fd)
    except FileNotFoundError:
        return  # another one clears too; what is left waits for the next
    except OSError as error:
        raise named(error, name) from error


def _is_unfinished(found: str, name: str) -> bool:
    return found.startswith(f"{name}.") and found.endswith(UNFINISHED_SUFFIX)
