"""Archives of jobs that only a target remembers: `lethe recover STORE` takes them in again.

Without a row of its own an archive is never listed, cannot come back, and outlives its retention.

Rules:
- the paths in a target are its owner's word: what is taken in lies where Lethe puts archives of that very
  store and job, and is there on this disk;
- its retention counts from the last unit of its job.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlmodel import Session

from app.archives.rows import Archive
from app.jobs.running.instances import ID_FILE
from app.kinds.parameter import as_timedelta
from app.parameters.service import effective_by_name
from app.settings import Settings
from spark.targets.archive.file import is_safe_name, job_directory
from spark.targets.ledger import JobTotals
from spark.targets.manifest import ManifestEntry

RETENTION = "lethe.retention.archives"


@dataclass(frozen=True, slots=True)
class Adopting:
    """How `recover_target` takes archives in.

    Args:
        resource_of: what a job claimed that removed rows from some tables.
    """

    resource_of: Callable[[Collection[str]], str]

    def has(self, db: Session, job_id: str) -> bool:
        """Whether the metadata knows of an archive of a job."""
        return db.get(Archive, job_id) is not None

    def take_in(
        self,
        db: Session,
        settings: Settings,
        totals: JobTotals,
        entries: Sequence[ManifestEntry],
        *,
        store: str,
    ) -> None:
        """Take the archive of a job in, where it lies here.

        Args:
            entries: as the target has them.
        """
        if not entries or not is_safe_name(totals.job_id):
            return
        directory = job_directory(settings.effective_archive_root, store, totals.job_id)
        of_job = (store, totals.job_id)
        if {Path(entry.path).parent.parts[-2:] for entry in entries} != {of_job} or not directory.is_dir():
            return
        retention = as_timedelta(effective_by_name(db, RETENTION, {}).value)
        db.add(
            Archive(
                job_id=totals.job_id,
                store=store,
                directory=str(directory),
                instance=(settings.data_dir / ID_FILE).read_text().strip(),
                resource=self.resource_of({entry.table_name for entry in entries}),
                created_at=totals.first_committed_at,
                files=len(entries),
                rows=sum(entry.rows for entry in entries),
                bytes=sum(entry.bytes for entry in entries),
                expires_at=totals.last_committed_at + retention,
            )
        )
