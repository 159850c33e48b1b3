"""Rules of a wait at its submission: which nodes, and which events.

What is waited for is fixed here. The deadline is the row's `created_at`, taken from the metadata database's
clock, and the timeout: that clock judges leases and wakes too, so every instance that takes the job over goes
on to the same instant. The target's clock is not asked: it may jump, and the target may be away.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlmodel import Session

from app.auth.service import Caller
from app.db import Database
from app.errors import Conflict, InvalidRequest, ServiceError, Unavailable, Unprocessable
from app.events.errors import ReceiverIsOrigin, SeqnoOfTheFuture, UnknownNode
from app.events.nodes import ClusterViews, NodeView, ask_cluster
from app.events.waits.models import (
    FOR_EVER,
    JOB_WAIT,
    AwaitedRead,
    WaitParams,
    WaitRequest,
)
from app.jobs.rows import Job, JobClass
from app.jobs.service import JobRequest, submit
from app.settings import Settings
from app.stores.errors import service_error
from app.stores.rows import Store
from spark.events.node_views import newest_seqnos
from spark.events.records import Catalog
from spark.events.waiting import Awaited, Impossible, look
from spark.targets.errors import TargetError

PURPOSE: Final = "wait"


class NodeNotRegistered(Conflict):
    """No store is registered for a node that has to be asked."""


class NodeUnreachable(Unavailable):
    """The store of a node that has to be asked does not answer."""


class NoReceivers(Conflict):
    """Nobody could confirm: no other node is active."""


class NoEvents(Conflict):
    """The origin has made no event that is known here."""


class TimeoutZeroNeedsAJob(Unprocessable):
    """To wait for ever is a job's work, not a request's."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A wait that may be submitted, and the labels of who can reach the node."""

    params: WaitParams
    runs_on: list[str]


def check_request(request: WaitRequest, *, wait_s: int) -> None:
    """Refuse what cannot be meant; nothing has been asked yet.

    Args:
        wait_s: how long the client wants to wait for the answer.
    Raises: ReceiverIsOrigin, InvalidRequest, TimeoutZeroNeedsAJob.
    """
    if request.origin != "ALL" and request.origin == request.confirmed:
        fault = {"pointer": "/confirmed", "detail": "a node does not confirm its own events"}
        raise ReceiverIsOrigin(f"node {request.origin} does not confirm its own events", errors=[fault])
    if request.seqno is not None and request.origin == "ALL":
        fault = {"pointer": "/seqno", "detail": "needs one origin: each has its own numbers"}
        raise InvalidRequest("1 field(s) are not valid", errors=[fault])
    if request.timeout == FOR_EVER and wait_s > 0:
        fault = {"pointer": "/timeout", "detail": "PT0S is for ever; leave `Prefer: wait` out"}
        raise TimeoutZeroNeedsAJob("a request does not wait for ever", errors=[fault])


def prepare_wait(
    database: Database, settings: Settings, store: Store, request: WaitRequest, *, caller: Caller
) -> Prepared:
    """Ask the cluster's nodes what is to be waited for.

    Raises: ServiceError: UnknownNode, NodeNotRegistered, NodeUnreachable, SeqnoOfTheFuture, NoEvents,
        NoReceivers, StoreForbidden; the store's own node cannot be asked.
    """
    try:
        views = ask_cluster(database, settings, store, newest_seqnos, purpose=PURPOSE)
    except TargetError as error:
        raise service_error(error) from error
    where = _wait_on(views, request, caller)
    catalog = where.catalog
    for pointer, node in (("/origin", request.origin), ("/confirmed", request.confirmed)):
        if node != "ALL":
            _require_known(catalog, node, pointer)
    awaited = _awaited(views, where, request, caller)
    params = WaitParams(
        origin=request.origin,
        confirmed=request.confirmed,
        wait_on=where.node,
        wait_on_store=where.store.id,
        timeout=request.timeout,
        awaited=awaited,
    )
    if look(awaited_of(params), catalog.nodes, {}).impossible is Impossible.NO_RECEIVERS:
        raise NoReceivers(f"no other node is active, as node {where.node} knows the cluster")
    return Prepared(params, list(where.store.runs_on))


def _wait_on(
    views: ClusterViews[dict[int, int]], request: WaitRequest, caller: Caller
) -> NodeView[dict[int, int]]:
    wanted = request.wait_on
    if wanted is None or wanted == views.own.node:
        return views.own
    _require_known(views.own.catalog, wanted, "/wait_on")
    found = views.views.get(wanted)
    if found is None:
        raise node_missing(views, wanted, "/wait_on")
    caller.require_store(found.store.id)
    return found


def node_missing(views: ClusterViews[dict[int, int]], node: int, pointer: str) -> ServiceError:
    """The problem of a node that has to be asked, and cannot be."""
    why = views.why_missing(node)
    if why == "NOT_REGISTERED":
        fault = {"pointer": pointer, "detail": "no store of this cluster is this node"}
        return NodeNotRegistered(f"node {node} is not registered as a store", errors=[fault])
    codes = sorted({one.code for one in views.unasked if one.node in (node, None)})
    return NodeUnreachable(
        f"the store of node {node} cannot be asked: {', '.join(codes)}", headers={"Retry-After": "5"}
    )


def _require_known(catalog: Catalog, node: int, pointer: str) -> None:
    if catalog.node(node) is None:
        known = tuple(each.id for each in catalog.nodes)
        raise UnknownNode(node, pointer=pointer, known=known)


def _awaited(
    views: ClusterViews[dict[int, int]], where: NodeView[dict[int, int]], request: WaitRequest, caller: Caller
) -> list[AwaitedRead]:
    """The events to wait for: of one origin, or of each active one that has made any."""
    one = request.origin != "ALL"
    origins = [request.origin] if request.origin != "ALL" else list(where.catalog.active)
    found = []
    for origin in origins:
        if origin == request.confirmed:
            continue
        newest = _newest(views, where, origin, caller)
        if one and request.seqno is not None and (newest is None or request.seqno > newest.seqno):
            raise SeqnoOfTheFuture(origin, request.seqno, last=None if newest is None else newest.seqno)
        if newest is not None:
            seqno = newest.seqno if request.seqno is None else request.seqno
            found.append(AwaitedRead(origin=origin, seqno=seqno, known_by=newest.known_by))
    if not found:
        who = f"node {request.origin}" if one else "any other active node"
        raise NoEvents(f"no event of {who} is known here")
    return found


def _newest(
    views: ClusterViews[dict[int, int]], where: NodeView[dict[int, int]], origin: int, caller: Caller
) -> AwaitedRead | None:
    """An origin's newest event, by wait_on's word, and by its own if the caller may see its store."""
    visible = caller.visible_stores()
    own = views.views.get(origin)
    asked = [where] if own is None or (visible is not None and own.store.id not in visible) else [own, where]
    known = [
        AwaitedRead(origin=origin, seqno=each.found[origin], known_by=each.node)
        for each in asked
        if origin in each.found
    ]
    return max(known, key=lambda each: each.seqno, default=None)


def awaited_of(params: WaitParams) -> Awaited:
    """What the rule compares with confirmations."""
    return Awaited(
        seqnos={each.origin: each.seqno for each in params.awaited},
        is_every_origin=params.origin == "ALL",
        receiver=None if params.confirmed == "ALL" else params.confirmed,
    )


def deadline_of(created_at: datetime, params: WaitParams) -> datetime | None:
    """When a wait gives up; None: never."""
    return None if params.timeout == FOR_EVER else created_at + params.timeout


def submit_wait(
    db: Session,
    store: Store,
    prepared: Prepared,
    *,
    reason: str | None,
    caller: Caller,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue the job; it claims nothing, and never stands behind the long ones.

    Args:
        now: of the metadata database's clock: the timeout counts from here.
    Raises: QueueFull.
    """
    job = JobRequest(
        kind=JOB_WAIT,
        store=store.id,
        params=prepared.params.model_dump(mode="json"),
        requested_by=caller.name,
        token_id=caller.token_id or None,
        job_class=JobClass.INTERACTIVE,
        runs_on=prepared.runs_on,
        reason=reason,
    )
    return submit(db, job, now=now, queued_max=settings.jobs_queued_max)
