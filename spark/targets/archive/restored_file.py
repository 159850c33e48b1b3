"""The file of a restore: a draft beside its place, which gets the file's name when all is in it.

A runner may die between the name and the job's end. What it noted before tells the file from a stranger's
that has the same name.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spark.targets.archive.file import prepare_directory
from spark.targets.errors import ArchiveFailed, RestoreConflict
from spark.targets.files.beneath import link_beneath, open_beneath, unlink_beneath
from spark.targets.manifest import sync_directory


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a job; `token` is its fencing token: later attempts have greater ones."""

    job_id: str
    token: int


@dataclass(frozen=True, slots=True)
class FileMark:
    """Which file it is (inode, size in bytes), and when its content was last written (ns).

    Not its device: that has another number once its file system is mounted anew.
    """

    inode: int
    size: int
    written_ns: int


def draft_of(path: Path, attempt: Attempt) -> Path:
    """Where an attempt writes until its file is whole."""
    return path.with_name(f"{_prefix(path, attempt)}{attempt.token}")


def create_draft(draft: Path) -> None:
    """Make an empty file, and its directory where there is none.

    Raises: ArchiveFailed.
    """
    try:
        prepare_directory(draft.parent)
        remove_draft(draft)
        os.close(open_beneath(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError as exc:
        raise ArchiveFailed(f"{draft}: {exc.strerror}") from exc


def mark_of(path: Path) -> FileMark:
    """What tells a file from all others.

    Raises: ArchiveFailed: it cannot be looked at.
    """
    try:
        found = os.lstat(path)
    except OSError as exc:
        raise ArchiveFailed(f"{path}: {exc.strerror}") from exc
    return FileMark(found.st_ino, found.st_size, found.st_mtime_ns)


def publish(draft: Path, path: Path) -> None:
    """Give a draft its name.

    Raises: RestoreConflict: the name is taken. ArchiveFailed: the disk refused, or a later attempt took the
        draft away.
    """
    # A link, because a rename would replace a file that has come into being meanwhile.
    try:
        link_beneath(draft, path)
        sync_directory(path.parent)
    except FileExistsError:
        raise RestoreConflict(f"{path} exists already") from None
    except OSError as exc:
        raise ArchiveFailed(f"{path}: {exc.strerror}") from exc


def remove_draft(draft: Path) -> None:
    """Take a draft away, and what SQLite left beside it."""
    for name in (draft, draft.with_name(f"{draft.name}-journal")):
        with suppress(FileNotFoundError):
            unlink_beneath(name)


def remove_earlier_drafts(path: Path, attempt: Attempt) -> None:
    """Take away what attempts before this one left: one that still runs can no longer publish.

    Raises: ArchiveFailed.
    """
    prefix = _prefix(path, attempt)
    try:
        names = [name for name in os.listdir(path.parent) if name.startswith(prefix)]
        for name in names:
            token = name.removeprefix(prefix).removesuffix("-journal")
            if token.isdecimal() and int(token) < attempt.token:
                with suppress(FileNotFoundError):
                    unlink_beneath(path.with_name(name))
    except FileNotFoundError:
        return  # no directory: nobody wrote there
    except OSError as exc:
        raise ArchiveFailed(f"{path.parent}: {exc.strerror}") from exc


def _prefix(path: Path, attempt: Attempt) -> str:
    return f".{path.name}.{attempt.job_id}."
