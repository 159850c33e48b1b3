"""Lethe's own rows at a target: ledger rows of jobs that ended long ago go with the next job there.

Invariants:
- the ids and paths in these rows are the target's word: a manifest is written into archives of the job's own
  store alone, and nowhere else.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path

import structlog
from sqlmodel import Session, col, select

from app.archives.rows import Archive
from app.jobs.rows import Job
from app.jobs.running.context import JobContext
from app.kinds.parameter import as_timedelta
from app.parameters.service import effective_by_name
from spark.targets.archive.file import is_safe_name, job_directory
from spark.targets.connection import Connection
from spark.targets.errors import ArchiveFailed
from spark.targets.ledger import archive_manifest, list_jobs, trim_ledger
from spark.targets.manifest import MANIFEST_NAME, ManifestEntry, write_manifest_json

TRIMMED_MAX = 50
LACKING_LOOKED_AT_MAX = 100
PARAMETER = "lethe.retention.ledgers"
logger = structlog.get_logger("lethe.housekeeping")


def trim_old_ledgers(context: JobContext, conn: Connection) -> int:
    """Forget ledger rows older than `lethe.retention.ledgers`; an archive gets its manifest written first.

    So does one that still lacks it, because there was no room for it when its job ended.

    Returns: how many unit rows went.
    """

    def read(db: Session) -> timedelta:
        return as_timedelta(effective_by_name(db, PARAMETER, {}).value)

    oldest = context.clock.now() - context.read(read)
    known = list_jobs(conn)
    old = [job.job_id for job in known if job.last_committed_at < oldest]
    lately = {job.job_id for job in known} - {*old}
    for job_id in context.read(partial(_lacking, store=_store_of(context), among=lately)):
        _keep_manifest(context, conn, job_id)
    ended = context.read(lambda db: [job_id for job_id in old if _is_ended(db, job_id)])
    kept = (job_id for job_id in ended if _keep_manifest(context, conn, job_id))
    forgotten = list(islice(kept, TRIMMED_MAX))
    return trim_ledger(conn, forgotten) if forgotten else 0


def _lacking(db: Session, *, store: str, among: Collection[str]) -> list[str]:
    """Jobs of a store that have ended, and whose archive lies here without a manifest."""
    rows = db.exec(
        select(Archive.job_id, Archive.directory)
        .join(Job, col(Job.id) == col(Archive.job_id))
        .where(col(Job.finished_at).is_not(None), col(Archive.rows) > 0, col(Archive.store) == store)
        .order_by(col(Archive.job_id).desc())
        .limit(LACKING_LOOKED_AT_MAX)
    ).all()
    here = [(job_id, Path(directory)) for job_id, directory in rows if job_id in among]
    return [job_id for job_id, place in here if place.is_dir() and not (place / MANIFEST_NAME).exists()]


def _is_ended(db: Session, job_id: str) -> bool:
    job = db.get(Job, job_id)
    return job is None or job.finished_at is not None


def _keep_manifest(context: JobContext, conn: Connection, job_id: str) -> bool:
    """Whether the archive of a job can do without its ledger rows: it has its manifest, or there is none.

    One that lies on another instance's disk, or on one that cannot be written, waits for a better time; one
    of another store waits for that store's next job.
    """

    def read(db: Session) -> tuple[str, str] | None:
        row = db.get(Archive, job_id)
        return None if row is None else (row.store, row.directory)

    entries = archive_manifest(conn, job_id)
    known = context.read(read)
    if not entries:
        return True
    if known is None:
        return _keep_unknown(context, job_id, entries)
    store, directory = known
    return store == _store_of(context) and Path(directory).is_dir() and _write(Path(directory), entries)


def _keep_unknown(context: JobContext, job_id: str, entries: Sequence[ManifestEntry]) -> bool:
    """The same of a job that this metadata, an older copy, does not know: its place tells whose it is."""
    said, root = Path(entries[0].path).parent, context.settings.effective_archive_root
    if not is_safe_name(job_id) or said != job_directory(root, _store_of(context), job_id):
        return False
    return not said.is_dir() or _write(said, entries)


def _store_of(context: JobContext) -> str:
    assert context.job.store is not None, "ledgers are of a store's target"
    return context.job.store


def _write(directory: Path, entries: Sequence[ManifestEntry]) -> bool:
    try:
        write_manifest_json(directory, entries)
    except ArchiveFailed as error:
        logger.warning(
            "manifest cannot be written; its ledger rows stay", job_id=entries[0].job_id, error=error.detail
        )
        return False
    return True
