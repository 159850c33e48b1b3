"""Preconditions: what is asked of whom, and what the answer is made of. Reads only.

A wait is stateless: what it waits for is fixed at its first look, told in every answer, and comes back with
the next request. Nothing is kept here, at the target or in the metadata.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from app.auth.service import Caller
from app.db import Database
from app.events.errors import UnknownNode
from app.events.nodes import ClusterViews, Unasked, ask_all, ask_cluster
from app.events.preconditions.holders import held_by
from app.events.preconditions.models import (
    NEW_NODES,
    NODE_FIELDS,
    AwaitedEvent,
    MissingRead,
    NotEvaluatedRead,
    NotEvaluatedWhy,
    PreconditionRead,
    PreconditionRequest,
)
from app.events.preconditions.question import question_of
from app.settings import Settings
from app.stores.errors import service_error
from app.stores.rows import Store
from spark.events.preconditions.judge import judge
from spark.events.preconditions.reading import read_again, read_first
from spark.events.preconditions.records import Fixed, Missing, Newest, Question, View, What
from spark.targets.errors import TargetError

PURPOSE: Final = "precondition"
UNKNOWN_TYPE: Final = "event"
"""Of an event that a client names by its number alone."""
AGAIN_MAX_S: Final = 10.0
"""For one look of a wait; a node that hangs must not hold up what the others tell."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question after a look at it.

    Args:
        cluster: as all nodes told it at the first look.
        views: what each node told last; only of those that the caller may see.
        unasked: stores that told nothing at the last look.
        fixed: up to where is waited.
    """

    store: Store
    request: PreconditionRequest
    question: Question
    cluster: ClusterViews[View]
    hidden: frozenset[int]
    views: Mapping[int, View]
    unasked: tuple[Unasked, ...]
    fixed: Fixed
    needed: frozenset[int]
    answer: PreconditionRead

    @property
    def has_to_ask_all(self) -> bool:
        """Whether somebody's word is needed who has not told what it knows since the first look."""
        return any(node not in self.cluster.views for node in self.needed)


def ask_first(
    database: Database,
    settings: Settings,
    store: Store,
    request: PreconditionRequest,
    *,
    caller: Caller,
    max_s: float,
) -> Asked:
    """Ask every registered node of the cluster, and judge.

    Args:
        max_s: for all other nodes together; who has not answered then was not asked.
    Raises: UnknownNode, InvalidRequest; ServiceError: the store's own node cannot be asked.
    """
    command = request.command
    try:
        cluster = ask_cluster(
            database,
            settings,
            store,
            lambda conn, catalog: read_first(conn, catalog, command),
            purpose=PURPOSE,
            max_s=max_s,
        )
    except TargetError as error:
        raise service_error(error) from error
    _require_known(cluster, request)
    cluster, hidden = _as_seen_by(caller, cluster)
    return _judged(
        store,
        request,
        question_of(request, own=cluster.own.node),
        cluster,
        hidden,
        {node: view.found for node, view in cluster.views.items() if node not in hidden},
        cluster.unasked,
        {(each.what, each.origin): _newest(each) for each in request.awaited},
    )


def ask_again(database: Database, settings: Settings, asked: Asked) -> Asked:
    """Look once more: only at the nodes whose word counts, and only at what may have changed.

    Nobody is to be asked for its newest events again: `has_to_ask_all` says where somebody has to.
    """
    assert not asked.has_to_ask_all, "their newest events are not known"
    stores = {
        node: view.store
        for node, view in asked.cluster.views.items()
        if node in asked.needed and node not in asked.hidden
    }
    command, views = asked.request.command, dict(asked.views)
    unasked: list[Unasked] = []
    answers = ask_all(
        list(stores.values()),
        settings,
        database,
        lambda conn, catalog: read_again(conn, catalog, command),
        PURPOSE,
        max_s=AGAIN_MAX_S,
    )
    for node, answer in zip(stores, answers, strict=True):
        views.pop(node, None)
        if isinstance(answer, Unasked):
            unasked.append(Unasked(answer.store, node, answer.code, answer.detail))
        elif answer.node == node:
            views[node] = _with_events(answer.found, asked.cluster.views[node].found)
    silent = {each.store.id for each in unasked}
    kept = [each for each in asked.cluster.unasked if each.store.id not in silent]
    return _judged(
        asked.store,
        asked.request,
        asked.question,
        asked.cluster,
        asked.hidden,
        views,
        (*kept, *unasked),
        asked.fixed,
    )


def _as_seen_by(caller: Caller, cluster: ClusterViews[View]) -> tuple[ClusterViews[View], frozenset[int]]:
    """The cluster without stores that told nothing and are none of the caller's; the nodes hidden from it.

    Whether a hidden store answers is nothing that its silence may tell: both are NOT_PERMITTED.
    """
    visible = caller.visible_stores()
    if visible is None:
        return cluster, frozenset()
    own, unasked = cluster.own.node, [each for each in cluster.unasked if each.store.id in visible]
    silent = {each.node for each in cluster.unasked if each.store.id not in visible}
    seen = {node for node, view in cluster.views.items() if node == own or view.store.id in visible}
    seen_silent = {each.node for each in unasked if each.node not in cluster.views}
    hidden = set(cluster.views) | {node for node in silent if node is not None}
    if None in silent:  # it may be any
        hidden |= {node.id for node in cluster.own.catalog.nodes}
    return replace(cluster, unasked=tuple(unasked)), frozenset(hidden - seen - seen_silent)


def _with_events(light: View, full: View) -> View:
    return replace(light, any=full.any, config=full.config, drop_set=full.drop_set)


def _require_known(cluster: ClusterViews[View], request: PreconditionRequest) -> None:
    known = tuple(node.id for node in cluster.own.catalog.nodes)
    for name in NODE_FIELDS:
        node = getattr(request, name)
        if node is not None and node not in known and (request.command, name) not in NEW_NODES:
            raise UnknownNode(node, pointer=f"/{name}", known=known)


def _judged(
    store: Store,
    request: PreconditionRequest,
    question: Question,
    cluster: ClusterViews[View],
    hidden: frozenset[int],
    views: Mapping[int, View],
    unasked: tuple[Unasked, ...],
    fixed: Fixed,
) -> Asked:
    verdict = judge(question, views, as_program=request.as_program, fixed=fixed)
    fixed = {**fixed, **verdict.fixed}
    now = replace(cluster, unasked=unasked)
    not_evaluated = [_not_evaluated(now, node, hidden) for node in verdict.not_evaluated]
    answer = PreconditionRead(
        met=verdict.is_met,
        command=request.command,
        as_program=request.as_program,
        missing=[_missing(each) for each in verdict.missing],
        not_evaluated=not_evaluated,
        evaluated=sorted(views),
        awaited=[
            _awaited(what, origin, event) for (what, origin), event in sorted(fixed.items(), key=_place)
        ],
        held_by=held_by(verdict, views, not_evaluated, store=store.id),
    )
    return Asked(store, request, question, cluster, hidden, views, unasked, fixed, verdict.needed, answer)


def _place(item: tuple[tuple[What, int], Newest | None]) -> tuple[str, int]:
    (what, origin), _ = item
    return what, origin


def _newest(awaited: AwaitedEvent) -> Newest | None:
    return None if awaited.seqno is None else Newest(awaited.seqno, awaited.type or UNKNOWN_TYPE)


def _awaited(what: What, origin: int, event: Newest | None) -> AwaitedEvent:
    seqno, kind = (None, None) if event is None else (event.seqno, event.type)
    return AwaitedEvent(what=what, origin=origin, seqno=seqno, type=kind)


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


def _not_evaluated(cluster: ClusterViews[View], node: int, hidden: frozenset[int]) -> NotEvaluatedRead:
    if node in hidden:
        return NotEvaluatedRead(node=node, why=NotEvaluatedWhy.NOT_PERMITTED)
    codes = sorted({one.code for one in cluster.unasked if one.node in (node, None)})
    was_there = node in cluster.views
    why = NotEvaluatedWhy.UNREACHABLE if was_there else NotEvaluatedWhy(cluster.why_missing(node))
    return NotEvaluatedRead(node=node, why=why, detail=", ".join(codes) or None)
