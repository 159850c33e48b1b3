"""The folder of a backup: files that are written once, and read without trust.

Rules:
- files are made anew (O_EXCL, 0600) in a folder of mode 0700 and are on the disk before the manifest is;
- the manifest gets its name last: a backup that was killed has none, and is none;
- a file is opened by its plain name, below the open folder, never through a link, and is a regular one;
- the manifest holds a digest of itself, and every byte of it is as it would be written again.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from pydantic import ValidationError

from app.keeping.errors import NotKept, misconfigured
from app.keeping.models import Kept, Manifest

OTHERS = 0o077
"""Rights that nobody but the owner has."""

MANIFEST = "manifest.json"
MANIFEST_BYTES_MAX = 4_000_000
CHUNK = 1 << 20
DIGEST = "sha256"
INVALID_ADVICE = "Do not use this backup: take an older one, and make a new one soon."


@contextmanager
def owner_only() -> Iterator[None]:
    """What is written in the block is its owner's alone; the process goes on as it was."""
    before = os.umask(OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def make_folder(place: Path, data_dir: Path) -> None:
    """An empty folder that only its owner reads.

    Raises: NotKept: there is something in it, or it lies in the data directory.
    """
    if place.absolute().resolve().is_relative_to(data_dir.absolute().resolve()):
        raise misconfigured(
            "BACKUP_IN_DATA_DIRECTORY",
            f"{place} lies in the data directory {data_dir}",
            "Name a folder elsewhere, best on another disk.",
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        if place.is_symlink() or not place.is_dir() or any(place.iterdir()):
            raise misconfigured(
                "BACKUP_FOLDER_NOT_EMPTY",
                f"{place} is there already, and is no empty folder",
                "Name a new folder. What a killed backup has left has no manifest.json: remove it.",
            ) from None
        place.chmod(0o700)


@contextmanager
def created(path: Path) -> Iterator[BinaryIO]:
    """A new file, on the disk at the end of the block."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_folder(place: Path) -> None:
    """Have names in a folder on the disk."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def opened(place: Path, name: str) -> Iterator[BinaryIO]:
    """A regular file of a folder, by its plain name.

    Raises: NotKept: it is missing, a link, or no file.
    """
    assert name == os.path.basename(name)
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise _invalid(place, f"{name} cannot be opened, or is a link: {error.strerror}") from error
    finally:
        os.close(folder)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _invalid(place, f"{name} is no regular file")
        yield file


def chunks_of(file: IO[bytes]) -> Iterator[bytes]:
    """A file in pieces."""
    while chunk := file.read(CHUNK):
        yield chunk


def verified(place: Path, kept: Kept) -> Iterator[bytes]:
    """The bytes of a file of a backup, in pieces; the error comes after the last one.

    Raises: NotKept: they are not those that were written.
    """
    found, size = hashlib.sha256(), 0
    with opened(place, kept.name) as file:
        for chunk in chunks_of(file):
            size += len(chunk)
            if size > kept.bytes:
                break
            found.update(chunk)
            yield chunk
    if (size, found.hexdigest()) != (kept.bytes, kept.sha256):
        raise _invalid(place, f"{kept.name} is not what was written: its size or SHA-256 differs")


def measured(path: Path, *, columns: list[str] | None = None, rows: int | None = None) -> Kept:
    """What the manifest says of a file that was written, as it lies there."""
    found = hashlib.sha256()
    with opened(path.parent, path.name) as file:
        for chunk in chunks_of(file):
            found.update(chunk)
        size = os.fstat(file.fileno()).st_size
    return Kept(name=path.name, bytes=size, sha256=found.hexdigest(), columns=columns, rows=rows)


def write_manifest(place: Path, manifest: Manifest) -> None:
    """Make a folder a backup."""
    sync_folder(place)
    new = place / f"{MANIFEST}.new"
    with created(new) as file:
        file.write(_rendered(manifest))
    new.rename(place / MANIFEST)
    sync_folder(place)
    sync_folder(place.absolute().parent)


def read_manifest(place: Path) -> Manifest:
    """What a backup says of itself.

    Raises: NotKept: it is no backup, or its manifest was changed.
    """
    if not place.is_dir():
        raise misconfigured("BACKUP_NOT_FOUND", f"there is no folder {place}", "Name the folder of a backup.")
    if not os.path.lexists(place / MANIFEST):
        raise NotKept(
            "BACKUP_UNFINISHED",
            f"{place} has no {MANIFEST}: it is no backup, or one that was killed",
            "Take another backup, and remove this folder.",
        )
    with opened(place, MANIFEST) as file:
        raw = file.read(MANIFEST_BYTES_MAX + 1)
    try:
        found: Any = json.loads(raw)
        found.pop(DIGEST)
        manifest = Manifest.model_validate_json(json.dumps(found))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise _invalid(place, f"{MANIFEST} is none of this program: {_brief(error)}") from error
    if _rendered(manifest) != raw:
        raise _invalid(place, f"{MANIFEST} was changed after it was written")
    return manifest


def _rendered(manifest: Manifest) -> bytes:
    body = manifest.model_dump(mode="json", exclude_none=True)
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**body, DIGEST: digest}, indent=2) + "\n").encode()


def _brief(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{type(error).__name__}: {error}"[:200]


def _invalid(place: Path, detail: str) -> NotKept:
    return NotKept("BACKUP_INVALID", f"{place}: {detail}", INVALID_ADVICE)
