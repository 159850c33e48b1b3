"""Preconditions: who is asked, and what the answer is made of. Reads only."""

from typing import Final

from app.auth.service import Caller
from app.db import Database
from app.errors import InvalidRequest
from app.events.errors import UnknownNode
from app.events.nodes import ClusterViews, ask_cluster
from app.events.preconditions.models import (
    NODE_FIELDS,
    OPTIONAL,
    REQUIRED,
    MissingRead,
    NotEvaluatedRead,
    NotEvaluatedWhy,
    PreconditionRead,
    PreconditionRequest,
)
from app.settings import Settings
from app.stores.errors import service_error
from app.stores.rows import Store
from spark.events.node_views import read_view
from spark.events.preconditions import Command, Missing, Question, View, judge
from spark.targets.errors import TargetError

PURPOSE: Final = "precondition"


def check_request(request: PreconditionRequest) -> None:
    """Refuse nodes that are missing, make no sense for the command, or are the same.

    Raises: InvalidRequest: each with its pointer.
    """
    required = REQUIRED[request.command]
    allowed = {*required, *OPTIONAL.get(request.command, ())}
    faults = []
    for name in NODE_FIELDS:
        is_given = getattr(request, name) is not None
        if name in required and not is_given:
            faults.append({"pointer": f"/{name}", "detail": f"{request.command} needs it"})
        elif is_given and name not in allowed:
            faults.append({"pointer": f"/{name}", "detail": f"{request.command} has none"})
    faults += _same(request)
    if faults:
        raise InvalidRequest(f"{len(faults)} field(s) are not valid", errors=faults)


def _same(request: PreconditionRequest) -> list[dict[str, str]]:
    pairs = (
        ("receiver", request.receiver, request.provider, "is the provider"),
        ("previous_event_node", request.previous_event_node, request.event_node, "is the event node itself"),
        ("event_node", request.event_node, request.node, "is to be dropped"),
    )
    return [
        {"pointer": f"/{name}", "detail": f"node {one} {what}"}
        for name, one, other, what in pairs
        if one is not None and one == other
    ]


def evaluate(
    database: Database, settings: Settings, store: Store, request: PreconditionRequest, *, caller: Caller
) -> PreconditionRead:
    """Ask every registered node of the cluster, and judge.

    Raises: UnknownNode, InvalidRequest; ServiceError: the store's own node cannot be asked.
    """
    try:
        views = ask_cluster(database, settings, store, read_view, purpose=PURPOSE)
    except TargetError as error:
        raise service_error(error) from error
    catalog = views.own.catalog
    known = tuple(node.id for node in catalog.nodes)
    for name in NODE_FIELDS:
        node = getattr(request, name)
        if node is not None and node not in known:
            raise UnknownNode(node, pointer=f"/{name}", known=known)
    question = _question(request, own=views.own.node)
    visible = caller.visible_stores()
    seen = {
        node: view.found
        for node, view in views.views.items()
        if visible is None or view.store.id in visible or node == views.own.node
    }
    verdict = judge(question, seen, as_program=request.as_program)
    return PreconditionRead(
        met=verdict.is_met,
        command=request.command,
        as_program=request.as_program,
        missing=[_missing(each) for each in verdict.missing],
        not_evaluated=[_not_evaluated(views, node) for node in verdict.not_evaluated],
        evaluated=sorted(seen),
    )


def _question(request: PreconditionRequest, *, own: int) -> Question:
    """Raises: InvalidRequest: the node to be dropped would be the event node."""
    if request.command is Command.DROP_NODE:
        assert request.node is not None, "checked before"
        event_node = own if request.event_node is None else request.event_node
        if event_node == request.node:
            fault = {"pointer": "/event_node", "detail": "a node does not drop itself: name another one"}
            raise InvalidRequest("1 field(s) are not valid", errors=[fault])
        return Question(request.command, request.node, other=event_node)
    if request.command is Command.SUBMIT_TO_OTHER_NODE:
        assert request.event_node is not None, "checked before"
        return Question(request.command, request.event_node, other=request.previous_event_node)
    subject = request.origin if request.command is Command.CREATE_SET else request.provider
    assert subject is not None, "checked before"
    return Question(request.command, subject)


def _missing(missing: Missing) -> MissingRead:
    event = missing.event
    return MissingRead(
        origin=missing.origin,
        seqno=None if event is None else event.seqno,
        type=None if event is None else event.type,
        node=missing.node,
        confirmed_seqno=missing.confirmed_seqno,
        why=missing.why,
    )


def _not_evaluated(views: ClusterViews[View], node: int) -> NotEvaluatedRead:
    if node in views.views:
        return NotEvaluatedRead(node=node, why=NotEvaluatedWhy.NOT_PERMITTED)
    why = NotEvaluatedWhy(views.why_missing(node))
    codes = sorted({one.code for one in views.unasked if one.node in (node, None)})
    return NotEvaluatedRead(node=node, why=why, detail=", ".join(codes) or None)
