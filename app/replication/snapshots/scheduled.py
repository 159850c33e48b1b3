"""The export that a schedule asks for: each run writes a file of its own."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlmodel import Session

from app.auth.service import Caller
from app.errors import InvalidRequest
from app.jobs.batches.bodies import read_body
from app.jobs.rows import Job
from app.replication.snapshots.models import ReplicaExportRequest
from app.replication.snapshots.submitting import submit_export
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind
from app.stores.targets import check_root

AT: Final = "{at}"
"""What stands in the path for the instant of a run."""
_FORM: Final = "%Y%m%dT%H%M%SZ"


def submit_scheduled_export(
    db: Session,
    store: Store,
    params: Mapping[str, Any],
    caller: Caller,
    _parent_id: str | None,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue the export of a schedule, into a file named after the run.

    Raises: InvalidRequest, StoreKindWrong, StoreUrlRefused, QueueFull.
    """
    body = read_body(ReplicaExportRequest, params)
    require_kind(store, StoreKind.REPLICA)
    if AT not in body.path:
        detail = f"write {AT} where the time of the run is to stand: each run needs a file of its own"
        raise InvalidRequest(detail, errors=[{"pointer": "/params/path", "detail": detail}])
    body = body.model_copy(update={"path": body.path.replace(AT, now.strftime(_FORM))})
    check_root(Path(body.path), settings)
    return submit_export(db, store, body, caller=caller, settings=settings, now=now)
