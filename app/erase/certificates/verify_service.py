"""The request of a verification, and its job: it reads only, so it takes no claim."""

from datetime import datetime
from typing import Final

from sqlmodel import Session

from app.auth.service import Caller
from app.erase.certificates.models import VerifyRequest
from app.erase.certificates.verify_claims import claims_of, resolve
from app.erase.service import subject_of
from app.jobs.rows import Job
from app.jobs.service import JobRequest, submit
from app.settings import Settings
from app.stores.errors import StoreChanged
from app.stores.rows import Store

JOB_ERASURE_VERIFY: Final = "ERASURE_VERIFY"


def submit_verify(
    db: Session,
    store: Store,
    cycle_id: str,
    request: VerifyRequest,
    *,
    caller: Caller,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue the verification of a cycle.

    Raises: CycleNotFound, QueueFull, StoreChanged: the store names another directory by now.
    """
    claims = claims_of(db, store.id, resolve(db, store.id, cycle_id))
    if claims.path != store.path:
        raise StoreChanged(
            f"{claims.cycle_id} erased in {claims.path}, and the store names another directory by now"
        )
    job = JobRequest(
        kind=JOB_ERASURE_VERIFY,
        store=store.id,
        params={"cycle": claims.cycle_id, "engine": request.engine},
        requested_by=caller.name,
        token_id=caller.token_id or None,
        runs_on=store.runs_on,
        reason=request.reason,
        subject=subject_of(store.id, claims.cycle_id),
    )
    return submit(db, job, now=now, queued_max=settings.jobs_queued_max)
