"""Replicas that were put back from a backup: an extinction that they have not done, or have lost.

The target's own row decides. Rules:
- one that the target has not DONE, whatever was said here before, has a job, unless somebody has aborted it;
- one that was said to this service is never lost: where the target has given it up with other own changes, it
  is committed there again, as a new record.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlmodel import Session

from app.db import Database
from app.errors import ServiceError
from app.extinction.records import extinction_of
from app.extinction.rows import HOLDING, ExtinctionOrigin, ExtinctionRow, ExtinctionState
from app.extinction.service import commit_at_target
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.settings import Settings
from app.stores.rows import Store
from spark.replication.consumer.extinctions import KnownExtinction, ScanState
from spark.replication.records import ReplicaStatus

JUST_LOGGED: Final = timedelta(minutes=1)
"""It may have been committed since the target was read."""
FAILED_REST: Final = timedelta(minutes=5)
logger = structlog.get_logger("lethe.extinction")


def is_left_undone(db: Session, row: ExtinctionRow, known: KnownExtinction | None, *, now: datetime) -> bool:
    """Whether the target has not done it and nobody is, or will be, at work on it."""
    if known is None or known.state is ScanState.DONE or row.state not in HOLDING or row.job_id is None:
        return False
    job = db.get(Job, row.job_id)
    if job is None or job.finished_at is None:
        return job is None
    # `now` was read before the target was: a job that had ended by then had said DONE there before.
    rest = {JobState.SUCCEEDED: timedelta(), JobState.FAILED: FAILED_REST}.get(JobState(job.state))
    return rest is not None and now >= job.finished_at + rest


def reopen(row: ExtinctionRow) -> None:
    """Its job begins anew; what it counts is what the target counts then."""
    row.state, row.done_at = ExtinctionState.LOGGED, None


def write_again(
    database: Database,
    settings: Settings,
    store: Store,
    rows: Mapping[str, ExtinctionRow],
    *,
    known: Iterable[KnownExtinction],
    status: ReplicaStatus,
    now: datetime,
) -> None:
    """Commit what a replica has lost for good; one that waits for its own changes is left alone."""
    if status not in (ReplicaStatus.EMPTY, ReplicaStatus.ONLINE):
        return
    there = {each.extinction.id for each in known}
    for row in rows.values():
        if row.origin != ExtinctionOrigin.LOCAL or row.state not in HOLDING or row.id in there:
            continue
        if row.logged_at is None or now < row.logged_at + JUST_LOGGED:
            continue
        try:
            csn = commit_at_target(database, settings, store, extinction_of(row), now=now)
        except ServiceError as error:
            logger.info("an extinction is not at its replica", store=store.id, id=row.id, error=error.code)
            return
        logger.warning("extinction committed again", store=store.id, id=row.id, csn=csn)
