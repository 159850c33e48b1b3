"""What a purge of tombstones would remove, what it may not, and who holds that back. Nothing is written.

Every statement reads a bounded number of entries; what is written meanwhile may count or not.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.errors import PlanStopped
from spark.replication.tombstones.ceiling import TombstoneCeiling, ceiling, name_of_rid
from spark.targets.connection import Connection
from spark.targets.key_order import select_by_index

PAGE_ROWS: Final = 20_000
EntryKey = tuple[bytes, bytes]
FIRST_KEY: Final[EntryKey] = (b"", b"")
"""Before every entry: no database and no key is empty."""
BETWEEN: Final = (
    "(database, key) > (:low_database, :low_key) and (database, key) <= (:high_database, :high_key)"
)
REMOVABLE: Final = "is_tombstone and csn < :before and csn <= :upto"
ShouldStop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class TombstoneRules:
    """What may go of what nobody needs.

    Attributes:
        cutoff_s: deletes before it, seconds since 1970, by the time in their CSN; None: nothing is old.
        gone: replica ids that are waited for no more.
        reviewed: of a reviewed plan: the greatest CSN that may go; empty: none may. None: no plan bounds it.
    """

    cutoff_s: int | None
    gone: frozenset[int] = frozenset()
    reviewed: str | None = None

    @property
    def before(self) -> str:
        """Below every CSN that is too young; no CSN is below the empty text."""
        return "" if self.cutoff_s is None else f"{self.cutoff_s:08x}"

    def upto(self, found: TombstoneCeiling) -> str:
        """The greatest CSN that may go now, as statements compare it; empty: nothing may."""
        if found.upto is None:
            return ""
        return found.upto if self.reviewed is None else min(found.upto, self.reviewed)


@dataclass(frozen=True, slots=True)
class RidTombstones:
    """The tombstones whose delete one replica id has made.

    Attributes:
        rows: of them here.
        rows_eligible_by_age: older than the cut-off.
        rows_to_remove: and needed by nobody.
    """

    rid: int
    rows: int
    rows_eligible_by_age: int
    rows_to_remove: int

    @property
    def rows_held(self) -> int:
        """Old enough, and still needed."""
        return self.rows_eligible_by_age - self.rows_to_remove


@dataclass(frozen=True, slots=True)
class TombstonePlan:
    """All entries of a replica.

    Attributes:
        entries: live ones and tombstones.
        ceiling: up to where tombstones may go; None: nowhere.
        held_by: agreements and replica ids that hold back what is old enough.
        upto: the greatest CSN that would go.
    """

    entries: int
    rids: tuple[RidTombstones, ...]
    ceiling: Csn | None
    held_by: tuple[str, ...]
    upto: Csn | None

    @property
    def rows(self) -> int:
        """Tombstones that are here."""
        return sum(item.rows for item in self.rids)

    @property
    def rows_to_remove(self) -> int:
        """How many of them would go."""
        return sum(item.rows_to_remove for item in self.rids)


def plan_tombstones(
    conn: Connection,
    rules: TombstoneRules,
    *,
    now_s: int,
    should_stop: ShouldStop = lambda: False,
) -> TombstonePlan:
    """Count what would go now.

    Args:
        now_s: the target's clock.
    Raises: PlanStopped; ReplicaMissing.
    """
    found = ceiling(conn, now_s=now_s, gone=rules.gone)
    bound = {"before": rules.before, "upto": rules.upto(found)}
    counts = _Counts()
    for low, high in pages(conn, should_stop=should_stop):
        counts.add(_page(conn, between(low, high) | bound))
    return counts.plan(found)


class _Counts:
    """Sums over pages."""

    def __init__(self) -> None:
        self._entries = 0
        self._rows, self._old, self._gone = Counter[int](), Counter[int](), Counter[int]()
        self._newest: str | None = None
        self._last: str | None = None

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        """Take the rows of `_page`."""
        for rid, entries, tombstones, old, gone, newest, last in rows:
            number = int(rid, 16)
            self._entries += int(entries)
            self._rows[number] += int(tombstones)
            self._old[number] += int(old)
            self._gone[number] += int(gone)
            self._newest = max(filter(None, (self._newest, newest)), default=None)
            self._last = max(filter(None, (self._last, last)), default=None)

    def plan(self, found: TombstoneCeiling) -> TombstonePlan:
        """What they come to, under the ceiling that they were counted by."""
        rids = tuple(
            RidTombstones(rid, rows, self._old[rid], self._gone[rid])
            for rid, rows in sorted(self._rows.items())
            if rows
        )
        upto = None if self._last is None else Csn(self._last)
        return TombstonePlan(self._entries, rids, found.upto, found.held_by(self._newest), upto)


def _page(conn: Connection, bound: dict[str, Any]) -> list[tuple[Any, ...]]:
    """By the replica id of a CSN: entries, tombstones, old and removable ones, greatest old and removable."""
    return select_by_index(
        conn,
        "select substr(csn, 13, 4), count(*), sum(case when is_tombstone then 1 else 0 end),"
        " sum(case when is_tombstone and csn < :before then 1 else 0 end),"
        f" sum(case when {REMOVABLE} then 1 else 0 end),"
        " max(case when is_tombstone and csn < :before then csn end),"
        f" max(case when {REMOVABLE} then csn end)"
        f" from {tables_of(conn).entries} where {BETWEEN} group by substr(csn, 13, 4)",
        bound,
    )


def pages(
    conn: Connection, *, after: EntryKey = FIRST_KEY, should_stop: ShouldStop = lambda: False
) -> Iterator[tuple[EntryKey, EntryKey]]:
    """All entries in stretches of at most PAGE_ROWS, as (after, up to and with).

    Raises: PlanStopped.
    """
    table = tables_of(conn).entries
    inside = f"from {table} where (database, key) > (:low_database, :low_key)"
    while True:
        if should_stop():
            raise PlanStopped
        low = {"low_database": after[0], "low_key": after[1]}
        in_order = f"select database, key {inside} order by database"
        rows = select_by_index(
            conn, f"{in_order}, key limit 1 offset :skipped", low | {"skipped": PAGE_ROWS - 1}
        ) or select_by_index(conn, f"{in_order} desc, key desc limit 1", low)
        if not rows:
            return
        high = (bytes(rows[0][0]), bytes(rows[0][1]))
        yield after, high
        after = high


def between(low: EntryKey, high: EntryKey) -> dict[str, Any]:
    """The parameters of BETWEEN."""
    return {"low_database": low[0], "low_key": low[1], "high_database": high[0], "high_key": high[1]}


def check_gone(found: Collection[int], own_rid: int) -> str | None:
    """Why replica ids cannot be declared gone; None: they can."""
    return f"{name_of_rid(own_rid)} is this replica: it is not gone" if own_rid in found else None
