"""Archives of jobs: listed, verified and restored; sweeps open and close them."""

from collections.abc import Sequence
from pathlib import Path

from sqlmodel import Session, col, select

from app.archives.models import ArchiveDetail, ArchiveFileRead, ArchiveRead
from app.archives.rows import Archive
from app.errors import NotFound
from app.kit.pagination import Page, read_page
from app.stores.errors import service_error
from spark.targets.archive.archive import list_attempts, scan_directory
from spark.targets.errors import ArchiveCorrupt
from spark.targets.manifest import (
    ManifestEntry,
    read_manifest_json,
)

UNDECIDED = "UNDECIDED"
BYTES_PER_MB = 1 << 20


class ArchiveNotFound(NotFound):
    """There is no archive of this job."""


def get_archive(db: Session, job_id: str) -> Archive:
    """The row of an archive.

    Raises: ArchiveNotFound.
    """
    row = db.get(Archive, job_id)
    if row is None:
        raise ArchiveNotFound("there is no archive of this job")
    return row


def list_archives(
    db: Session, *, stores: Sequence[str], visible: Sequence[str] | None, page_size: int, page_token: str
) -> Page[ArchiveRead]:
    """Archives, newest first."""
    filters = {"list": "archives", "stores": sorted(stores), "visible": visible}
    query = select(Archive)
    if stores:
        query = query.where(col(Archive.store).in_(list(stores)))
    if visible is not None:
        query = query.where(col(Archive.store).in_(list(visible)))
    return read_page(
        db,
        query,
        col(Archive.job_id),
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=lambda row: ArchiveRead.model_validate(row.model_dump()),
    )


def entries_on_disk(directory: Path) -> tuple[list[ManifestEntry], bool]:
    """The valid files of an archive as its own folder tells, and whether a manifest says so.

    Raises: ArchiveCorrupt: there is a manifest that cannot be read.
    """
    known = read_manifest_json(directory)
    if known is not None:
        return known, True
    return list(scan_directory(directory).entries), False


def describe_archive(row: Archive, *, is_decided: bool) -> ArchiveDetail:
    """An archive with its files, read from this machine's disk.

    Args:
        is_decided: the job has ended. Until then only the target's ledger knows which files are valid.
    Raises: Conflict: ARCHIVE_CORRUPT: the manifest beside the files cannot be read.
    """
    directory = Path(row.directory)
    try:
        entries, _ = entries_on_disk(directory)
    except ArchiveCorrupt as error:
        raise service_error(error) from error
    by_path = {entry.path: entry for entry in entries}
    files = []
    for attempt in list_attempts(directory, entries):
        entry = by_path.get(str(attempt.path))
        files.append(
            ArchiveFileRead(
                path=str(attempt.path),
                unit_id=attempt.unit_id,
                table=entry.table_name if entry else None,
                rows=entry.rows if entry else None,
                bytes=attempt.bytes,
                sha256=entry.sha256 if entry else None,
                state=attempt.state if is_decided else UNDECIDED,
            )
        )
    return ArchiveDetail(**row.model_dump(), file_list=files)
