"""`/v1/stores/{s}/slony-feeds`: a node's changes, carried into this replica."""

from typing import Annotated, Final

from fastapi import Depends, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import Condition, clock_of, database_of, requires, settings_of
from app.auth.actions import Action
from app.auth.mutation import IdempotencyKeyHeader
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.jobs.job_answer import job_answer
from app.jobs.models import JobRead
from app.jobs.rows import Job
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.agreements.sessions.api import replica_store
from app.slony_feed.models import SlonyFeedRequest
from app.slony_feed.submitting import find_source, submit_feed
from app.stores.api import StoreId
from app.stores.service import get_store

router = new_router(tags=["replication"])
READS: Final = Condition(Scope.DATA_READ, "always: the node's rows are read")
Feeder = Annotated[Caller, Depends(requires(Scope.REPLICATION_WRITE, READS))]


@router.post(
    "/v1/stores/{store_id}/slony-feeds",
    status_code=202,
    response_model=JobRead,
    summary="Carry a Slony-I node's changes into a replica",
    operation_id="feed_replica",
    responses=problems(404, 409, 429),
)
def post_feed(
    store_id: StoreId,
    body: SlonyFeedRequest,
    request: Request,
    caller: Feeder,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with the job. Each SYNC is one transaction here, with the feed's cursor: nothing is lost or double.

    A blank replica gets a first copy. The job fails with NEEDS_TOTAL where the node has not all that follows,
    with FEED_NOT_ALONE where somebody else has written here, with FEED_DIFFERS where another feed fills it.
    """
    caller.require(Scope.DATA_READ)
    settings, now = settings_of(request), clock_of(request).now()
    replica_store(database_of(request), store_id, caller)

    def queue(db: Session) -> Job:
        source = find_source(db, body.source, caller)
        store = get_store(db, store_id, lock=True)
        return submit_feed(db, store, body, source=source, caller=caller, settings=settings, now=now)

    return job_answer(
        request,
        caller,
        queue,
        action=Action.SLONY_FEED,
        store_id=store_id,
        body=body,
        audit=body.model_dump(mode="json"),
    )
