"""Rules of a log switch at its submission."""

from datetime import datetime

from sqlmodel import Session

from app.auth.service import Caller
from app.events.cleanup.models import EventOverlap
from app.events.cleanup.node_claims import refuse_node_conflict
from app.events.cleanup.service import EarlyLook, target_fields
from app.events.cleanup.switch.models import JOB_SWITCH, SwitchParams, SwitchRequest
from app.jobs.rows import Job
from app.jobs.submission import submit_claiming
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind
from spark.formats.slony import schema_of


def switch_resource(store: Store) -> str:
    """What a switch writes, as its claim and its fence name it.

    Another one than a cleanup's: a switch that waits for confirmations must not fence off the cleanup that it
    waits for. The claim of the node keeps the two apart while they write.
    """
    assert store.cluster is not None, "a store of kind SLONY names its cluster"
    return f"{schema_of(store.cluster)}.log_switch"


def submit_switch(
    db: Session,
    store: Store,
    request: SwitchRequest,
    look: EarlyLook,
    *,
    caller: Caller,
    settings: Settings,
    now: datetime,
    parent_id: str | None = None,
) -> Job:
    """Queue the job.

    Raises: StoreKindWrong, ConflictingJob, QueueFull.
    """
    require_kind(store, StoreKind.SLONY)
    if request.overlap is EventOverlap.REFUSE:
        refuse_node_conflict(db, look.place)
    params = SwitchParams(
        action=request.action, timeout=request.timeout, overlap=request.overlap, target=target_fields(store)
    )
    return submit_claiming(
        db,
        store,
        JOB_SWITCH,
        params,
        resource=switch_resource(store),
        identity=look.identity,
        caller=caller,
        reason=request.reason,
        settings=settings,
        now=now,
        parent_id=parent_id,
    )
