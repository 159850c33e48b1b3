"""A new SQLite file, where a domain keeps tables of its own: WAL, for its owner alone."""

import errno
import os
import secrets
import sqlite3
from contextlib import ExitStack

from spark.targets.errors import (
    TargetDatabaseMissing,
    TargetPathRefused,
    TargetReadOnly,
    TargetUnreachable,
    classify,
)
from spark.targets.files.beneath import is_within, link_beneath, open_beneath, unlink_beneath
from spark.targets.sqlite_opening import OUTSIDE, open_sqlite


def create_sqlite_file(path: str, *, roots: tuple[str, ...] = ()) -> bool:
    """Make an empty database at `path` where there is none; it appears with its content or not at all.

    Args:
        roots: resolved directories in which it may lie; none: anywhere.
    Returns: whether it was made; False: somebody's file is there, and is left as it is.
    Raises: TargetDatabaseMissing: its directory is not there. TargetReadOnly: nothing may be made in it.
        TargetPathRefused: it would lie outside of the roots. TargetUnreachable: the operating system refused
        otherwise.
    """
    if os.path.lexists(path):
        return False
    path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    if not is_within(path, roots):
        raise TargetPathRefused(OUTSIDE)
    unfinished = f"{path}.{secrets.token_hex(8)}.new"
    try:
        _make(unfinished, roots)
        try:
            # Unlike a rename it never replaces what somebody else has made in between.
            link_beneath(unfinished, path)
        except FileExistsError:
            return False
        finally:
            unlink_beneath(unfinished)
        _sync_directory(os.path.dirname(path))
    except sqlite3.Error as error:
        raise classify(error) from None
    except OSError as error:
        raise _named(error, path) from error
    return True


def _make(path: str, roots: tuple[str, ...]) -> None:
    fd = open_beneath(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    with ExitStack() as always, ExitStack() as undo:
        always.callback(os.close, fd)
        undo.callback(unlink_beneath, path)
        raw = open_sqlite(path, roots=roots)
        try:
            raw.execute("pragma synchronous = full")
            raw.execute("pragma journal_mode = wal")
        finally:
            raw.close()
        os.fsync(fd)
        undo.pop_all()


def _sync_directory(directory: str) -> None:
    fd = open_beneath(directory, os.O_RDONLY | os.O_DIRECTORY)
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
