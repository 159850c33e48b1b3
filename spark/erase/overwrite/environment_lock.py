"""JE's own lock bytes in `je.lck`: whoever holds both exclusively keeps every JE process out.

A JE process that writes holds byte 0, one that only reads holds byte 1 shared. JE's locks are POSIX record
locks; ours are open-file-description locks, which conflict with them.
"""

import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from spark.targets.files import beside_log, ofd_lock
from spark.targets.files.control_errors import ControlFileMissing
from spark.targets.files.system_calls import SYSTEM, SystemCalls

NAME: Final = "je.lck"
WRITER_BYTE: Final = 0
READER_BYTE: Final = 1


class EnvironmentLock:
    """Both bytes, held until `release`; never used across fork."""

    def __init__(self, fd: int, path: Path, calls: SystemCalls) -> None:
        self._fd = fd
        self._path = path
        self._calls = calls

    def release(self) -> None:
        """Let JE in again."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            _close(fd, self._calls)

    def is_in_place(self) -> bool:
        """Whether what is locked still has its name: a JE process would lock another file otherwise.

        Raises: ControlFileFailed.
        """
        try:
            named, locked = os.stat(self._path, follow_symlinks=False), self._calls.fstat(self._fd)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise beside_log.named(error, NAME) from error
        return (named.st_dev, named.st_ino) == (locked.st_dev, locked.st_ino)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def try_lock(directory: Path, *, calls: SystemCalls = SYSTEM) -> EnvironmentLock | None:
    """Keep every JE process out; None: one has the environment open. A missing `je.lck` is made.

    Raises: PermissionRefused, NotRegular, ControlFileMissing (the directory), ControlFileFailed, LockFailed.
    """
    fd = _open_or_create(directory, calls)
    held = False
    try:
        held = calls.try_exclusive(fd, WRITER_BYTE) and calls.try_exclusive(fd, READER_BYTE)
    finally:
        if not held:
            _close(fd, calls)
    return EnvironmentLock(fd, directory / NAME, calls) if held else None


def is_in_use(directory: Path) -> bool:
    """Tell whether anybody holds one of the bytes now: JE, or a round in CLOSED mode."""
    return _holder(directory, WRITER_BYTE) is not None or _holder(directory, READER_BYTE) is not None


def reader_present(directory: Path) -> bool:
    """Tell whether a read-only JE process has the environment open.

    A write lock on its byte is JE's cleaner, which holds it for a moment: it is no reader.
    """
    holder = _holder(directory, READER_BYTE)
    return holder is not None and holder.kind == "READ"


def _open_or_create(directory: Path, calls: SystemCalls) -> int:
    dir_fd = beside_log.open_directory(directory, calls=calls)
    try:
        for _ in range(beside_log.ATTEMPTS_MAX):
            fd = beside_log.open_regular(NAME, os.O_RDWR, dir_fd=dir_fd, calls=calls)
            if fd is not None:
                return fd
            beside_log.create_whole(NAME, lambda _: b"", dir_fd=dir_fd, calls=calls)
        raise ControlFileMissing(f"{directory}: {NAME} is removed as soon as it is made")
    finally:
        calls.close(dir_fd)


def _close(fd: int, calls: SystemCalls) -> None:
    try:
        calls.release_all(fd)
    finally:
        calls.close(fd)


def _holder(directory: Path, byte: int) -> ofd_lock.Holder | None:
    dir_fd = beside_log.open_directory(directory, calls=SYSTEM)
    try:
        fd = beside_log.open_regular(NAME, os.O_RDONLY, dir_fd=dir_fd, calls=SYSTEM)
        if fd is None:
            return None
        try:
            return ofd_lock.posix_holder(fd, byte)
        finally:
            os.close(fd)
    finally:
        os.close(dir_fd)
