"""The PLAN jobs of all domains: what a request would do, and nothing written."""

from datetime import datetime
from typing import Final

from sqlmodel import Session

from app.auth.service import Caller
from app.jobs.rows import Job, JobClass
from app.jobs.service import JobRequest, submit
from app.jobs.submission import Snapshot
from app.settings import Settings
from app.stores.rows import Store

JOB_PLAN: Final = "PLAN"


def submit_plan(
    db: Session, store: Store, params: Snapshot, *, caller: Caller, settings: Settings, now: datetime
) -> Job:
    """Queue the planning; it takes no claim.

    Args:
        params: the snapshot that the job plans with.
    Raises: QueueFull.
    """
    request = JobRequest(
        kind=JOB_PLAN,
        store=store.id,
        params=params.model_dump(mode="json"),
        requested_by=caller.name,
        token_id=caller.token_id,
        runs_on=store.runs_on,
        job_class=JobClass.INTERACTIVE,
    )
    return submit(db, request, now=now, queued_max=settings.jobs_queued_max)
