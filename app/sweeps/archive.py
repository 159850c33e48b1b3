"""The archive of a sweep: opened before its first unit, closed with its manifest after the last.

Invariants:
- a job has one archive, in one place, whichever attempt writes to it;
- a sweep that keeps its rows has SUCCEEDED only with a manifest: one that cannot be written is waited for,
  whatever the reason, because every row has gone by then and nothing else is left to do;
- the proof of silence is never held up by it: what could not be written is told, and written later.
"""

import os
from pathlib import Path
from typing import Any, Final

from sqlmodel import Session

from app.archives.rows import Archive
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import archive_wait
from app.jobs.writing import EVENT_WARNING
from app.kit.durations import parse_duration
from spark.targets.archive.archive import scan_directory
from spark.targets.archive.file import job_directory, prepare_directory
from spark.targets.connection import Connection
from spark.targets.errors import ArchiveFailed, ArchiveFull, archive_failure
from spark.targets.ledger import archive_manifest
from spark.targets.manifest import MANIFEST_NAME, write_manifest_json

BYTES_PER_MB: Final = 1 << 20


def open_archive(context: JobContext, *, resource: str) -> Path:
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
                expires_at=now + parse_duration(_retention(context)),
            )
            db.add(row)
        return Path(row.directory)

    directory = context.write(note)
    _require_room(context, directory)
    return directory


def folder_of(archive: Path) -> str:
    """The archive's folder, made here: a worker elsewhere that does not see it must not write.

    Raises: ArchiveFailed.
    """
    try:
        prepare_directory(archive)
    except OSError as error:
        raise archive_failure(archive, error) from error
    return str(archive)


def end_archive(context: JobContext, conn: Connection, *, is_exact: bool) -> dict[str, Any] | None:
    """Close the archive at the end of all work; None: the job keeps nothing.

    Raises: JobWaiting: its manifest cannot be written now.
    """
    directory = archive_directory(context)
    if directory is None:
        return None
    try:
        return _close(context, conn, directory, is_exact=is_exact)
    except ArchiveFailed as error:
        raise archive_wait(context, error) from error


def archive_so_far(context: JobContext, conn: Connection, *, is_exact: bool) -> dict[str, Any] | None:
    """The archive of a job that does not go on; a folder that cannot be written is told."""
    directory = archive_directory(context)
    if directory is None:
        return None
    try:
        return _close(context, conn, directory, is_exact=is_exact)
    except ArchiveFailed as error:
        data = {"code": error.code, "detail": error.detail}
        context.note(EVENT_WARNING, data)
        return {"directory": str(directory), "error": data}


def archive_directory(context: JobContext) -> Path | None:
    """Where the job's archive lies; None when it has none."""

    def read(db: Session) -> Path | None:
        row = db.get(Archive, context.job.id)
        return None if row is None else Path(row.directory)

    return context.read(read)


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
        told = f"{place}: {free // BYTES_PER_MB} MiB are free, {least // BYTES_PER_MB} MiB must be"
        raise archive_wait(context, ArchiveFull(told))


def _close(context: JobContext, conn: Connection, directory: Path, *, is_exact: bool) -> dict[str, Any]:
    """Write the manifest beside the files and note the totals; the retention counts from here.

    Without a ledger no file can be told from an abandoned one: all count, readers de-duplicate.

    Raises: ArchiveFailed: the manifest could not be written; the totals are noted.
    """
    entries = archive_manifest(conn, context.job.id) if is_exact else scan_directory(directory).entries
    totals = {
        "files": len(entries),
        "rows": sum(entry.rows for entry in entries),
        "bytes": sum(entry.bytes for entry in entries),
    }
    counts = "EXACT" if is_exact else "AT_LEAST"

    def note(db: Session) -> None:
        row = db.get(Archive, context.job.id)
        assert row is not None, "an archive is opened before its first unit"
        expires_at = context.database.now(db) + parse_duration(_retention(context))
        row.sqlmodel_update({**totals, "counts": counts, "expires_at": expires_at})
        db.add(row)

    context.write(note)
    # An older manifest of rows that are at the target again (a restored backup) must not stay either.
    if is_exact and (entries or (directory / MANIFEST_NAME).exists()):
        write_manifest_json(directory, entries)
    return {"directory": str(directory), "counts": counts, **totals}


def _retention(context: JobContext) -> str:
    """As the parameter said when the job was submitted."""
    return str(context.job.params["archive_retention"])
