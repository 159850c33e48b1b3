"""Trimming: records leave the changelog from the oldest on, and only what every consumer has acknowledged.

Invariants:
- of each replica id a prefix goes, so `prev` never points into a hole;
- nothing goes above the replica's own RUV or above the floor of its agreements, both read again in the
  transaction that deletes, with no registration possible in between;
- the purge vector is raised in that transaction: it is the greatest CSN that ever left;
- the first CSNs (min) and the entries stay as they are; a replica that is not ONLINE loses nothing.

A record goes when it was logged here before the cut-off, or when it is among the `excess` oldest of those
that may go, over all replica ids in the order of their CSNs.
Source: design.md, Replication; facts/replication-session, section 12 with its weak points a and b.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.agreements import Floor, floors, lock_agreements
from spark.replication.errors import ReplicaNotWhole
from spark.replication.proofs.history_points import keep_trimmed
from spark.replication.records import TRIMMED
from spark.replication.replica.replica import read_vectors
from spark.targets.connection import Connection, target_now
from spark.targets.key_order import read_by_index, select_by_index
from spark.targets.transaction import Done, UnitResult, delete_rows, run_in_transaction

_STEP = "RID_"
"""The ledger counts by step: one for each replica id."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Up to where one replica id may be trimmed now, and what holds it there.

    Attributes:
        own: the replica's RUV.
        upto: nothing above may go; None: nothing at all.
        floor: of the agreements; None: none counts.
    """

    own: Csn
    upto: Csn | None
    floor: Floor | None


@dataclass(frozen=True, slots=True)
class TrimRules:
    """What is old enough.

    Attributes:
        cutoff_s: records logged here before it, seconds since 1970 by the target's clock; None: not by age.
        excess: so many of the oldest go whatever their age.
        upto: of a reviewed plan: the last record of each replica id that may go; None: no plan bounds it.
    """

    cutoff_s: int | None
    excess: int = 0
    upto: Mapping[int, Csn] | None = None

    def within(self, limits: Mapping[int, Ceiling]) -> dict[int, Ceiling]:
        """The ceilings, none above what a reviewed plan saw."""
        if self.upto is None:
            return dict(limits)
        return {
            rid: replace(limit, upto=min(limit.upto, self.upto[rid]))
            for rid, limit in limits.items()
            if rid in self.upto and limit.upto is not None
        }

    def is_old(self, logged_at_s: int) -> bool:
        """Whether a record may go by its age."""
        return self.cutoff_s is not None and logged_at_s < self.cutoff_s


@dataclass(frozen=True, slots=True)
class Span:
    """Records of one replica id, from the lowest on: `lo` and `hi` are the first and the last of `rows`."""

    rid: int
    lo: Csn
    hi: Csn
    rows: int


@dataclass(frozen=True, slots=True)
class TrimUnit:
    """One transaction over one span; picklable."""

    job_id: str
    span: Span
    token: int
    resource: str
    has_ledger: bool = True
    archive_dir: str | None = None

    @property
    def unit_id(self) -> str:
        """The same at every attempt, and safe in a file name."""
        return f"changelog-{self.span.lo}-{self.span.hi}"

    @property
    def step(self) -> str:
        """What the ledger counts it under."""
        return f"{_STEP}{self.span.rid}"


def step_of(step: str) -> int:
    """The replica id of a step of the ledger."""
    return int(step.removeprefix(_STEP))


def ceilings(conn: Connection, *, now_s: int) -> dict[int, Ceiling]:
    """How far every replica id that has changes here may be trimmed.

    Raises: ReplicaMissing: there are no tables yet.
    """
    counted = floors(conn, now_s=now_s)
    found = {}
    for rid, own in read_vectors(conn).ruv.items():
        floor = counted.of(rid)
        held = floor is not None and (floor.upto is None or floor.upto < own)
        found[rid] = Ceiling(own, floor.upto if floor is not None and held else own, floor)
    return found


def next_spans(
    conn: Connection,
    rules: TrimRules,
    limits: Mapping[int, Ceiling],
    *,
    rows_max: int,
    after: Mapping[int, Csn],
) -> list[Span]:
    """The next records to go, at most `rows_max` of each replica id; none: the work is done.

    Args:
        after: what this attempt has removed already; below it only dead rows are left to be skipped.
    """
    tables = tables_of(conn)
    chunks = {
        rid: _oldest(conn, tables, rid, upto=limit.upto, after=after.get(rid), rows_max=rows_max)
        for rid, limit in sorted(rules.within(limits).items())
        if limit.upto is not None
    }
    by_count = _oldest_of_all(chunks, rules.excess, rows_max=rows_max)
    spans = []
    for rid, chunk in chunks.items():
        rows = by_count.get(rid, 0)
        # Where the count is not satisfied yet, the rest of this chunk may still go by it: age has to wait.
        if sum(by_count.values()) >= rules.excess:
            while rows < len(chunk) and rules.is_old(chunk[rows][1]):
                rows += 1
        if rows:
            spans.append(Span(rid, chunk[0][0], chunk[rows - 1][0], rows))
    return spans


class TrimWalk:
    """The way of one attempt: what goes next, and what is left to go by count."""

    def __init__(self, rules: TrimRules) -> None:
        self._rules = rules
        self._after: dict[int, Csn] = {}

    def next_spans(self, conn: Connection, *, now_s: int, rows_max: int) -> list[Span]:
        """The next spans, by the floors as they are now; none: the work is done."""
        limits = ceilings(conn, now_s=now_s)
        return next_spans(conn, self._rules, limits, rows_max=rows_max, after=self._after)

    def note(self, span: Span, rows: int) -> None:
        """Account for a span of which `rows` have gone; what was held by then is met again."""
        self._rules = replace(self._rules, excess=max(0, self._rules.excess - rows))
        if rows >= span.rows:
            self._after[span.rid] = span.hi


def run_trim(conn: Connection, unit: TrimUnit) -> UnitResult:
    """Remove the records of a span that may go, in one transaction with the purge vector and the ledger.

    What an agreement holds by now stays.

    Raises: ReplicaNotWhole; as `run_in_transaction`.
    """
    return run_in_transaction(conn, unit, lambda: _remove(conn, unit))


def shorter(conn: Connection, span: Span, *, rows: int) -> Span:
    """The first records of a span, at most so many; the rest is found again as what is lowest."""
    assert rows >= 1, rows
    found = select_by_index(
        conn,
        f"select csn from {tables_of(conn).changelog}"
        " where rid = :rid and csn >= :lo and csn <= :hi order by csn limit :rows",
        {"rid": span.rid, "lo": span.lo, "hi": span.hi, "rows": rows},
    )
    return Span(span.rid, span.lo, Csn(found[-1][0]), len(found)) if found else span


def _oldest(
    conn: Connection, tables: ReplicaTables, rid: int, *, upto: Csn | None, after: Csn | None, rows_max: int
) -> list[tuple[Csn, int]]:
    """The first records of a replica id that may go: (CSN, when it was logged)."""
    rows = select_by_index(
        conn,
        f"select csn, logged_at_s from {tables.changelog}"
        " where rid = :rid and csn > :after and csn <= :upto order by csn limit :rows",
        {"rid": rid, "after": after or "", "upto": upto, "rows": rows_max},
    )
    return [(Csn(csn), int(logged_at_s)) for csn, logged_at_s in rows]


def _oldest_of_all(
    chunks: Mapping[int, Sequence[tuple[Csn, int]]], excess: int, *, rows_max: int
) -> dict[int, int]:
    """How many of each chunk are among the `excess` oldest; as far as the chunks can tell."""
    if excess <= 0:
        return {}
    # Behind the end of a full chunk there may be more of its replica id: nothing later is surely the oldest.
    ends = [chunk[-1][0] for chunk in chunks.values() if len(chunk) == rows_max]
    last_known = min(ends, default=None)
    counts: dict[int, int] = {}
    for (csn, _), rid in heapq.merge(*(_labelled(rid, chunk) for rid, chunk in chunks.items())):
        if excess == 0 or (last_known is not None and csn > last_known):
            break
        counts[rid] = counts.get(rid, 0) + 1
        excess -= 1
    return counts


def _labelled(rid: int, chunk: Sequence[tuple[Csn, int]]) -> Iterator[tuple[tuple[Csn, int], int]]:
    for item in chunk:
        yield item, rid


def _remove(conn: Connection, unit: TrimUnit) -> Done:
    """The deletion and the purge vector, under the locks that keep floors and status as they are."""
    tables, span = tables_of(conn), unit.span
    detail = {"rid": span.rid, "lo": span.lo, "hi": span.hi}
    _check_status(conn, tables)
    lock_agreements(conn)
    limit = ceilings(conn, now_s=int(target_now(conn).timestamp())).get(span.rid)
    if limit is None or limit.upto is None:
        return Done(0, detail=detail)
    read_by_index(conn)
    bounds = {"rid": span.rid, "lo": span.lo, "hi": min(span.hi, limit.upto)}
    [(greatest,)] = conn.execute(
        f"select max(csn) from {tables.changelog} where rid = :rid and csn >= :lo and csn <= :hi", bounds
    )
    if greatest is None:
        return Done(0, detail=detail)
    assert conn.in_transaction, "RUV and floors hold until the deletion is committed"
    assert greatest <= limit.upto, f"{greatest} is above what may go of replica {span.rid}"
    keep_trimmed(conn, tables, span.rid, greatest)
    delete = f"delete from {tables.changelog} where rid = :rid and csn >= :lo and csn <= :hi"
    rows, entry = delete_rows(conn, unit, delete, bounds, table="changelog")
    # Last: writers of this replica id wait from here to the commit only.
    conn.execute(
        f"update {tables.ruv} set purged_csn = :csn"
        " where rid = :rid and (purged_csn is null or purged_csn < :csn)",
        {"rid": span.rid, "csn": greatest},
    )
    return Done(rows, archive=entry, detail=detail)


def _check_status(conn: Connection, tables: ReplicaTables) -> None:
    """Refuse where the replica is not whole, and keep it from becoming so until the commit.

    Raises: ReplicaNotWhole.
    """
    rows = conn.execute(f"select status from {tables.replica} r{conn.dialect.share_lock('r')}")
    if rows and rows[0][0] not in TRIMMED:
        raise ReplicaNotWhole(rows[0][0])
