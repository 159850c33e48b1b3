"""Open-file-description locks on single bytes of a file. Nothing here waits.

Such a lock belongs to the descriptor: it conflicts with every other descriptor, those of the same process
included, and with POSIX locks of other processes. It is freed by `release`, by the last close, and by the
death of the process. A forked child shares it, so who holds one never forks without exec.
"""

import errno
import fcntl
import os
import struct
from dataclasses import dataclass
from typing import Final, Literal

from spark.targets.files.control_errors import LockFailed

# struct flock of 64-bit Linux: type, whence, start, length, pid and four bytes of padding.
_FLOCK: Final = struct.Struct("hhqqi4x")
_TO_THE_END: Final = 0
BYTE_MAX: Final = 2**62
OF_A_DESCRIPTOR: Final = -1


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a byte; `pid` is OF_A_DESCRIPTOR where no process does, and 0 in another PID namespace."""

    kind: Literal["READ", "WRITE"]
    pid: int


def try_exclusive(fd: int, byte: int) -> bool:
    """Lock a byte against everybody; False where somebody else holds it. `fd` must be open for writing.

    A lock of the same descriptor is converted, never refused.
    """
    return _set(fd, byte, fcntl.F_WRLCK)


def try_shared(fd: int, byte: int) -> bool:
    """Lock a byte against exclusive locks; False where somebody holds one. `fd` must be open for reading."""
    return _set(fd, byte, fcntl.F_RDLCK)


def release(fd: int, byte: int) -> None:
    """Give a byte back; one that is not held is left as it is."""
    done = _set(fd, byte, fcntl.F_UNLCK)
    assert done, "the kernel refuses no release"


def release_all(fd: int) -> None:
    """Give back whatever this descriptor holds.

    To be called before its close: that frees nothing while a child between fork and exec shares it.
    """
    done = _set(fd, 0, fcntl.F_UNLCK, length=_TO_THE_END)
    assert done, "the kernel refuses no release"


def is_free(fd: int, byte: int, *, exclusive: bool) -> bool:
    """Ask whether the lock could be had now, through this descriptor."""
    kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
    return _ask(fd, byte, fcntl.F_OFD_GETLK, kind) is None


def posix_holder(fd: int, byte: int) -> Holder | None:
    """Tell who holds a byte, in whatever way: the first lock that forbids an exclusive POSIX one.

    POSIX locks of this very process are not seen: the kernel takes them for ours.
    """
    return _ask(fd, byte, fcntl.F_GETLK, fcntl.F_WRLCK)


def _set(fd: int, byte: int, kind: int, *, length: int = 1) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(kind, byte, length=length))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise LockFailed(f"byte {byte}: {os.strerror(error.errno or 0)}") from error
    return True


def _ask(fd: int, byte: int, command: int, kind: int) -> Holder | None:
    try:
        answer = fcntl.fcntl(fd, command, _flock(kind, byte))
    except OSError as error:
        raise LockFailed(f"byte {byte}: {os.strerror(error.errno or 0)}") from error
    assert isinstance(answer, bytes)
    found, _, _, _, pid = _FLOCK.unpack(answer)
    if found == fcntl.F_UNLCK:
        return None
    return Holder("WRITE" if found == fcntl.F_WRLCK else "READ", pid)


def _flock(kind: int, byte: int, *, length: int = 1) -> bytes:
    assert 0 <= byte <= BYTE_MAX, byte
    return _FLOCK.pack(kind, os.SEEK_SET, byte, length, 0)
