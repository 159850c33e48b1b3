"""Rules of a request for a SYNC at its submission."""

from datetime import datetime

from sqlmodel import Session

from app.auth.service import Caller
from app.events.cleanup.service import EarlyLook, target_fields
from app.events.syncs.models import JOB_SYNC, SyncParams, SyncRequest
from app.jobs.rows import Job
from app.jobs.submission import submit_claiming
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind
from spark.formats.slony import schema_of


def sync_resource(store: Store) -> str:
    """What makes a SYNC, as its claim and its fence name it.

    Of its own, and without the claim of the node: a SYNC takes nothing away, and a cleanup that lasts must
    not make the pieces larger.
    """
    assert store.cluster is not None, "a store of kind SLONY names its cluster"
    return f"{schema_of(store.cluster)}.sync"


def submit_sync(
    db: Session,
    store: Store,
    request: SyncRequest,
    look: EarlyLook,
    *,
    caller: Caller,
    settings: Settings,
    now: datetime,
    parent_id: str | None = None,
) -> Job:
    """Queue the job.

    Raises: StoreKindWrong, QueueFull.
    """
    require_kind(store, StoreKind.SLONY)
    params = SyncParams(interval=request.interval, target=target_fields(store))
    return submit_claiming(
        db,
        store,
        JOB_SYNC,
        params,
        resource=sync_resource(store),
        identity=look.identity,
        caller=caller,
        reason=request.reason,
        settings=settings,
        now=now,
        parent_id=parent_id,
    )
