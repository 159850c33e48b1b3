"""The job of a feed: the rules at its submission, for a request, a schedule and a batch.

Rules:
- whoever asks may see both stores: the replica by the route, the node by its name in the body;
- a replica is filled by one feed: jobs that fill it, imports among them, share one claim.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlmodel import Session

from app.auth.rows import Token
from app.auth.scopes import Scope
from app.auth.service import Caller, judge
from app.errors import InvalidRequest, ScopeMissing, ServiceError
from app.jobs.batches.bodies import read_body
from app.jobs.rows import Job
from app.jobs.service import JobRequest, refuse_conflict, submit
from app.replication.agreements.sessions.service import target_of_store
from app.replication.snapshots.submitting import import_resource
from app.settings import Settings
from app.slony_feed.models import JOB_FEED, SlonyFeedParams, SlonyFeedRequest
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import get_store, require_kind


def node_of_store(store: Store) -> str:
    """What tells one node of a store from another, to those too who may not see that store."""
    return sha256(json.dumps([store.url, store.cluster]).encode()).hexdigest()


def find_source(db: Session, name: str, caller: Caller) -> Store:
    """The store of the node, which the caller must see.

    Raises: StoreForbidden, StoreNotFound, StoreKindWrong.
    """
    caller.require_store(name)
    found = get_store(db, name)
    require_kind(found, StoreKind.SLONY)
    return found


def submit_feed(
    db: Session,
    store: Store,
    body: SlonyFeedRequest,
    *,
    source: Store,
    caller: Caller,
    settings: Settings,
    now: datetime,
    parent_id: str | None = None,
) -> Job:
    """Queue a feed. The store's row is locked by the caller.

    Raises: ConflictingJob, QueueFull.
    """
    resource = import_resource(store)
    refuse_conflict(db, store=store.id, identity=store.target_identity, resource=resource)
    params = SlonyFeedParams(
        source=source.id,
        sets=sorted(set(body.sets)),
        tables=sorted(set(body.tables)),
        prefix=body.prefix,
        first_copy=body.first_copy,
        syncs_max=body.syncs_max,
        target=target_of_store(store),
        node=node_of_store(source),
    )
    wanted = JobRequest(
        kind=JOB_FEED,
        store=store.id,
        params=params.model_dump(mode="json"),
        requested_by=caller.name,
        token_id=caller.token_id or None,
        runs_on=sorted({*store.runs_on, *source.runs_on}),
        parent_id=parent_id,
        reason=body.reason,
        claim_identity=store.target_identity,
        claim_resource=resource,
    )
    return submit(db, wanted, now=now, queued_max=settings.jobs_queued_max)


def submit_feed_child(
    db: Session,
    store: Store,
    params: Mapping[str, Any],
    caller: Caller,
    parent_id: str | None,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue the feed of a schedule, or of one store of a batch.

    Raises: InvalidRequest, StoreKindWrong, ScopeMissing, Unauthenticated, TokenExpired, ConflictingJob,
        QueueFull.
    """
    body = read_body(SlonyFeedRequest, params)
    asking = _asking(db, caller, now=now)
    if Scope.DATA_READ not in asking.scopes:
        raise ScopeMissing(f"this needs the scope {Scope.DATA_READ}", extra={"scope": str(Scope.DATA_READ)})
    try:
        source = find_source(db, body.source, asking)
    except ServiceError as error:
        detail = f"no store of kind {StoreKind.SLONY} that this token may see"
        raise InvalidRequest(detail, errors=[{"pointer": "/params/source", "detail": detail}]) from error
    require_kind(store, StoreKind.REPLICA)
    return submit_feed(
        db, store, body, source=source, caller=caller, settings=settings, now=now, parent_id=parent_id
    )


def _asking(db: Session, caller: Caller, *, now: datetime) -> Caller:
    """Who asks. The later children of a batch are made without rights: those count that its token has now.

    Raises: Unauthenticated: it was revoked, or has no row, as one of an identity provider. TokenExpired.
    """
    return caller if caller.scopes else judge(db.get(Token, caller.token_id), now=now)
