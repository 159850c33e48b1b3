"""Which files of an archive count: those that a manifest names, each once."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spark.targets.errors import ArchiveCorrupt
from spark.targets.manifest import MANIFEST_NAME, ManifestEntry, read_manifest_json

MANIFESTS_MAX: Final = 100_000
PART_BYTES: Final = 16 * 2**20


def named_files(path: Path) -> list[ManifestEntry]:
    """The entries of all manifests in a directory and below, in the order of jobs and units.

    Raises: ArchiveCorrupt: there is no manifest, one is damaged, or two entries are of the same unit: a copy
        of an archive beside it would count rows twice; a link leads to a folder that is not below.
    """
    found: list[ManifestEntry] = []
    count = 0
    for directory, folders, names in os.walk(path, onerror=_refuse):
        folders.sort()
        for folder in folders:
            _refuse_outside(path, Path(directory) / folder)
        if MANIFEST_NAME in names:
            count += 1
            if count > MANIFESTS_MAX:
                raise ArchiveCorrupt(f"{path} has more than {MANIFESTS_MAX} manifests; name a part of it")
            found += read_manifest_json(Path(directory)) or []
    if not count:
        raise ArchiveCorrupt(
            f"{path} has no {MANIFEST_NAME}, and without one no file counts; give the archive of a job that "
            "has ended, or a folder above it"
        )
    _refuse_twice(found)
    return sorted(found, key=lambda entry: (entry.job_id, entry.unit_id, entry.path))


def _refuse_outside(path: Path, folder: Path) -> None:
    """Links are not followed: one into what is read anyway is passed over, another would leave rows out."""
    if folder.is_symlink() and not folder.resolve().is_relative_to(path.resolve()):
        raise ArchiveCorrupt(
            f"{folder} is a link to {folder.resolve()}, which is not below {path}; links are not followed: "
            "mount it there, or read it by itself"
        )


def _refuse(error: OSError) -> None:
    raise ArchiveCorrupt(f"{error.filename}: {error.strerror}") from error


def _refuse_twice(entries: Sequence[ManifestEntry]) -> None:
    units: dict[tuple[str, str], ManifestEntry] = {}
    files: set[str] = set()
    for entry in entries:
        other = units.setdefault((entry.job_id, entry.unit_id), entry)
        if other is not entry:
            raise ArchiveCorrupt(
                f"unit {entry.unit_id} of {entry.job_id} is named twice: {other.path} and {entry.path}; "
                "read one of the copies"
            )
        if entry.path in files:
            raise ArchiveCorrupt(f"{entry.path} is named by two units; its manifest is not as it was written")
        files.add(entry.path)
