"""Files opened by the path that was looked at, and by no other.

A path that was resolved and found to lie where it may has no link in it. Somebody may put one there between
the look and the opening, so no part of such a path is followed when it is opened: each directory is opened
in the one before it. What is open is then what was looked at. The modes on the way count, also for root.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from spark.targets.files.mode_bits import refuse, wanted_by

_STEP: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PARTS_MAX: Final = 256


@contextmanager
def parent_of(path: str | os.PathLike[str], *, changed: bool = False) -> Iterator[tuple[int, str]]:
    """The directory of an absolute path, open, and the last name of the path.

    Args:
        changed: a name is made or taken away there.
    Raises: OSError: ELOOP where a part of the path is a symbolic link.
    """
    absolute = os.path.abspath(path)
    *parts, name = absolute.split(os.sep)[1:]
    if len(parts) > PARTS_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), absolute)
    fd = os.open(os.sep, _STEP)
    try:
        for part in parts:
            fd, above = _step(fd, part, absolute), fd
            os.close(above)
        refuse(os.fstat(fd), os.X_OK | os.W_OK if changed else os.X_OK, absolute)
        yield fd, name or "."
    finally:
        os.close(fd)


def open_beneath(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open an absolute path of which no part is a symbolic link.

    Raises: OSError: ELOOP where one is.
    """
    with parent_of(path, changed=bool(flags & os.O_CREAT)) as (fd, name):
        try:
            opened = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=fd)
        except NotADirectoryError as error:
            raise _named(error, fd, name, os.fspath(path)) from error
    try:
        refuse(os.fstat(opened), wanted_by(flags), os.fspath(path))
    except OSError:
        os.close(opened)
        raise
    return opened


def stat_beneath(path: str | os.PathLike[str]) -> os.stat_result:
    """Look at an absolute path of which no part is a symbolic link, but perhaps its last one."""
    with parent_of(path) as (fd, name):
        return os.stat(name, dir_fd=fd, follow_symlinks=False)


def list_beneath(directory: str | os.PathLike[str]) -> list[str]:
    """The names in a directory; no part of its path is a symbolic link."""
    fd = open_beneath(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def unlink_beneath(path: str | os.PathLike[str]) -> None:
    """Take away a name; no part of the path to it is a symbolic link."""
    with parent_of(path, changed=True) as (fd, name):
        os.unlink(name, dir_fd=fd)


def rename_beneath(old: str | os.PathLike[str], new: str | os.PathLike[str]) -> None:
    """Give a file another name; no part of either path is a symbolic link."""
    with (
        parent_of(old, changed=True) as (old_fd, old_name),
        parent_of(new, changed=True) as (new_fd, new_name),
    ):
        os.rename(old_name, new_name, src_dir_fd=old_fd, dst_dir_fd=new_fd)


def link_beneath(old: str | os.PathLike[str], new: str | os.PathLike[str]) -> None:
    """Give a file one more name; no part of either path is a symbolic link."""
    with parent_of(old) as (old_fd, old_name), parent_of(new, changed=True) as (new_fd, new_name):
        os.link(old_name, new_name, src_dir_fd=old_fd, dst_dir_fd=new_fd, follow_symlinks=False)


def make_directory_beneath(path: str | os.PathLike[str]) -> None:
    """Make a directory, for its owner alone, where none is; no part of its path is a symbolic link."""
    with parent_of(path, changed=True) as (fd, name), suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=fd)


def is_within(path: str, roots: tuple[str, ...]) -> bool:
    """Whether a resolved path lies in one of the resolved roots; no roots means everywhere."""
    return not roots or any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in roots)


def _step(fd: int, part: str, absolute: str) -> int:
    try:
        return os.open(part, _STEP, dir_fd=fd)
    except NotADirectoryError as error:
        raise _named(error, fd, part, absolute) from error
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), absolute) from error


def _named(error: OSError, fd: int, part: str, absolute: str) -> OSError:
    """O_DIRECTORY says of a link only that it is no directory."""
    try:
        is_link = os.path.islink(f"/proc/self/fd/{fd}/{part}")
    except OSError:
        is_link = False
    found = errno.ELOOP if is_link else error.errno or errno.ENOTDIR
    return OSError(found, os.strerror(found), absolute)
