"""The health of a node, or of all registered nodes of a cluster name: asked now, at the same time.

Rules:
- whoever cannot be asked is named, and is UNKNOWN; CRITICAL where others of the cluster answer and the server
  of this one does not;
- of two databases that say they are one node only the one is judged that the cluster's paths lead to;
- two clusters may have one name: their nodes are judged apart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from app.db import Database
from app.events.health.limits import limits_of
from app.events.health.models import HealthFindingRead, HealthStatus, NodeHealthRead, SlonyHealthRead
from app.events.health.notes import note_node, note_unasked
from app.events.nodes import NodeView, Unasked, ask_all, is_same_cluster, told_apart
from app.kit.durations import duration_of
from app.parameters.service import global_values
from app.settings import Settings
from app.stores.rows import Store
from spark.events.health.judge import SeenFinding, judge_cluster, order_of
from spark.events.health.reading import read_health
from spark.events.health.records import HealthFinding, NodeReading, Severity, Thresholds, worst
from spark.targets.errors import TargetUnreachable

PURPOSE: Final = "health"
NO_ANSWER: Final = frozenset({TargetUnreachable.code, "NO_ANSWER_IN_TIME"})

View = NodeView[NodeReading]


@dataclass(slots=True)
class _Group:
    """Nodes of one cluster; `copies` say that they are a node which another database is, too."""

    views: list[View]
    copies: list[View] = field(default_factory=list)


def look(
    database: Database, settings: Settings, stores: Sequence[Store], *, is_whole: bool
) -> SlonyHealthRead:
    """Ask the nodes behind stores of one cluster name, and judge what they tell.

    Args:
        is_whole: the stores are all that there are of the cluster: a node without one is named.
    """
    assert stores, "there is a store to look at"
    views: list[View] = []
    unasked: list[Unasked] = []
    for answer in ask_all(list(stores), settings, database, read_health, PURPOSE):
        if isinstance(answer, Unasked):
            unasked.append(answer)
        else:
            views.append(answer)
    with database.reading() as db:
        values = global_values(db)
    limits = {store.id: limits_of(values, store) for store in stores}
    groups = _apart(views)
    findings = [finding for group in groups for finding in _judged(group, limits)]
    findings += [_unasked_finding(each, others_answer=bool(views)) for each in unasked]
    if is_whole and not any(each.node is None for each in unasked):
        known = {each.node for each in unasked if each.node is not None}
        findings += [finding for group in groups for finding in _unregistered(group, known)]
    _note(database, groups, unasked, limits)
    return _report(stores, groups, unasked, findings)


def _apart(views: Sequence[View]) -> list[_Group]:
    """The clusters, and in each one view of each node."""
    clusters: list[list[View]] = []
    for view in views:
        known = next((one for one in clusters if is_same_cluster(one[0].catalog, view.catalog)), None)
        if known is None:
            clusters.append([view])
        else:
            known.append(view)
    return [_without_copies(members) for members in clusters]


def _without_copies(members: Sequence[View]) -> _Group:
    said: dict[int, list[View]] = {}
    for view in members:
        said.setdefault(view.node, []).append(view)
    group = _Group(views=[])
    for answers in said.values():
        found, copies = told_apart(answers)
        group.copies += copies
        if found is not None:
            group.views.append(found)
    group.views.sort(key=lambda view: view.node)
    return group


def _judged(group: _Group, limits: dict[str, Thresholds]) -> Iterator[HealthFindingRead]:
    stores = {view.node: view.store.id for view in group.views}
    readings = {view.node: view.found for view in group.views}
    of_node = {view.node: limits[view.store.id] for view in group.views}
    for each in judge_cluster(readings, of_node):
        yield _finding(each, [stores[node] for node in each.seen_by])
    for copy in group.copies:
        yield _finding(SeenFinding(_copied(copy), (copy.node,)), [copy.store.id])


def _copied(view: View) -> HealthFinding:
    return HealthFinding(
        code="NODE_COPIED",
        severity=Severity.WARNING,
        node=view.node,
        detail=f"another database says that it is node {view.node} too, and the paths of the cluster do not"
        f" lead to store {view.store.id} alone: it is not looked at",
        advice="Remove the store of the copy, or register the node by the address that the paths have.",
    )


def _unasked_finding(one: Unasked, *, others_answer: bool) -> HealthFindingRead:
    who = f"store {one.store.id}" if one.node is None else f"node {one.node} (store {one.store.id})"
    is_away = one.code in NO_ANSWER
    finding = HealthFinding(
        code="NODE_AWAY" if is_away else "NODE_NOT_ASKED",
        severity=Severity.CRITICAL if is_away and others_answer else Severity.UNKNOWN,
        node=one.node,
        detail=f"{who} {'does not answer' if is_away else 'could not be asked'}: {one.code}, {one.detail}",
        advice=f"`lethe store check {one.store.id}` tells more, `lethe explain {one.code}` what it means.",
    )
    return _finding(SeenFinding(finding, ()), [one.store.id])


def _unregistered(group: _Group, known: set[int]) -> Iterator[HealthFindingRead]:
    """Nodes of the cluster that are no store: nobody looks at them from inside."""
    there = known | {view.node for view in (*group.views, *group.copies)}
    members = {node for view in group.views for node in view.catalog.active}
    for node in sorted(members - there):
        finding = HealthFinding(
            code="NODE_WITHOUT_STORE",
            severity=Severity.UNKNOWN,
            node=node,
            detail=f"node {node} is no registered store: only what others see of it is looked at",
            advice="Register it: `lethe store add STORE URL --kind SLONY --cluster NAME`.",
        )
        yield _finding(SeenFinding(finding, ()), [view.store.id for view in group.views])


def _finding(seen: SeenFinding, stores: list[str]) -> HealthFindingRead:
    one = seen.finding
    return HealthFindingRead.model_validate(
        {
            "code": one.code,
            "severity": HealthStatus(one.severity.value),
            "node": one.node,
            "seen_by": stores,
            "detail": one.detail,
            "advice": one.advice,
            "measured": None if one.measured is None else round(one.measured, 3),
            "limit": one.limit,
            "unit": one.unit,
        }
    )


def _note(
    database: Database, groups: Sequence[_Group], unasked: Sequence[Unasked], limits: dict[str, Thresholds]
) -> None:
    for group in groups:
        for view in group.views:
            note_node(database, view.store, view.found, limits[view.store.id])
    for each in unasked:
        code = "NODE_AWAY" if each.code in NO_ANSWER else "NODE_NOT_ASKED"
        note_unasked(database, each.store, each.node, code)


def _report(
    stores: Sequence[Store],
    groups: Sequence[_Group],
    unasked: Sequence[Unasked],
    findings: list[HealthFindingRead],
) -> SlonyHealthRead:
    seen: dict[str, list[Severity]] = {store.id: [] for store in stores}
    for each in findings:
        for store in each.seen_by:
            seen[store].append(Severity(each.severity.value))
    status = {store: HealthStatus(worst(found).value) for store, found in seen.items()}
    nodes = [_node(view, status[view.store.id]) for group in groups for view in group.views]
    nodes += [
        _nothing(view.store, view.node, status[view.store.id]) for group in groups for view in group.copies
    ]
    nodes += [_nothing(each.store, each.node, status[each.store.id]) for each in unasked]
    return SlonyHealthRead(
        cluster=stores[0].cluster or "",
        status=HealthStatus(worst([Severity(each.severity.value) for each in findings]).value),
        nodes=sorted(nodes, key=lambda each: (each.node is None, each.node or 0, each.store)),
        findings=sorted(findings, key=_order),
    )


def _order(finding: HealthFindingRead) -> tuple[int, str, int]:
    return order_of(Severity(finding.severity.value), finding.code, finding.node)


def _node(view: View, status: HealthStatus) -> NodeHealthRead:
    reading = view.found
    own = next((each.sync_at for each in reading.origins if each.origin == reading.node), None)
    oldest = min((each.since for each in reading.transactions), default=None)
    return NodeHealthRead(
        store=view.store.id,
        node=view.node,
        status=status,
        as_of=reading.now,
        lag=_shown(longest_wait(reading)),
        sync_age=None if own is None else _shown(reading.now - own),
        transaction_age=None if oldest is None else _shown(reading.now - oldest),
        table_rows={table: rows for table, rows in reading.table_rows.items() if rows is not None},
    )


def longest_wait(reading: NodeReading) -> timedelta:
    """Age of the oldest event here that an active node waits to confirm; nothing where all have."""
    active = set(reading.catalog.active)
    waits = [
        reading.now - pair.waiting_since
        for pair in reading.pairs
        if pair.waiting_since is not None and {pair.origin, pair.receiver} <= active
    ]
    return max(waits, default=timedelta())


def _shown(age: timedelta) -> timedelta | None:
    return duration_of(max(0.0, age.total_seconds()))


def _nothing(store: Store, node: int | None, status: HealthStatus) -> NodeHealthRead:
    return NodeHealthRead(
        store=store.id,
        node=node,
        status=status,
        as_of=None,
        lag=None,
        sync_age=None,
        transaction_age=None,
        table_rows={},
    )
