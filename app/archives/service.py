"""Archives of jobs: opened with the first unit, closed with the last, listed, verified and restored."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlmodel import Session, col, select

from app.archives.models import ArchiveDetail, ArchiveFileRead, ArchiveRead
from app.archives.rows import Archive
from app.errors import NotFound
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import archive_wait
from app.jobs.writing import EVENT_WARNING
from app.kit.durations import parse_duration
from app.kit.pagination import Page, read_page
from spark.targets.archive.archive import list_attempts, scan_directory
from spark.targets.archive.file import job_directory
from spark.targets.connection import Connection
from spark.targets.errors import ArchiveFailed, ArchiveFull
from spark.targets.ledger import archive_manifest
from spark.targets.manifest import (
    MANIFEST_NAME,
    ManifestEntry,
    read_manifest_json,
    write_manifest_json,
)

UNDECIDED = "UNDECIDED"
BYTES_PER_MB = 1 << 20


class ArchiveNotFound(NotFound):
    """There is no archive of this job."""


def open_archive(context: JobContext, *, retention: str, resource: str) -> Path:
    """Note where the job's archive lies, once; a later attempt goes on in the same place.

    Raises: JobWaiting: less room is left there than an archive is begun with.
    """
    store = context.job.store
    assert store is not None

    def note(db: Session) -> Path:
        row = db.get(Archive, context.job.id)
        if row is None:
            now = context.database.now(db)
            directory = job_directory(context.settings.effective_archive_root, store, context.job.id)
            row = Archive(
                job_id=context.job.id,
                store=store,
                directory=str(directory),
                instance=context.instance_id,
                resource=resource,
                created_at=now,
                counts="AT_LEAST",  # nothing was counted yet
                expires_at=now + parse_duration(retention),
            )
            db.add(row)
        return Path(row.directory)

    directory = context.write(note)
    _require_room(context, directory)
    return directory


def _require_room(context: JobContext, directory: Path) -> None:
    """See that the file system has room before anything is removed; where it cannot be asked, writing tells.

    Raises: JobWaiting.
    """
    least = context.settings.archive_free_min_mb * BYTES_PER_MB
    place = next((each for each in (directory, *directory.parents) if each.is_dir()), None)
    if place is None:
        return
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if free < least:
        raise archive_wait(
            context, f"{place}: {free // BYTES_PER_MB} MiB are free, {least // BYTES_PER_MB} MiB must be"
        )


def close_archive(
    context: JobContext, conn: Connection, directory: Path, *, has_ledger: bool, retention: str
) -> dict[str, Any]:
    """Write the manifest beside the files and note the totals; the retention counts from here.

    Without a ledger no file can be told from an abandoned one: all count, readers de-duplicate.

    Raises: ArchiveFailed: the manifest could not be written; the totals are noted.
    """
    entries = archive_manifest(conn, context.job.id) if has_ledger else scan_directory(directory).entries
    totals = {
        "files": len(entries),
        "rows": sum(entry.rows for entry in entries),
        "bytes": sum(entry.bytes for entry in entries),
    }
    counts = "EXACT" if has_ledger else "AT_LEAST"

    def note(db: Session) -> None:
        row = db.get(Archive, context.job.id)
        assert row is not None, "an archive is opened before its first unit"
        expires_at = context.database.now(db) + parse_duration(retention)
        row.sqlmodel_update({**totals, "counts": counts, "expires_at": expires_at})
        db.add(row)

    context.write(note)
    # An older manifest of rows that are at the target again (a restored backup) must not stay either.
    if has_ledger and (entries or (directory / MANIFEST_NAME).exists()):
        write_manifest_json(directory, entries)
    return {"directory": str(directory), "counts": counts, **totals}


def close_or_tell(
    context: JobContext, conn: Connection, *, has_ledger: bool, retention: str, is_end: bool
) -> dict[str, Any] | None:
    """The archive as far as it is, if there is one; a folder that cannot be written ends nothing.

    Raises: ArchiveFull: at the end of all work (`is_end`) its manifest is waited for.
    """
    directory = archive_directory(context)
    if directory is None:
        return None
    try:
        return close_archive(context, conn, directory, has_ledger=has_ledger, retention=retention)
    except ArchiveFailed as error:
        if is_end and isinstance(error, ArchiveFull):
            raise
        data = {"code": error.code, "detail": error.detail}
        context.note(EVENT_WARNING, data)
        return {"directory": str(directory), "error": data}


def archive_directory(context: JobContext) -> Path | None:
    """Where the job's archive lies; None when it has none."""

    def read(db: Session) -> Path | None:
        row = db.get(Archive, context.job.id)
        return None if row is None else Path(row.directory)

    return context.write(read)


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
    """The valid files of an archive as its own folder tells, and whether a manifest says so."""
    known = read_manifest_json(directory)
    if known is not None:
        return known, True
    return list(scan_directory(directory).entries), False


def describe_archive(row: Archive, *, is_decided: bool) -> ArchiveDetail:
    """An archive with its files, read from this machine's disk.

    Args:
        is_decided: the job has ended. Until then only the target's ledger knows which files are valid.
    """
    directory = Path(row.directory)
    entries, _ = entries_on_disk(directory)
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
