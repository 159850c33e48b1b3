"""Whether a node, or a cluster by what its nodes say, is well. Pure: what was read is all that is known.

Rules:
- the same readings and limits give the same findings, in the same order;
- of a cluster each fault is told once, by the node that sees it worst, with all who see it;
- what could not be read is UNKNOWN, never fine.
Source: what test_slony_state, check_slony_cluster and its like look at; facts/slony.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from spark.events.health.ages import (
    is_over,
    judge_components,
    judge_ddl,
    judge_events,
    judge_pairs,
    judge_switch,
    judge_transactions,
    least_lag,
    words,
)
from spark.events.health.records import HealthFinding, Leftover, NodeReading, Severity, Thresholds
from spark.events.health.routes import judge_routes, judge_subscriptions

HELD: Final = ("sl_log_1", "sl_log_2", "sl_seqlog")
_RANK: Final = (Severity.OK, Severity.UNKNOWN, Severity.WARNING, Severity.CRITICAL)


def judge_node(reading: NodeReading, limits: Thresholds) -> list[HealthFinding]:
    """What is wrong with a node and with what it sees of others; the worst first."""
    found = [
        *_own_slon(reading),
        *judge_pairs(reading, limits),
        *judge_events(reading, limits),
        *judge_components(reading, limits),
        *judge_routes(reading),
        *judge_subscriptions(reading, limits),
        *judge_ddl(reading, limits),
        *judge_transactions(reading, limits),
        *judge_switch(reading, limits),
        *_logs(reading, limits),
        *_nodes(reading, limits),
        *_unread(reading),
    ]
    return sorted(found, key=_order)


def order_of(severity: Severity, code: str, node: int | None) -> tuple[int, str, int]:
    """Where a finding stands among others: the worst first."""
    return -_RANK.index(severity), code, node or 0


def _order(finding: HealthFinding) -> tuple[int, str, int]:
    return order_of(finding.severity, finding.code, finding.node)


def _own_slon(reading: NodeReading) -> Iterator[HealthFinding]:
    if reading.has_own_slon is False:
        yield HealthFinding(
            code="NO_OWN_SLON",
            severity=Severity.CRITICAL,
            node=reading.node,
            detail=f"the slon of node {reading.node} is not connected: it makes no SYNC, and"
            " no event comes here",
            advice=f"Start the slon of node {reading.node}, and look at its log.",
        )


def _logs(reading: NodeReading, limits: Thresholds) -> Iterator[HealthFinding]:
    """Log tables that are too large, or that slons do not read."""
    for table in HELD:
        rows = reading.table_rows.get(table)
        if rows is not None and 0 < limits.log_rows < rows:
            yield HealthFinding(
                code="LOG_TABLE_LARGE",
                severity=Severity.WARNING,
                node=reading.node,
                detail=f"{table} has about {rows:,} rows at node {reading.node}",
                advice="`lethe slony status STORE` shows who is behind and who holds the log tables back.",
                measured=float(rows),
                limit=float(limits.log_rows),
                unit="ROWS",
            )
    log = reading.log_status
    if log.needs_healing:
        yield HealthFinding(
            code="LOG_STATUS_WRONG",
            severity=Severity.CRITICAL,
            node=reading.node,
            detail=f"sl_log_status calls {log.other.name} clean, and it has rows: slons do not read them",
            advice="`lethe slony switch-log STORE` heals it.",
        )


def _nodes(reading: NodeReading, limits: Thresholds) -> Iterator[HealthFinding]:
    """Nodes that take no part and were not removed, and rows of those that were."""
    for node in reading.catalog.nodes:
        if node.has_failed or not node.is_active:
            yield HealthFinding(
                code="NODE_INACTIVE",
                severity=Severity.WARNING,
                node=node.id,
                detail=f"node {node.id} {'has failed' if node.has_failed else 'is not active'} and is still"
                " in the cluster",
                advice="Remove it by slonik (DROP NODE), or enable it.",
            )
    by_node: dict[int, list[Leftover]] = {}
    for each in reading.leftovers:
        by_node.setdefault(each.node, []).append(each)
    for forgotten, rows in sorted(by_node.items()):
        newest = max((each.newest_at for each in rows if each.newest_at is not None), default=None)
        age = timedelta.max if newest is None else reading.now - newest
        if is_over(age, limits.events):  # after DROP NODE they stay until the next cleanup
            yield _forgotten(forgotten, rows, None if newest is None else age, limits)


def _forgotten(
    node: int, rows: Sequence[Leftover], age: timedelta | None, limits: Thresholds
) -> HealthFinding:
    tables = ", ".join(sorted({each.table for each in rows}))
    old = "" if age is None else f", the newest {words(age)} old"
    return HealthFinding(
        code="NODE_FORGOTTEN",
        severity=Severity.WARNING,
        node=node,
        detail=f"{tables} has rows of node {node}, which is no node of the cluster any more{old}",
        advice="Run a cleanup: `lethe slony cleanup STORE --plan`; its events stay until they are deleted by"
        " hand, once nobody needs them.",
        measured=None if age is None else age.total_seconds(),
        limit=limits.events.total_seconds(),
        unit="SECONDS",
    )


def _unread(reading: NodeReading) -> Iterator[HealthFinding]:
    if reading.unreadable:
        yield HealthFinding(
            code="HEALTH_UNREAD",
            severity=Severity.UNKNOWN,
            node=reading.node,
            detail=f"not all is looked at: the role may not read {', '.join(reading.unreadable)}",
            advice="Grant SELECT on them to Lethe's role: `lethe store grants SLONY` prints the SQL.",
        )
    if not reading.sees_all_sessions:
        yield HealthFinding(
            code="SESSIONS_HIDDEN",
            severity=Severity.UNKNOWN,
            node=reading.node,
            detail="the role does not see other roles' transactions, which may hold back the log switch",
            advice="Grant `pg_read_all_stats` to Lethe's role.",
        )


@dataclass(frozen=True, slots=True)
class SeenFinding:
    """A finding of a cluster, and the nodes that see it."""

    finding: HealthFinding
    seen_by: tuple[int, ...]


def judge_cluster(readings: Mapping[int, NodeReading], limits: Mapping[int, Thresholds]) -> list[SeenFinding]:
    """What is wrong with a cluster, by what its nodes say; by node id.

    A receiver that by its own catalog has processed what another node waits for is not behind: its
    confirmations do not come back.
    """
    merged: dict[tuple[str, int | None, str], list[tuple[int, HealthFinding]]] = {}
    for node, reading in sorted(readings.items()):
        for finding in judge_node(reading, limits[node]):
            told = _by_receiver(finding, readings, limits[node])
            key = (told.code, told.node, told.detail if told.code == "LOG_TABLE_LARGE" else "")
            merged.setdefault(key, []).append((node, told))
    found = [_worst(each) for each in merged.values()]
    return sorted(found, key=lambda each: _order(each.finding))


def _worst(seen: list[tuple[int, HealthFinding]]) -> SeenFinding:
    _, finding = max(seen, key=lambda each: (_RANK.index(each[1].severity), each[1].measured or 0.0))
    return SeenFinding(finding, tuple(dict.fromkeys(node for node, _ in seen)))


def _by_receiver(
    finding: HealthFinding, readings: Mapping[int, NodeReading], limits: Thresholds
) -> HealthFinding:
    """The same fault, or that confirmations do not come back, where the receiver's own catalog says so."""
    receiver = None if finding.node is None else readings.get(finding.node)
    if finding.code not in ("RECEIVER_LAGS", "NEVER_CONFIRMED") or receiver is None:
        return finding
    own = [pair for pair in receiver.pairs if pair.receiver == receiver.node]
    known = {pair.origin for pair in own if pair.seqno is not None}
    if not known or any(_is_behind(receiver, readings, pair.origin, limits) for pair in own):
        return finding
    return HealthFinding(
        code="CONFIRMATIONS_STALE",
        severity=Severity.WARNING,
        node=finding.node,
        detail=f"node {receiver.node} has processed the events of the others, by its own catalog, and its"
        " confirmations do not come back",
        advice=f"Store the paths back from node {receiver.node} by slonik (STORE PATH), and look at the logs"
        " of the other slons: without its confirmations the log tables grow.",
        measured=finding.measured,
        limit=finding.limit,
        unit=finding.unit,
    )


def _is_behind(
    receiver: NodeReading, readings: Mapping[int, NodeReading], origin: int, limits: Thresholds
) -> bool:
    """Whether the origin, by its own catalog, has old events that the receiver's does not hold."""
    of_origin = readings.get(origin)
    if of_origin is None:
        return True  # nobody knows
    newest = next((each.newest_at for each in receiver.origins if each.origin == origin), None)
    made = next((each.newest_at for each in of_origin.origins if each.origin == origin), None)
    if newest is None or made is None:
        return made is not None
    return is_over(made - newest, least_lag(limits))
