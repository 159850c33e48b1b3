"""Which archive files count: one entry per unit, in a table of the target and in a JSON beside the files.

The JSON lets an archive be listed, verified and restored when its target is gone.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from spark.targets.errors import ArchiveCorrupt, archive_failure

MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One valid archive file: the rows that one committed unit removed from one table."""

    job_id: str
    unit_id: str
    table_name: str
    token: int
    path: str
    rows: int
    bytes: int
    sha256: str


def write_manifest_json(directory: Path, entries: Sequence[ManifestEntry]) -> Path:
    """Write the manifest beside its files, durably, replacing an earlier one in one step.

    Raises: ArchiveFailed: the disk refused.
    """
    document = {
        "format": MANIFEST_FORMAT,
        "entries": [asdict(replace(entry, path=Path(entry.path).name)) for entry in entries],
    }
    final = directory / MANIFEST_NAME
    draft = directory / f".{MANIFEST_NAME}.{os.getpid()}"
    try:
        with suppress(FileNotFoundError):
            draft.unlink()
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(final)
        sync_directory(directory)
    except OSError as exc:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise archive_failure(final, exc) from exc
    return final


def read_manifest_json(directory: Path) -> list[ManifestEntry] | None:
    """Read the manifest of a directory, paths as they are now; None where there is none.

    Raises: ArchiveCorrupt: it is not what `write_manifest_json` wrote.
    """
    path = directory / MANIFEST_NAME
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as exc:
        raise ArchiveCorrupt(f"{path}: {exc}") from exc
    try:
        if document["format"] != MANIFEST_FORMAT:
            raise ArchiveCorrupt(f"{path}: format {document['format']!r} is unknown")
        return [_entry(directory, fields) for fields in document["entries"]]
    except (KeyError, TypeError, ValueError, OverflowError) as exc:
        raise ArchiveCorrupt(f"{path}: not a manifest ({exc})") from exc


def lying_in(directory: Path, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """The entries of a target's table, with their files where the archive lies.

    Only the names are theirs: the table's owner may write any path there, and no other file is ever read.
    """
    return [replace(entry, path=str(directory / Path(entry.path).name)) for entry in entries]


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entry(directory: Path, fields: dict[str, str | int]) -> ManifestEntry:
    # Only the name: a manifest that was tampered with must not lead out of its directory.
    name = Path(str(fields["path"])).name
    return ManifestEntry(
        job_id=str(fields["job_id"]),
        unit_id=str(fields["unit_id"]),
        table_name=str(fields["table_name"]),
        token=int(fields["token"]),
        path=str(directory / name),
        rows=int(fields["rows"]),
        bytes=int(fields["bytes"]),
        sha256=str(fields["sha256"]),
    )
