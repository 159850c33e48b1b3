"""A SQLite file opened where it may lie, and proven to be the one that was looked at.

SQLite opens by name. The file is held by a descriptor of our own while it does (O_PATH: closing one frees no
lock of SQLite), and among the descriptors that SQLite has made must be one of that very file.
"""

import os
import sqlite3
import stat
import threading
from urllib.parse import quote

from spark.targets.errors import (
    TargetAuthFailed,
    TargetDatabaseMissing,
    TargetPathRefused,
    TargetUnreachable,
)
from spark.targets.files.beneath import is_within, open_beneath
from spark.targets.files.mode_bits import may

DESCRIPTORS = "/proc/self/fd"
OUTSIDE = "the path is outside of LETHE_ALLOWED_ROOTS"
_opening = threading.Lock()
"""What a connection has opened is told by what is open after it and was not before."""


def open_sqlite(path: str, *, roots: tuple[str, ...] = (), timeout_s: float = 5.0) -> sqlite3.Connection:
    """Connect to a file that is there; it is never made.

    Args:
        roots: resolved directories; none: the file may lie anywhere.
    Raises: TargetPathRefused: it lies outside of the roots. TargetDatabaseMissing, TargetAuthFailed,
        TargetUnreachable, sqlite3.Error.
    """
    real = os.path.realpath(path)
    if not is_within(real, roots):
        raise TargetPathRefused(OUTSIDE)
    _check_file(path)
    if not roots:
        return _connect(path, timeout_s)
    try:
        held = open_beneath(real, os.O_PATH)
    except OSError as error:
        raise TargetUnreachable(f"{path}: {error.strerror}") from error
    try:
        status = os.fstat(held)
        if not stat.S_ISREG(status.st_mode):
            raise TargetUnreachable(f"{path} was replaced while it was opened")
        return _connect_to((status.st_dev, status.st_ino), real, roots, timeout_s)
    finally:
        os.close(held)


def _connect(path: str, timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(path)}?mode=rw",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=timeout_s,
    )


def _connect_to(
    wanted: tuple[int, int], real: str, roots: tuple[str, ...], timeout_s: float
) -> sqlite3.Connection:
    with _opening:
        before = _descriptors()
        raw = _connect(real, timeout_s)
        made = {fd: identity for fd, identity in _descriptors().items() if before.get(fd) != identity}
        if wanted in made.values():
            return raw
        # SQLite goes on with a descriptor that an earlier connection could not close, an old one.
        if wanted in before.values() and not any(_is_outside(fd, roots) for fd in made):
            return raw
        raw.close()
        raise TargetUnreachable(f"{real} was replaced while it was opened")


def _descriptors() -> dict[str, tuple[int, int]]:
    found = {}
    for fd in os.listdir(DESCRIPTORS):
        try:
            status = os.stat(f"{DESCRIPTORS}/{fd}")
            is_path = os.readlink(f"{DESCRIPTORS}/{fd}").startswith("/")
        except OSError:
            continue  # closed meanwhile
        if is_path and stat.S_ISREG(status.st_mode) and not _is_ours(fd):
            found[fd] = (status.st_dev, status.st_ino)
    return found


def _is_ours(fd: str) -> bool:
    """A descriptor that only holds a place is none of SQLite's."""
    try:
        with open(f"/proc/self/fdinfo/{fd}") as info:
            flags = next(line for line in info if line.startswith("flags:"))
    except (OSError, StopIteration):
        return False
    return bool(int(flags.split()[1], 8) & os.O_PATH)


def _is_outside(fd: str, roots: tuple[str, ...]) -> bool:
    try:
        return not is_within(os.readlink(f"{DESCRIPTORS}/{fd}"), roots)
    except OSError:
        return False


def _check_file(path: str) -> None:
    try:
        if not os.path.isfile(path):
            raise TargetDatabaseMissing(f"{path} is not a file")
        if not may(path, os.R_OK) or not may(os.path.dirname(path), os.X_OK):
            raise TargetAuthFailed(f"{path} may not be read by this user")
    except OSError as exc:
        raise TargetUnreachable(f"{path}: {exc.strerror}") from exc


def is_read_only(path: str) -> bool:
    """Whether the modes of the file and of its directory, where the journal is made, let nobody write."""
    real = os.path.realpath(path)
    return not (may(real, os.W_OK) and may(os.path.dirname(real), os.W_OK | os.X_OK))
