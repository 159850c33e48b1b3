"""What a cleanup would remove, what it may not, and what holds that back. Nothing is written.

The rule is the program's; where the program would lose what an active receiver never confirmed, the plan
keeps it and says so as a hazard.
Source: slony-events-confirmations, 4.1.3; facts/slony, sections 2 and 3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from spark.events.cleaning.blockers import read_older_sessions
from spark.events.cleaning.log_tables import has_rows, read_origins, read_status
from spark.events.cleaning.nodelock import count_stale
from spark.events.cleaning.records import (
    CleanupPlan,
    Hazard,
    Hold,
    HoldReason,
    OriginPlan,
    PairPlan,
    Rule,
    Session,
    SwitchForecast,
    SwitchStep,
    bounds_of,
)
from spark.events.event_counts import EventCount, count_events, estimate_events
from spark.events.floors import is_single_node, newest_event, newest_sync, oldest_sync
from spark.events.records import Catalog
from spark.formats.slony import SEQNO_MAX
from spark.targets.connection import Connection

WRITERS_NAMED: Final = 5


def plan_cleanup(
    conn: Connection,
    catalog: Catalog,
    *,
    confirmed_before: datetime,
    rule: Rule = "PROGRAM",
    is_counted: bool = True,
) -> CleanupPlan:
    """What would go now; in a snapshot of its own where the caller has no transaction.

    Args:
        confirmed_before: an instant of the target's clock.
        is_counted: False: rows that would go are told by seqnos, see `CleanupPlan`; rule PROGRAM only.
    """
    if conn.in_transaction:
        return plan_inside(conn, catalog, confirmed_before=confirmed_before, rule=rule, is_counted=is_counted)
    with conn.transaction(read_only=True):
        return plan_inside(conn, catalog, confirmed_before=confirmed_before, rule=rule, is_counted=is_counted)


def plan_inside(
    conn: Connection,
    catalog: Catalog,
    *,
    confirmed_before: datetime,
    rule: Rule = "PROGRAM",
    is_counted: bool = True,
) -> CleanupPlan:
    """As `plan_cleanup`, in the transaction that is open."""
    assert is_counted or rule == "PROGRAM", "what a MANUAL cleanup leaves has to be counted"
    reading = _Reading.of(conn, catalog, is_counted=is_counted)
    pairs = reading.pairs(confirmed_before)
    # Behind the confirmations: an event is there before anybody confirms it.
    reading = replace(reading, newest=newest_event(conn, catalog.schema, catalog.local_node) or 0)
    bounds = reading.bounds(pairs)
    origins = reading.origins(pairs, bounds, rule)
    forecast, writers = _forecast(conn, catalog.schema, origins)
    hazards = (
        *_event_hazards(reading, bounds, origins, pairs),
        *_following_hazards(reading, origins, pairs),
        *_log_hazards(forecast, writers),
    )
    return CleanupPlan(
        confirmed_before=confirmed_before,
        rule=rule,
        origins=origins,
        pairs=pairs,
        nodelock_rows=count_stale(conn, catalog.schema),
        log_switch=forecast,
        hazards=hazards,
        is_counted=is_counted,
    )


@dataclass(frozen=True, slots=True)
class _Bound:
    """Of one origin: `program` is where the program would cut, `bound` where Lethe does."""

    floor: int | None
    bound: int | None
    program: int | None
    silent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Reading:
    conn: Connection
    schema: str
    local_node: int
    nodes: Mapping[int, bool]
    is_single: bool
    is_counted: bool
    newest: int = 0
    """Event that this node has made."""

    @classmethod
    def of(cls, conn: Connection, catalog: Catalog, *, is_counted: bool) -> "_Reading":
        nodes = conn.execute(
            "select no_id, coalesce(no_active, false) and not coalesce(no_failed, false)"
            f" from {conn.dialect.qualify(catalog.schema, 'sl_node')}"
        )
        single = is_single_node(conn, catalog.schema, catalog.local_node)
        return cls(conn, catalog.schema, catalog.local_node, dict(nodes), single, is_counted)

    def _table(self, name: str) -> str:
        return self.conn.dialect.qualify(self.schema, name)

    def pairs(self, confirmed_before: datetime) -> tuple[PairPlan, ...]:
        """Every pair that has confirmations."""
        confirm = self._table("sl_confirm")
        below = (
            f"(select count(*) from {confirm} c where c.con_origin = p.con_origin"
            " and c.con_received = p.con_received and c.con_seqno < p.aged)"
            if self.is_counted
            else "case when p.lowest < p.aged then p.rows - 1 else 0 end"  # one at least is kept
        )
        rows = self.conn.execute(
            "with pair as (select con_origin, con_received, count(*) as rows, min(con_seqno) as lowest,"
            " max(con_seqno) as newest, max(con_seqno) filter (where con_timestamp < :before) as aged"
            f" from {confirm} where con_origin is not null and con_received is not null"
            " and con_seqno is not null group by con_origin, con_received)"
            f" select p.con_origin, p.con_received, p.rows, p.lowest, p.newest, p.aged, {below}"
            " from pair p order by p.con_origin, p.con_received",
            {"before": confirmed_before},
        )
        return tuple(self._pair(*row) for row in rows)

    def _pair(
        self,
        origin: int,
        receiver: int,
        rows: int,
        lowest: int,
        newest: int,
        aged: int | None,
        below: int,
    ) -> PairPlan:
        if origin not in self.nodes or receiver not in self.nodes:
            return PairPlan(origin, receiver, rows, rows, None, newest, aged)
        return PairPlan(origin, receiver, rows, below, lowest if aged is None else aged, newest, aged)

    def bounds(self, pairs: Sequence[PairPlan]) -> dict[int, _Bound]:
        """Where each origin's events are cut; origins without any confirmation are not among them."""
        floors: dict[int, int] = {}
        heard: dict[int, set[int]] = {}
        for pair in pairs:
            if pair.keep is not None:
                floors[pair.origin] = min(pair.keep, floors.get(pair.origin, SEQNO_MAX))
                heard.setdefault(pair.origin, set()).update(() if self.is_ahead(pair) else (pair.receiver,))
        found = {origin: self._bound(origin, floor, heard[origin]) for origin, floor in floors.items()}
        if self.is_single:
            known = found.get(self.local_node, _Bound(None, None, None, ()))
            found[self.local_node] = self._single_bound(known)
        return found

    def is_ahead(self, pair: PairPlan) -> bool:
        """Whether a confirmation is of an event that this node has not made: see `floors`."""
        return pair.origin == self.local_node and pair.newest > self.newest

    def ahead(self, pairs: Sequence[PairPlan], origin: int) -> set[int]:
        """The receivers whose confirmations of an origin are so."""
        return {pair.receiver for pair in pairs if pair.origin == origin and self.is_ahead(pair)}

    def _bound(self, origin: int, floor: int, heard: set[int]) -> _Bound:
        silent = sorted(
            node for node, active in self.nodes.items() if active and node != origin and node not in heard
        )
        program = newest_sync(self.conn, self.schema, origin, upto=floor)
        if program is not None and program <= 0:
            program = None
        return _Bound(floor, None if silent else program, program, tuple(silent))

    def _single_bound(self, known: _Bound) -> _Bound:
        """Nobody has to confirm: everything below the newest event goes, but never the last SYNC."""
        newest = newest_event(self.conn, self.schema, self.local_node)
        if newest is None:
            return known
        sync = newest_sync(self.conn, self.schema, self.local_node, upto=newest)
        return replace(known, bound=newest if sync is None else sync, program=newest)

    def origins(
        self, pairs: Sequence[PairPlan], bounds: Mapping[int, _Bound], rule: Rule
    ) -> tuple[OriginPlan, ...]:
        """Every origin that has events."""
        cuts = {origin: found.bound for origin, found in bounds.items() if found.bound is not None}
        read = count_events if self.is_counted else estimate_events
        return tuple(
            self._origin(events, pairs, bounds.get(events.origin, _Bound(None, None, None, ())), rule)
            for events in read(self.conn, self.schema, cuts)
        )

    def _origin(self, events: EventCount, pairs: Sequence[PairPlan], found: _Bound, rule: Rule) -> OriginPlan:
        oldest = events.oldest_sync
        if found.bound is not None:
            later = oldest_sync(self.conn, self.schema, events.origin, from_seqno=found.bound)
            oldest = None if later is None else later.seqno
        seqlog, script = (0, 0) if oldest is None else self.following(events.origin, oldest)
        if oldest is not None and self.late(events.origin, oldest, pairs):
            seqlog, script = 0, 0
        return OriginPlan(
            origin=events.origin,
            rows=events.rows,
            rows_to_remove=events.below if rule == "PROGRAM" else events.syncs_below,
            syncs_to_remove=events.syncs_below,
            floor=found.floor,
            bound=found.bound,
            first_seqno=events.first,
            last_seqno=events.last,
            oldest_sync=oldest,
            held=self._held(events.origin, pairs, found, events.newest_sync),
            seqlog_rows=seqlog,
            log_script_rows=script,
        )

    def late(self, origin: int, seqno: int, pairs: Sequence[PairPlan]) -> int | None:
        """The first active receiver that has not confirmed a SYNC: it may need what came before it."""
        if origin not in self.nodes:
            return None
        done = {
            item.receiver
            for item in pairs
            if item.origin == origin and item.newest >= seqno and not self.is_ahead(item)
        }
        awaited = {node for node, active in self.nodes.items() if active} - {origin} - done
        return min(awaited, default=None)

    def following(self, origin: int, oldest: int) -> tuple[int, int]:
        """Rows of sl_seqlog and of sl_log_script that the oldest SYNC left makes useless."""
        [(seqlog, script)] = self.conn.execute(
            f"select (select count(*) from {self._table('sl_seqlog')}"
            " where seql_origin = :origin and seql_ev_seqno < :oldest),"
            f" (select count(*) from {self._table('sl_log_script')} where log_origin = :origin"
            " and log_txid < (select pg_catalog.txid_snapshot_xmin(ev_snapshot)"
            f" from {self._table('sl_event')} where ev_origin = :origin and ev_seqno = :oldest))",
            {"origin": origin, "oldest": oldest},
        )
        return int(seqlog), int(script)

    def _held(self, origin: int, pairs: Sequence[PairPlan], found: _Bound, newest: int | None) -> Hold | None:
        if self.is_single and origin == self.local_node:
            return None
        if found.silent:
            return Hold("NEVER_CONFIRMED", found.silent[0], None)
        if found.floor is None:
            return Hold("NEVER_CONFIRMED", None, None)
        if newest is None:
            return Hold("NO_SYNC", None, None)
        if found.bound == newest:
            return None
        least = next(item for item in pairs if item.origin == origin and item.keep == found.floor)
        is_young = least.aged is None or least.newest > found.floor
        why: HoldReason = "YOUNG_CONFIRMATION" if is_young else "BEHIND"
        return Hold(why, least.receiver, found.floor)

    def count_between(self, origin: int, low: int, high: int) -> int:
        """Events from `low` on, below `high`."""
        [(rows,)] = self.conn.execute(
            f"select count(*) from {self._table('sl_event')}"
            " where ev_origin = :origin and ev_seqno >= :low and ev_seqno < :high",
            {"origin": origin, "low": low, "high": high},
        )
        return int(rows)


def _forecast(
    conn: Connection, schema: str, origins: Sequence[OriginPlan]
) -> tuple[SwitchForecast, tuple[Session, ...]]:
    """The step of the log switch, and the sessions from before the switch that may still write."""
    status = read_status(conn, schema)
    if not status.is_switching:
        step: SwitchStep = "HEAL" if has_rows(conn, schema, status.other) else "START"
        return SwitchForecast(status, step, status.other), ()
    found = read_origins(conn, schema, status.other, bounds=bounds_of(origins))
    writers = read_older_sessions(conn, schema, status.other)
    is_free = not writers and all(item.is_drained for item in found)
    return SwitchForecast(status, "FINISH" if is_free else "BLOCKED", status.other, found), writers


def _event_hazards(
    reading: _Reading,
    bounds: Mapping[int, _Bound],
    origins: Sequence[OriginPlan],
    pairs: Sequence[PairPlan],
) -> list[Hazard]:
    found = []
    for item in origins:
        cut = bounds.get(item.origin)
        if cut is None or cut.program is None or cut.program == cut.bound:
            continue
        rows = reading.count_between(item.origin, cut.bound or 0, cut.program)
        if not rows:
            continue
        if cut.silent:
            detail = f"node {cut.silent[0]} never confirmed anything of origin {item.origin}"
            if cut.silent[0] in reading.ahead(pairs, item.origin):
                detail = (
                    f"node {cut.silent[0]} has confirmed what origin {item.origin} has not made: one of them"
                    " was restored from a backup; build the node anew, or it misses events"
                )
            found.append(Hazard("NEVER_CONFIRMED", item.origin, cut.silent[0], rows, detail))
        else:
            detail = f"the last SYNC of origin {item.origin} would go"
            found.append(Hazard("LAST_SYNC", item.origin, None, rows, detail))
    return found


def _following_hazards(
    reading: _Reading, origins: Sequence[OriginPlan], pairs: Sequence[PairPlan]
) -> list[Hazard]:
    found = []
    for item in origins:
        if item.oldest_sync is None:
            continue
        late = reading.late(item.origin, item.oldest_sync, pairs)
        rows = 0 if late is None else sum(reading.following(item.origin, item.oldest_sync))
        if rows:
            detail = (
                f"node {late} has not confirmed the SYNC of origin {item.origin} that follows its DDL or"
                " values of sequences"
            )
            found.append(Hazard("FOLLOWING_NOT_CONFIRMED", item.origin, late, rows, detail))
    return found


def _log_hazards(forecast: SwitchForecast, writers: Sequence[Session]) -> list[Hazard]:
    table = forecast.table
    if forecast.step == "HEAL":
        detail = f"{table} counts as clean and has rows, which are not read as long as it does"
        return [Hazard("CLEAN_LOG_HAS_ROWS", None, None, None, detail)]
    if any(item.reason == "NOT_DRAINED" for item in forecast.origins):
        return []  # the program does not truncate then
    found = []
    if writers:
        who = ", ".join(
            f"{item.pid} ({item.application_name or 'unnamed'})" for item in writers[:WRITERS_NAMED]
        )
        detail = (
            f"sessions from before the switch may still write to {table}, which would count as clean: {who}"
        )
        found.append(Hazard("LOG_STILL_WRITTEN", None, None, None, detail))
    for item in forecast.origins:
        if item.reason == "NO_SYNC":
            detail = f"origin {item.origin} has rows in {table} and no SYNC that tells what was replicated"
            found.append(Hazard("LOG_WITHOUT_SYNC", item.origin, None, None, detail))
        if item.reason == "NOT_CONFIRMED":
            detail = (
                f"origin {item.origin} has rows in {table}, and node {item.receiver} has not confirmed"
                f" SYNC {item.oldest_sync}"
            )
            found.append(Hazard("LOG_NOT_CONFIRMED", item.origin, item.receiver, None, detail))
    return found
