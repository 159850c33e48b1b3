"""A new SQLite file, where a domain keeps tables of its own: WAL, for its owner alone."""

import errno
import os
import secrets
import sqlite3
from urllib.parse import quote

from spark.targets.errors import TargetDatabaseMissing, TargetReadOnly, TargetUnreachable, classify


def create_sqlite_file(path: str) -> bool:
    """Make an empty database at `path` where there is none; it appears with its content or not at all.

    Returns: whether it was made; False: somebody's file is there, and is left as it is.
    Raises: TargetDatabaseMissing: its directory is not there. TargetReadOnly: nothing may be made in it.
        TargetUnreachable: the operating system refused otherwise.
    """
    if os.path.lexists(path):
        return False
    unfinished = f"{path}.{secrets.token_hex(8)}.new"
    try:
        _make(unfinished)
        try:
            # Unlike a rename it never replaces what somebody else has made in between.
            os.link(unfinished, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(unfinished)
        _sync_directory(os.path.dirname(path))
    except sqlite3.Error as error:
        raise classify(error) from None
    except OSError as error:
        raise _named(error, path) from error
    return True


def _make(path: str) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        raw = sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None)
        try:
            raw.execute("pragma synchronous = full")
            raw.execute("pragma journal_mode = wal")
        finally:
            raw.close()
        os.fsync(fd)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _named(error: OSError, path: str) -> Exception:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return TargetDatabaseMissing(f"{os.path.dirname(path)} is not a directory")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return TargetReadOnly(f"{path}: {error.strerror}")
    return TargetUnreachable(f"{path}: {error.strerror}")
