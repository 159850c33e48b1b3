"""The session that a schedule asks for: by a cron, where the interval of its agreement is too plain."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.auth.service import Caller
from app.jobs.batches.bodies import read_body
from app.jobs.engines.choice import check_engine
from app.jobs.rows import Job
from app.replication.agreements.sessions.models import SessionRequest
from app.replication.agreements.sessions.service import check_request, submit_session
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind


def submit_scheduled_session(
    db: Session,
    store: Store,
    params: Mapping[str, Any],
    caller: Caller,
    _parent_id: str | None,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue the session of a schedule. The store's row is locked by the caller.

    Raises: InvalidRequest, StoreKindWrong, SparkDisabled, as `submit_session`.
    """
    body = read_body(SessionRequest, params)
    check_request(body)
    require_kind(store, StoreKind.REPLICA)
    check_engine(body.engine, settings)
    job, _ = submit_session(db, store, body, caller=caller, settings=settings, now=now)
    return job
