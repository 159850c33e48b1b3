"""The job of an audit: it reads only, so it takes no claim."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.auth.service import Caller
from app.jobs.batches.bodies import read_body
from app.jobs.engines.choice import check_engine
from app.jobs.rows import Job
from app.jobs.service import JobRequest, submit
from app.replication.agreements.service import check_address, get_agreement
from app.replication.agreements.sessions.service import consumer_of, target_of_store
from app.replication.audits.models import JOB_AUDIT, AuditParams, AuditRequest
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind


def submit_audit(
    db: Session, store: Store, body: AuditRequest, *, caller: Caller, settings: Settings, now: datetime
) -> Job:
    """Queue an audit.

    Raises: AgreementNotFound, ConsumerRefused, QueueFull, SparkDisabled, SparkNotInstalled.
    """
    check_engine(body.engine, settings)
    agreement = get_agreement(db, store.id, body.agreement_id)
    check_address(db, agreement, settings)
    params = AuditParams(
        agreement_id=agreement.id,
        range=None,
        entries=body.entries,
        engine=body.engine,
        consumer=consumer_of(agreement),
        target=target_of_store(store),
    ).model_dump(mode="json")
    if body.range is not None:
        params["range"] = {str(rid): list(found) for rid, found in body.range.items()}
    wanted = JobRequest(
        kind=JOB_AUDIT,
        store=store.id,
        params=params,
        requested_by=caller.name,
        token_id=caller.token_id,
        runs_on=store.runs_on,
        reason=body.reason,
    )
    return submit(db, wanted, now=now, queued_max=settings.jobs_queued_max)


def submit_scheduled_audit(
    db: Session,
    store: Store,
    params: Mapping[str, Any],
    caller: Caller,
    _parent_id: str | None,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue the audit of a schedule.

    Raises: InvalidRequest, StoreKindWrong, as `submit_audit`.
    """
    body = read_body(AuditRequest, params)
    require_kind(store, StoreKind.REPLICA)
    return submit_audit(db, store, body, caller=caller, settings=settings, now=now)
