"""What a trimming would remove, what it may not, and which agreements hold that back. Nothing is written.

Every statement reads a bounded number of records; what is appended meanwhile does not count.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.errors import PlanStopped
from spark.replication.replica.replica import read_vectors
from spark.replication.trimming.units import Ceiling, ceilings
from spark.targets.connection import Connection
from spark.targets.key_order import select_by_index

PAGE_ROWS = 50_000
_INSIDE = "rid = :rid and csn > :low and csn <= :high"
ShouldStop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class RidPlan:
    """One replica id.

    Attributes:
        rows: records in the changelog.
        rows_eligible_by_age: of these, from the lowest on, logged before the cut-off.
        rows_to_remove: by age or by count, and acknowledged.
        rows_held: old enough, but not acknowledged by everybody.
        held_by: the agreements whose acknowledgement is the least, where that holds anything back.
        floor: what they have acknowledged; None: nothing, or no agreement counts.
        upto: the last record that would go.
        purged: the greatest CSN that left before.
        headroom: records that everybody has acknowledged and that stay: so far a consumer may fall back
            before it needs a total initialisation.
    """

    rid: int
    rows: int
    rows_eligible_by_age: int
    rows_to_remove: int
    rows_held: int
    held_by: tuple[str, ...]
    floor: Csn | None
    upto: Csn | None
    purged: Csn | None
    headroom: int


@dataclass(frozen=True, slots=True)
class TrimPlan:
    """A whole changelog.

    Attributes:
        excess: records above `max_entries`; 0 where there is no such bound.
    """

    rids: tuple[RidPlan, ...]
    excess: int

    @property
    def rows(self) -> int:
        """Records in the changelog."""
        return sum(item.rows for item in self.rids)

    @property
    def rows_to_remove(self) -> int:
        """How many of them would go."""
        return sum(item.rows_to_remove for item in self.rids)


def plan_trim(
    conn: Connection,
    *,
    cutoff_s: int | None,
    max_entries: int | None,
    now_s: int,
    should_stop: ShouldStop = lambda: False,
    reviewed: Mapping[int, Csn] | None = None,
) -> TrimPlan:
    """Count what would go now.

    Args:
        cutoff_s: as in TrimRules.
        max_entries: records that may stay; None: any number.
        now_s: the target's clock.
        reviewed: of each replica id the last record that may go; None: no reviewed plan bounds it.
    Raises: PlanStopped; ReplicaMissing.
    """
    limits = ceilings(conn, now_s=now_s)
    if reviewed is not None:
        limits = {rid: _within(limit, reviewed.get(rid)) for rid, limit in limits.items()}
    log = _Changelog(conn, should_stop)
    measured = {rid: log.measure(rid, limit, cutoff_s=cutoff_s) for rid, limit in limits.items()}
    excess = 0
    if max_entries is not None:
        excess = max(0, sum(found.rows for found in measured.values()) - max_entries)
    by_count = log.oldest_of_all(limits, excess)
    purged = read_vectors(conn).purged
    plans = []
    for rid, limit in sorted(limits.items()):
        found, counted = measured[rid], by_count.get(rid)
        removed, end = min(found.old, found.acknowledged), found.removable_end
        if counted is not None and (end is None or counted > end):
            end = log.old_end(rid, after=counted, upto=limit.upto, cutoff_s=cutoff_s) or counted
            removed = log.count(rid, upto=end)
        plans.append(_rid_plan(rid, limit, found, removed=removed, end=end, purged=purged.get(rid)))
    short = excess > sum(item.rows_to_remove for item in plans)
    return TrimPlan(tuple(_without_idle_holders(item, limits[item.rid], short) for item in plans), excess)


def _within(limit: Ceiling, upto: Csn | None) -> Ceiling:
    """A ceiling that is not above what was reviewed."""
    if upto is None or limit.upto is None:
        return replace(limit, upto=None)
    return replace(limit, upto=min(limit.upto, upto))


@dataclass(slots=True)
class _Measured:
    """What one pass over the records of a replica id counts.

    Attributes:
        acknowledged: up to the ceiling.
        old: from the lowest on, all logged before the cut-off.
        removable_end: the last of those that are both.
    """

    rows: int = 0
    acknowledged: int = 0
    old: int = 0
    removable_end: Csn | None = None


def _rid_plan(
    rid: int, limit: Ceiling, found: _Measured, *, removed: int, end: Csn | None, purged: Csn | None
) -> RidPlan:
    return RidPlan(
        rid=rid,
        rows=found.rows,
        rows_eligible_by_age=found.old,
        rows_to_remove=removed,
        rows_held=max(0, found.old - found.acknowledged),
        held_by=limit.floor.held_by if limit.floor else (),
        floor=limit.floor.upto if limit.floor else None,
        upto=end if removed else None,
        purged=purged,
        headroom=found.acknowledged - removed,
    )


def _without_idle_holders(plan: RidPlan, limit: Ceiling, short: bool) -> RidPlan:
    """Name agreements only where they hold back a record that would go without them."""
    holds = plan.rows_held > 0 or (short and limit.upto != limit.own)
    return plan if holds else replace(plan, held_by=())


class _Changelog:
    """Reads in pages; an end of None is before the first record."""

    def __init__(self, conn: Connection, should_stop: ShouldStop) -> None:
        self._conn = conn
        self._should_stop = should_stop
        self._table = tables_of(conn).changelog

    def measure(self, rid: int, limit: Ceiling, *, cutoff_s: int | None) -> _Measured:
        """Count all records up to the own RUV in one pass."""
        found = _Measured()
        upto, is_old = limit.upto or "", cutoff_s is not None
        for low, high, rows in self._pages(rid, after="", upto=limit.own):
            found.rows += rows
            found.acknowledged += rows if high <= upto else self._count(rid, low, min(high, upto))
            if is_old:
                end, young = self._old_part(rid, low, high, cutoff_s or 0)
                found.old += rows if young is None else self._count(rid, low, end or "")
                found.removable_end = self._last(rid, low, min(end or "", upto)) or found.removable_end
                is_old = young is None
        return found

    def count(self, rid: int, *, upto: Csn | None) -> int:
        """Records up to and with a CSN."""
        if upto is None:
            return 0
        return sum(rows for _, _, rows in self._pages(rid, after="", upto=upto))

    def old_end(self, rid: int, *, after: Csn | None, upto: Csn | None, cutoff_s: int | None) -> Csn | None:
        """The last of the records behind `after` that are all old; None: the first is young already."""
        if cutoff_s is None or upto is None:
            return None
        found = None
        for low, high, _ in self._pages(rid, after=after or "", upto=upto):
            end, young = self._old_part(rid, low, high, cutoff_s)
            found = end or found
            if young is not None:
                break
        return found

    def _old_part(self, rid: int, low: str, high: str, cutoff_s: int) -> tuple[Csn | None, str | None]:
        """Of one page: the last record before the first young one, and that one; None: there is none."""
        [(young,)] = select_by_index(
            self._conn,
            f"select min(csn) from {self._table} where {_INSIDE} and logged_at_s >= :cutoff",
            {"rid": rid, "low": low, "high": high, "cutoff": cutoff_s},
        )
        return self._last(rid, low, high, below=young or "~"), young

    def _last(self, rid: int, low: str, high: str, *, below: str = "~") -> Csn | None:
        """The last record of a stretch, below a CSN."""
        [(last,)] = select_by_index(
            self._conn,
            f"select max(csn) from {self._table} where {_INSIDE} and csn < :below",
            {"rid": rid, "low": low, "high": high, "below": below},
        )
        return None if last is None else Csn(last)

    def _count(self, rid: int, low: str, high: str) -> int:
        """Records of a stretch."""
        if high <= low:
            return 0
        [(rows,)] = select_by_index(
            self._conn,
            f"select count(*) from {self._table} where {_INSIDE}",
            {"rid": rid, "low": low, "high": high},
        )
        return int(rows)

    def oldest_of_all(self, limits: Mapping[int, Ceiling], excess: int) -> dict[int, Csn]:
        """The last of the `excess` oldest records that may go, by replica id."""
        found: dict[int, Csn] = {}
        if excess <= 0:
            return found
        ways = [self._csns(rid, upto=limit.upto) for rid, limit in limits.items() if limit.upto is not None]
        for csn, _ in zip(heapq.merge(*ways), range(excess), strict=False):
            found[csn.rid] = csn
        return found

    def _csns(self, rid: int, *, upto: Csn) -> Iterator[Csn]:
        for low, high, _ in self._pages(rid, after="", upto=upto):
            rows = select_by_index(
                self._conn,
                f"select csn from {self._table} where {_INSIDE} order by csn",
                {"rid": rid, "low": low, "high": high},
            )
            yield from (Csn(csn) for (csn,) in rows)

    def _pages(self, rid: int, *, after: str, upto: Csn) -> Iterator[tuple[str, str, int]]:
        """(after, up to, records) of stretches of at most PAGE_ROWS."""
        while True:
            if self._should_stop():
                raise PlanStopped
            bounds = {"rid": rid, "after": after, "upto": upto}
            inside = f"from {self._table} where rid = :rid and csn > :after and csn <= :upto"
            rows = select_by_index(
                self._conn,
                f"select csn {inside} order by csn limit 1 offset :skipped",
                bounds | {"skipped": PAGE_ROWS - 1},
            )
            if not rows:
                [(count,)] = select_by_index(self._conn, f"select count(*) {inside}", bounds)
                if count:
                    yield after, upto, int(count)
                return
            yield after, rows[0][0], PAGE_ROWS
            after = rows[0][0]
