"""Lethe's own rows at a target: ledger rows of jobs that ended long ago go with the next purge there."""

from datetime import timedelta
from pathlib import Path

from sqlmodel import Session

from app.archives.models import Archive
from app.jobs.context import JobContext
from app.jobs.models import Job
from app.parameters.registry import as_timedelta
from app.parameters.service import effective_by_name
from spark.targets.connection import Connection
from spark.targets.ledger import archive_manifest, list_jobs, trim_ledger
from spark.targets.manifest import write_manifest_json

TRIMMED_MAX = 50
PARAMETER = "lethe.retention.ledgers"


def trim_old_ledgers(context: JobContext, conn: Connection) -> int:
    """Forget ledger rows older than `lethe.retention.ledgers`; an archive gets its manifest written first.

    Returns: how many unit rows went.
    """

    def read(db: Session) -> timedelta:
        return as_timedelta(effective_by_name(db, PARAMETER, {}).value)

    oldest = context.clock.now() - context.write(read)
    old = [job.job_id for job in list_jobs(conn) if job.last_committed_at < oldest]
    ended = context.write(lambda db: [job_id for job_id in old if _is_ended(db, job_id)])
    for job_id in ended[:TRIMMED_MAX]:
        _keep_manifest(context, conn, job_id)
    return trim_ledger(conn, ended[:TRIMMED_MAX]) if ended else 0


def _is_ended(db: Session, job_id: str) -> bool:
    job = db.get(Job, job_id)
    return job is None or job.finished_at is not None


def _keep_manifest(context: JobContext, conn: Connection, job_id: str) -> None:
    def read(db: Session) -> str | None:
        row = db.get(Archive, job_id)
        return None if row is None else row.directory

    directory = context.write(read)
    if directory is not None and Path(directory).is_dir():
        write_manifest_json(Path(directory), archive_manifest(conn, job_id))
