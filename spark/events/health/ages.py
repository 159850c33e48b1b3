"""What has been going on for too long: lags, silence, transactions, DDL, a switch of the log tables.

A limit of nothing at all is none. All ages are by the node's own clock.
Source: slony-events-confirmations, 4.1; facts/slony, sections 3, 7 and 8.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from spark.events.health.records import (
    Component,
    HealthFinding,
    NodeReading,
    Pair,
    Severity,
    Thresholds,
    Transaction,
)

NAMED_MAX: Final = 10
NOTHING: Final = timedelta()
MONITOR: Final = "local_monitor"
"""It speaks once, at its start."""
CLEANUP: Final = "local_cleanup"
WORKER: Final = "remoteWorkerThread_"
END_SESSION: Final = "End the session at the database, if nobody needs it (select pg_terminate_backend(PID))."
END_PREPARED: Final = "Commit it or roll it back at the database (ROLLBACK PREPARED), if nobody needs it."


def is_over(age: timedelta, limit: timedelta) -> bool:
    """Whether something is older than it may be."""
    return limit > NOTHING and age > limit


def words(age: timedelta) -> str:
    """An age for people: `47 s`, `31 min`, `5 h 2 min`, `3 d 4 h`."""
    seconds = max(0, int(age.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def judge_pairs(reading: NodeReading, limits: Thresholds) -> Iterator[HealthFinding]:
    """Receivers that are behind, each once: by the origin that it is furthest behind."""
    active = set(reading.catalog.active)
    pairs = [pair for pair in reading.pairs if {pair.origin, pair.receiver} <= active]
    silent = _silent_origins(reading, limits)
    for receiver in sorted(active - {reading.node}):
        late = [
            pair
            for pair in pairs
            if pair.receiver == receiver and is_over(_waits(reading, pair), least_lag(limits))
        ]
        if late:
            yield _lag(reading, late, limits)
            continue
        for pair in pairs:
            age = NOTHING if pair.confirmed_at is None else reading.now - pair.confirmed_at
            told = pair.receiver == receiver and pair.origin not in silent
            if told and is_over(age, limits.confirmations):
                yield _old_confirmation(pair, age, limits.confirmations)
                break


def least_lag(limits: Thresholds) -> timedelta:
    """From when on a receiver is behind: the smaller limit of those that are set; nothing: none is."""
    given = [limit for limit in (limits.lag_warning, limits.lag_critical) if limit > NOTHING]
    return min(given, default=NOTHING)


def _waits(reading: NodeReading, pair: Pair) -> timedelta:
    return NOTHING if pair.waiting_since is None else reading.now - pair.waiting_since


def _lag(reading: NodeReading, late: list[Pair], limits: Thresholds) -> HealthFinding:
    """Of one receiver; a pair without any confirmation has a code of its own."""
    worst = max(late, key=lambda pair: _waits(reading, pair))
    age = _waits(reading, worst)
    is_critical = is_over(age, limits.lag_critical)
    limit = limits.lag_critical if is_critical else limits.lag_warning
    origins = ", ".join(str(pair.origin) for pair in late[:NAMED_MAX])
    never = all(pair.seqno is None for pair in late)
    verb = "has never confirmed any event" if never else "has not confirmed events"
    return HealthFinding(
        code="NEVER_CONFIRMED" if never else "RECEIVER_LAGS",
        severity=Severity.CRITICAL if is_critical else Severity.WARNING,
        node=worst.receiver,
        detail=f"node {worst.receiver} {verb} of node {origins} for {words(age)}: it holds back their cleanup"
        " and that the log tables are emptied",
        advice=f"Start or restart the slon of node {worst.receiver} and look at its log; a node that is gone"
        " for good is removed by slonik (DROP NODE).",
        measured=age.total_seconds(),
        limit=limit.total_seconds(),
        unit="SECONDS",
    )


def _old_confirmation(pair: Pair, age: timedelta, limit: timedelta) -> HealthFinding:
    return HealthFinding(
        code="CONFIRMATIONS_STALE",
        severity=Severity.WARNING,
        node=pair.receiver,
        detail=f"the newest confirmation of node {pair.receiver} for node {pair.origin} is {words(age)} old",
        advice=f"Look at the slon of node {pair.receiver}, at the path back from it, and at the clocks.",
        measured=age.total_seconds(),
        limit=limit.total_seconds(),
        unit="SECONDS",
    )


def _silent_origins(reading: NodeReading, limits: Thresholds) -> set[int]:
    return {
        each.origin
        for each in reading.origins
        if each.newest_at is None or is_over(reading.now - each.newest_at, limits.events)
    }


def judge_events(reading: NodeReading, limits: Thresholds) -> Iterator[HealthFinding]:
    """Origins whose events do not come, and a node that makes no SYNCs of its own."""
    active = set(reading.catalog.active)
    for each in reading.origins:
        if each.origin not in active or len(active) < 2:
            continue
        if each.origin == reading.node:
            yield from _own_syncs(reading, each.sync_at, limits)
        elif each.origin in _silent_origins(reading, limits) and limits.events > NOTHING:
            yield _stale_events(reading, each.origin, each.newest_at, limits)


def _stale_events(
    reading: NodeReading, origin: int, newest_at: datetime | None, limits: Thresholds
) -> HealthFinding:
    age = None if newest_at is None else reading.now - newest_at
    said = "no event has ever come" if age is None else f"the newest event is {words(age)} old"
    return HealthFinding(
        code="EVENTS_STALE",
        severity=Severity.CRITICAL if origin in (reading.set_origins or ()) else Severity.WARNING,
        node=origin,
        detail=f"from node {origin} {said} at node {reading.node}",
        advice=f"Look whether the slon of node {origin} runs and makes SYNCs, then at the log of node"
        f" {reading.node}'s slon and at the paths between both.",
        measured=None if age is None else age.total_seconds(),
        limit=limits.events.total_seconds(),
        unit="SECONDS",
    )


def _own_syncs(reading: NodeReading, sync_at: datetime | None, limits: Thresholds) -> Iterator[HealthFinding]:
    age = None if sync_at is None else reading.now - sync_at
    if age is None or not is_over(age, limits.syncs):
        return
    yield HealthFinding(
        code="SYNC_OVERDUE",
        severity=Severity.CRITICAL if reading.node in (reading.set_origins or ()) else Severity.WARNING,
        node=reading.node,
        detail=f"node {reading.node} has made no SYNC for {words(age)}: all that is written meanwhile comes"
        " to its subscribers as one piece",
        advice="Start the slon of this node; meanwhile `lethe slony sync STORE --if-older-than PT5M`, or a"
        " schedule of EVENT_SYNC, cuts the work into pieces.",
        measured=age.total_seconds(),
        limit=limits.syncs.total_seconds(),
        unit="SECONDS",
    )


def judge_components(reading: NodeReading, limits: Thresholds) -> Iterator[HealthFinding]:
    """Threads of the node's slon that are connected and say nothing."""
    silent_origins = _silent_origins(reading, limits)
    silent = [
        each
        for each in reading.components or ()
        if is_over(reading.now - each.since, _allowed(each, limits))
        # A worker without events has nothing to say; that they do not come is told by itself.
        and not (each.actor.startswith(WORKER) and each.node in silent_origins)
    ]
    if not silent:
        return
    oldest = min(silent, key=lambda each: each.since)
    age = reading.now - oldest.since
    named = ", ".join(
        f"{each.actor} ({each.activity or 'nothing'}, {words(reading.now - each.since)})"
        for each in silent[:NAMED_MAX]
    )
    yield HealthFinding(
        code="COMPONENT_SILENT",
        severity=Severity.WARNING,
        node=reading.node,
        detail=f"threads of slon at node {reading.node} are connected and have said nothing since: {named}",
        advice="Look at the log of this slon; where no long copy or SYNC is under way, restart it.",
        measured=age.total_seconds(),
        limit=_allowed(oldest, limits).total_seconds(),
        unit="SECONDS",
    )


def _allowed(component: Component, limits: Thresholds) -> timedelta:
    if component.actor == MONITOR or limits.components <= NOTHING:
        return NOTHING
    if component.actor == CLEANUP:
        return 2 * limits.cleanup_interval + limits.components
    return limits.components


def judge_transactions(reading: NodeReading, limits: Thresholds) -> Iterator[HealthFinding]:
    """The oldest transaction, with how many there are."""
    old = [each for each in reading.transactions if is_over(reading.now - each.since, limits.transactions)]
    if not old:
        return
    oldest = min(old, key=lambda each: each.since)
    age = reading.now - oldest.since
    more = f", and {len(old) - 1} more" if len(old) > 1 else ""
    yield HealthFinding(
        code="TRANSACTION_OLD",
        severity=Severity.WARNING,
        node=reading.node,
        detail=f"{_name(oldest)} is open for {words(age)}{more}: it holds back cleanup and log switch",
        advice=END_PREPARED if oldest.pid is None else END_SESSION,
        measured=age.total_seconds(),
        limit=limits.transactions.total_seconds(),
        unit="SECONDS",
    )


def _name(one: Transaction) -> str:
    if one.pid is None:
        return f"a prepared transaction of {one.user} in {one.database}"
    application = one.application or "unnamed"
    return f"a transaction of pid {one.pid} ({application} of {one.user} in {one.database}, {one.state})"


def judge_ddl(reading: NodeReading, limits: Thresholds) -> Iterator[HealthFinding]:
    """DDL of this node that a subscriber has not confirmed, each subscriber once."""
    for each in reading.pending_ddl or ():
        age = NOTHING if each.since is None else reading.now - each.since
        if is_over(age, limits.ddl):
            yield HealthFinding(
                code="DDL_PENDING",
                severity=Severity.WARNING,
                node=each.receiver,
                detail=f"{each.statements} statement(s) of EXECUTE SCRIPT wait for node {each.receiver} for"
                f" {words(age)}",
                advice=f"Look at the log of node {each.receiver}'s slon: a statement that fails there is"
                " tried again and again, and stops its replication.",
                measured=age.total_seconds(),
                limit=limits.ddl.total_seconds(),
                unit="SECONDS",
            )


def judge_switch(reading: NodeReading, limits: Thresholds) -> Iterator[HealthFinding]:
    """A switch of the log tables that does not end, and who holds it back."""
    log = reading.log_status
    if not log.status.is_switching or log.started_at is None:
        return
    age = reading.now - log.started_at
    if not is_over(age, limits.log_switch):
        return
    holders = [
        f"node {each.origin} has no SYNC" if each.receiver is None else f"node {each.receiver}"
        for each in log.origins
        if each.reason in ("NO_SYNC", "NOT_CONFIRMED")
    ]
    holders += [
        "a prepared transaction" if each.pid is None else f"pid {each.pid}"
        for each in log.sessions
        if each.has_lock or each.is_older
    ]
    held = ", ".join(dict.fromkeys(holders[:NAMED_MAX])) or "nobody now: the next cleanup empties it"
    yield HealthFinding(
        code="LOG_SWITCH_STUCK",
        severity=Severity.WARNING,
        node=reading.node,
        detail=f"{log.other.name} is to be emptied for {words(age)}; held back by {held}",
        advice="`lethe slony status STORE` shows all of them; see to the nodes and end the sessions named.",
        measured=age.total_seconds(),
        limit=limits.log_switch.total_seconds(),
        unit="SECONDS",
    )
