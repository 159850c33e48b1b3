"""`lethe recover STORE`: after the metadata was restored from an older copy than its targets have seen."""

from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.db import Database
from app.jobs.claims import current_epoch, raise_epoch
from app.jobs.models import Job, JobEvent
from app.jobs.states import JobState
from app.jobs.writing import state_event
from app.purge.kinds import KINDS
from app.purge.rules import fence_resource
from app.purge.service import JOB_PURGE
from app.settings import Settings
from app.stores.findings import RecoveryRead
from app.stores.models import Store
from app.stores.targets import opened
from spark.targets.connection import Connection
from spark.targets.fence import read_fence
from spark.targets.ledger import JobTotals, list_jobs, shows_ledger

RECOVERED_FOREIGN = "RECOVERED_FOREIGN"


def recover_store(database: Database, settings: Settings, store: Store, actor: str) -> RecoveryRead:
    """Raise our epoch above the target's fence and mark the jobs that only the target remembers.

    Raises: ServiceError: the target cannot be asked.
    """
    with opened(store, settings, purpose="recover") as conn:
        ledger = shows_ledger(conn)
        fence = greatest_fence(conn, store) if ledger else None
        known = list_jobs(conn) if ledger else []
    with database.transaction() as db:
        before = current_epoch(db)
        after = raise_epoch(db, fence) if fence is not None and fence > before else before
        now = database.now(db)
        foreign = [totals for totals in known if db.get(Job, totals.job_id) is None]
        for totals in foreign:
            _mark(db, store, totals, actor=actor, now=now)
    return RecoveryRead(
        epoch_before=before, epoch_after=after, foreign_jobs=[totals.job_id for totals in foreign]
    )


def greatest_fence(conn: Connection, store: Store) -> int | None:
    """The greatest token that any purge of a store has left at its target."""
    found = (read_fence(conn, fence_resource(store, kind.resource)) for kind in KINDS.values())
    return max((fence[0] for fence in found if fence is not None), default=None)


def _mark(db: Session, store: Store, totals: JobTotals, *, actor: str, now: datetime) -> None:
    """A row for a job of a lost future: it ended, and the ledger tells what it did."""
    result: dict[str, Any] = {"counts": "EXACT", "units": totals.units, "rows": totals.rows}
    db.add(
        Job(
            id=totals.job_id,
            kind=JOB_PURGE,
            store=store.id,
            state=JobState.ABORTED,
            reason=RECOVERED_FOREIGN,
            requested_by=actor,
            params={},
            result=result,
            created_at=totals.first_committed_at,
            started_at=totals.first_committed_at,
            finished_at=totals.last_committed_at,
            updated_at=now,
            event_seq=1,
        )
    )
    db.flush()
    kind, data = state_event(JobState.ABORTED, reason=RECOVERED_FOREIGN)
    db.add(JobEvent(job_id=totals.job_id, seq=1, at=now, type=kind, data=data))
    db.flush()
