"""How a verb that claims a part of a store's target hands in its job."""

from datetime import datetime
from typing import Any, Protocol

from sqlmodel import Session

from app.auth.service import Caller
from app.jobs.models import ThrottleSetting
from app.jobs.rows import Job
from app.jobs.service import JobRequest, refuse_conflict, submit
from app.settings import Settings
from app.stores.rows import Store


class Snapshot(Protocol):
    """Parameters of a job."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """The snapshot, as JSON holds it."""


class ClaimingParams(Snapshot, Protocol):
    """Parameters of a job that does not work beside another one of its resource."""

    @property
    def overlap(self) -> str:
        """REFUSE, or QUEUE behind it."""


def submit_claiming(
    db: Session,
    store: Store,
    kind: str,
    params: ClaimingParams,
    *,
    resource: str,
    identity: str | None = None,
    throttle: ThrottleSetting | None = None,
    caller: Caller,
    reason: str | None,
    settings: Settings,
    now: datetime,
    parent_id: str | None = None,
) -> Job:
    """Queue a job that will claim a resource of the store's target.

    Args:
        identity: of the target, where it was just asked; None: as the store knows it.

    Raises: ConflictingJob, QueueFull.
    """
    identity = identity or store.target_identity
    if params.overlap == "REFUSE":
        refuse_conflict(db, store=store.id, identity=identity, resource=resource)
    request = JobRequest(
        kind=kind,
        store=store.id,
        params=params.model_dump(mode="json"),
        requested_by=caller.name,
        token_id=caller.token_id,
        runs_on=store.runs_on,
        parent_id=parent_id,
        reason=reason,
        throttle=throttle,
        claim_identity=identity,
        claim_resource=resource,
    )
    return submit(db, request, now=now, queued_max=settings.jobs_queued_max)
