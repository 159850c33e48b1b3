"""Purging tombstones: entries of deleted keys go once no change from before the delete can come any more.

Invariants:
- nothing goes above the ceiling, which is read again in the transaction that deletes: no batch, no local
  write and no registration comes between;
- the bound (`buried`) is raised in that transaction, before the delete: a change from below it that comes all
  the same is refused, whatever it is a change of, and a deleted key never comes back unseen;
- so is the generator: whatever the clock does then, no local write is below the bound;
- live entries, RUV, changelog and purge vector stay as they are; a replica that is not whole loses nothing.

Locks: session, generator, agreements, entries by their keys.
Source: design.md, Replication; facts/replication-session, section 11 (purge delay).
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.agreements import lock_agreements
from spark.replication.csn_generator import (
    ClockSkewExceeded,
    GeneratorState,
    TimestampOutOfRange,
    adjust,
)
from spark.replication.errors import ReplicaNotWhole
from spark.replication.records import TRIMMED
from spark.replication.replica.buried import raise_bound
from spark.replication.replica.conditions import hold_arrivals
from spark.replication.replica.replica import lock_replica, save_generator
from spark.replication.session_errors import ClockSkewed
from spark.replication.tombstones.ceiling import ceiling
from spark.replication.tombstones.plan import (
    BETWEEN,
    FIRST_KEY,
    REMOVABLE,
    EntryKey,
    ShouldStop,
    TombstoneRules,
    between,
    pages,
)
from spark.targets.connection import Connection, target_now
from spark.targets.key_order import read_by_index, select_by_index
from spark.targets.transaction import Done, UnitResult, delete_rows, run_in_transaction

STEP: Final = "TOMBSTONES"
"""What the ledger counts all of them under."""


@dataclass(frozen=True, slots=True)
class KeySpan:
    """Tombstones side by side: behind `after`, up to and with `upto`; `first` and `last` of their CSNs."""

    after: EntryKey
    upto: EntryKey
    rows: int
    first: Csn
    last: Csn


@dataclass(frozen=True, slots=True)
class TombstoneUnit:
    """One transaction over one span; picklable.

    Attributes:
        now_s: the service's clock, by which CSNs are made.
    """

    job_id: str
    span: KeySpan
    rules: TombstoneRules
    token: int
    resource: str
    now_s: int
    has_ledger: bool = True
    archive_dir: str | None = None

    @property
    def unit_id(self) -> str:
        """The same at every attempt, and safe in a file name: no CSN that is gone comes back."""
        span = self.span
        ends = b"\0".join((*span.after, *span.upto, span.first.encode(), span.last.encode()))
        return f"tombstones-{sha256(ends).hexdigest()[:32]}"

    @property
    def step(self) -> str:
        """What the ledger counts it under."""
        return STEP


class TombstoneWalk:
    """The way of one attempt over the entries, in the order of their keys."""

    def __init__(self, rules: TombstoneRules) -> None:
        self._rules = rules
        self._after = FIRST_KEY

    def next_span(
        self, conn: Connection, *, now_s: int, rows_max: int, should_stop: ShouldStop = lambda: False
    ) -> KeySpan | None:
        """The next tombstones that may go by now, at most so many; None: the work is done.

        Raises: PlanStopped.
        """
        upto = self._rules.upto(ceiling(conn, now_s=now_s, gone=self._rules.gone))
        if not upto or not self._rules.before:
            return None
        for low, high in pages(conn, after=self._after, should_stop=should_stop):
            rows = _removable(conn, low, high, self._rules, upto, rows_max=rows_max)
            if rows:
                return _span(low, rows)
            self._after = high
        return None

    def passed(self, span: KeySpan) -> None:
        """Go on behind a span whose unit is done."""
        self._after = span.upto


def shorter(conn: Connection, span: KeySpan, rules: TombstoneRules, *, rows: int) -> KeySpan:
    """The first tombstones of a span, at most so many."""
    assert rows >= 1, rows
    found = _removable(conn, span.after, span.upto, rules, str(max(span.first, span.last)), rows_max=rows)
    return _span(span.after, found) if found else span


def run_tombstones(conn: Connection, unit: TombstoneUnit) -> UnitResult:
    """Remove the tombstones of a span that nobody needs, in one transaction with the bound and the ledger.

    What is needed by now stays. Where more may go than the span was counted with, it is refused.

    Raises: ReplicaNotWhole, ClockSkewed; as `run_in_transaction`.
    """
    return run_in_transaction(conn, unit, lambda: _remove(conn, unit), most=unit.span.rows)


def _removable(
    conn: Connection, low: EntryKey, high: EntryKey, rules: TombstoneRules, upto: str, *, rows_max: int
) -> list[tuple[Any, ...]]:
    return select_by_index(
        conn,
        f"select database, key, csn from {tables_of(conn).entries}"
        f" where {BETWEEN} and {REMOVABLE} order by database, key limit :rows",
        between(low, high) | {"before": rules.before, "upto": upto, "rows": rows_max},
    )


def _span(after: EntryKey, rows: list[tuple[Any, ...]]) -> KeySpan:
    last = rows[-1]
    csns = [csn for _, _, csn in rows]
    return KeySpan(after, (bytes(last[0]), bytes(last[1])), len(rows), Csn(min(csns)), Csn(max(csns)))


def _remove(conn: Connection, unit: TombstoneUnit) -> Done:
    """The bound, the generator and the deletion, under the locks that keep everybody else away."""
    tables, span = tables_of(conn), unit.span
    hold_arrivals(conn, tables)
    row, state = lock_replica(conn, tables)
    if row.status not in TRIMMED:
        raise ReplicaNotWhole(row.status)
    lock_agreements(conn)
    found = ceiling(conn, now_s=int(target_now(conn).timestamp()), gone=unit.rules.gone)
    # What may go since the look belongs to a later unit: this one stays as small as it was planned.
    upto = min(unit.rules.upto(found), max(span.first, span.last))
    bounds = between(span.after, span.upto) | {"before": unit.rules.before, "upto": upto}
    read_by_index(conn)
    [(greatest,)] = conn.execute(
        f"select max(csn) from {tables.entries} where {BETWEEN} and {REMOVABLE}", bounds
    )
    detail = {"rows": span.rows}
    if greatest is None:
        return Done(0, detail=detail)
    assert greatest <= (found.upto or ""), f"{greatest} is above what may go"
    _pass(conn, tables, state, Csn(greatest), now_s=unit.now_s)
    raise_bound(conn, Csn(greatest))
    delete = f"delete from {tables.entries} where {BETWEEN} and {REMOVABLE}"
    rows, entry = delete_rows(conn, unit, delete, bounds, table="entries")
    return Done(rows, archive=entry, detail=detail | {"greatest": str(greatest)})


def _pass(conn: Connection, tables: ReplicaTables, state: GeneratorState, csn: Csn, *, now_s: int) -> None:
    """Let every later local write be above a CSN, also where the clock is set back after this."""
    try:
        followed = adjust(state, remote=csn, now_s=now_s)
    except (ClockSkewExceeded, TimestampOutOfRange) as error:
        raise ClockSkewed(str(error)) from error
    if followed != state:
        save_generator(conn, tables, followed)
