"""Purges of a SymmetricDS store's tables, as the route of all purges makes them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlmodel import Session

from app.auth.service import Caller
from app.db import Database
from app.jobs.rows import Job
from app.purge.cutoff import target_parameters
from app.purge.models import PurgeParams, PurgeRequest
from app.purge.service import EarlyLook, prepare, submit_purge
from app.purge.service import submit_unseen as submit_request_unseen
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import note_target
from app.sweeps.purging import Looked

STORE_KIND: Final = StoreKind.SYMMETRICDS


def look(
    database: Database,
    store: Store,
    fields: Mapping[str, Any],
    *,
    settings: Settings,
    now: datetime,
    for_write: bool,
) -> Looked:
    """See app.sweeps.purging.

    Raises: ServiceError.
    """
    request = PurgeRequest.model_validate(fields)
    params, found = prepare(database, store, request, settings=settings, now=now, for_write=for_write)
    return Looked(params, found)


def submit(
    db: Session,
    store: Store,
    looked: Looked,
    *,
    caller: Caller,
    reason: str | None,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue the job, and keep what the look told of the target; see app.sweeps.purging.

    Raises: ConflictingJob, QueueFull.
    """
    params, early = looked.params, looked.found
    assert isinstance(params, PurgeParams), "what `look` has made"
    assert isinstance(early, EarlyLook), "what `look` has made"
    seen = early.inspection
    if seen is not None:
        note_target(db, store.id, store, identity=seen.identity, parameters=target_parameters(seen))
    return submit_purge(db, store, params, early, caller=caller, reason=reason, settings=settings, now=now)


def submit_unseen(
    db: Session,
    store: Store,
    fields: Mapping[str, Any],
    *,
    caller: Caller,
    reason: str | None,
    settings: Settings,
    now: datetime,
    parent_id: str | None,
) -> Job:
    """See app.sweeps.purging.

    Raises: StoreKindWrong, ConflictingJob, QueueFull.
    """
    request = PurgeRequest.model_validate({**fields, "reason": reason})
    return submit_request_unseen(
        db, store, request, caller=caller, settings=settings, now=now, parent_id=parent_id
    )
