"""BUILTIN: the cleanup by statements of our own, to the rows that the program's function leaves.

Order: confirmations, events from the lowest on, what follows them (sl_seqlog, sl_log_script), dead slons,
then the step of the log switch. Nothing is noted but counts: what is lowest is always next.
Source: facts/slony, section 2.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from spark.events.cleaning.log_switch import heal_status, start_switch, try_finish
from spark.events.cleaning.log_tables import read_status
from spark.events.cleaning.records import (
    TABLE_OF,
    Blocked,
    CleanupPlan,
    Finished,
    Healed,
    OriginPlan,
    Started,
    Step,
)
from spark.events.floors import oldest_sync
from spark.events.records import Catalog
from spark.events.unit import CleanupUnit, Span, UnitJob, UnitResult
from spark.formats.slony import SEQNO_MAX, SYNC
from spark.targets.connection import Connection

ROWS_IN_TX: Final = 100_000
"""A unit of so many rows takes a fraction of a second, and costs no more than one large DELETE."""

_KEY_OF: Final[dict[Step, str]] = {
    "CONFIRM": "con_seqno",
    "EVENT": "ev_seqno",
    "SEQLOG": "seql_ev_seqno",
    "LOG_SCRIPT": "log_txid",
}
_ORIGIN_OF: Final[dict[Step, str]] = {
    "CONFIRM": "con_origin",
    "EVENT": "ev_origin",
    "SEQLOG": "seql_origin",
    "LOG_SCRIPT": "log_origin",
}


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What is left of one origin (or pair) in one step.

    Args:
        after: done so far.
        below: see Span.
    """

    step: Step
    origin: int
    receiver: int | None = None
    below: int | None = None
    after: int = -1


class CleanupWalk:
    """The units of one attempt, each made when its turn comes.

    A unit that failed is tried again as it is; the walk does not go back.
    """

    def __init__(self, plan: CleanupPlan, catalog: Catalog, job: UnitJob) -> None:
        self._plan = plan
        self._catalog = catalog
        self._job = job
        self._left = deque(_stretches(plan))
        self.held: list[int] = []
        """Origins whose events may not go any more as planned."""

    def next_unit(
        self, conn: Connection, *, rows_max: int = ROWS_IN_TX, busy: Collection[int] = ()
    ) -> CleanupUnit | None:
        """The next unit, of about `rows_max` rows at most; None: the work is done.

        Args:
            busy: origins of the units under way. Beside units of confirmations others of confirmations may
                go, and beside both the events of another origin. None: there is none now.
        """
        assert rows_max >= 1, rows_max
        while self._left and (step := self._left[0].step) != "EVENT":
            if busy and step != "CONFIRM":
                return None
            if step == "NODELOCK":
                self._left.popleft()
                return self._unit(step, ())
            spans = self._spans(conn, step, rows_max)
            if spans:
                return self._unit(step, spans)
        return self._event_unit(conn, rows_max, busy)

    def _event_unit(self, conn: Connection, rows_max: int, busy: Collection[int]) -> CleanupUnit | None:
        """A range of events of the origin whose turn it is."""
        while free := [item for item in self._left if item.step == "EVENT" and item.origin not in busy]:
            self._left.remove(free[0])
            spans, rest = self._event_span(conn, free[0], rows_max)
            if spans:
                events = [item for item in self._left if item.step == "EVENT"]
                self._left = deque([*events, rest, *[item for item in self._left if item.step != "EVENT"]])
                return self._unit("EVENT", spans)
        if busy or not self._left:
            return None
        return self.next_unit(conn, rows_max=rows_max)

    def note(self, unit: CleanupUnit, result: UnitResult) -> None:
        """Account for a unit that was done: an origin that is held gets no more units."""
        if result.is_held:
            [span] = unit.spans
            self.held.append(span.origin)
            self._left = deque(
                item for item in self._left if (item.step, item.origin) != (unit.step, span.origin)
            )

    def _unit(self, step: Step, spans: tuple[Span, ...]) -> CleanupUnit:
        catalog = self._catalog
        return CleanupUnit(self._job, catalog.schema, catalog.local_node, step, spans, self._plan.rule)

    def _event_span(
        self, conn: Connection, stretch: _Stretch, rows_max: int
    ) -> tuple[tuple[Span, ...], _Stretch]:
        """Seqnos are unique: so many of them are at most so many rows, and nobody need count."""
        lo = self._first(conn, stretch, only_syncs=self._plan.rule == "MANUAL")
        if lo is None:
            return (), stretch
        assert stretch.below is not None, "events go below a bound"
        hi = min(lo + rows_max - 1, stretch.below - 1)
        return (Span(stretch.origin, lo, hi, stretch.below),), replace(stretch, after=hi)

    def _spans(self, conn: Connection, step: Step, rows_max: int) -> tuple[Span, ...]:
        """Ranges of one step until they have enough rows, of as many origins as it takes."""
        found: list[Span] = []
        rows = 0
        while self._left and self._left[0].step == step and rows < rows_max:
            stretch = self._left.popleft()
            keys = self._keys(conn, stretch)
            lo = self._first(conn, keys)
            if lo is None:
                continue
            last, count = self._last(conn, keys, lo, rows_max - rows)
            found.append(Span(stretch.origin, lo, last, stretch.below, stretch.receiver))
            rows += count
            self._left.appendleft(replace(stretch, after=last))
        return tuple(found)

    def _keys(self, conn: Connection, stretch: _Stretch) -> _Stretch:
        """The same with its end in the table's own key: DDL goes by transactions."""
        if stretch.step != "LOG_SCRIPT" or stretch.below is None:
            return stretch
        oldest = oldest_sync(conn, self._catalog.schema, stretch.origin, from_seqno=stretch.below)
        return replace(stretch, below=0 if oldest is None else oldest.xmin or 0)

    def _first(self, conn: Connection, stretch: _Stretch, *, only_syncs: bool = False) -> int | None:
        """The lowest key that is left; what was removed already is skipped, dead rows and all."""
        key = _KEY_OF[stretch.step]
        syncs = " and ev_type = :sync" if only_syncs else ""
        [(lo,)] = conn.execute(
            f"select min({key}) from {self._rows_of(conn, stretch)} and {key} > :after{syncs}",
            {**_asked(stretch), "sync": SYNC},
        )
        return None if lo is None else int(lo)

    def _last(self, conn: Connection, stretch: _Stretch, lo: int, rows_max: int) -> tuple[int, int]:
        """The last key of a range, and its rows: a key may have several."""
        key = _KEY_OF[stretch.step]
        [(last, rows)] = conn.execute(
            f"select max(key), count(*) from (select {key} as key from {self._rows_of(conn, stretch)}"
            f" and {key} >= :lo order by {key} limit :rows) as chosen",
            {**_asked(stretch), "lo": lo, "rows": rows_max},
        )
        return (lo, 0) if last is None else (int(last), int(rows))

    def _rows_of(self, conn: Connection, stretch: _Stretch) -> str:
        table = conn.dialect.qualify(self._catalog.schema, TABLE_OF[stretch.step])
        pair = " and con_received = :receiver" if stretch.step == "CONFIRM" else ""
        return (
            f"{table} where {_ORIGIN_OF[stretch.step]} = :origin{pair} and {_KEY_OF[stretch.step]} < :below"
        )


def log_step(
    conn: Connection, catalog: Catalog, *, bounds: Mapping[int, int] | None = None
) -> Started | Finished | Blocked | Healed:
    """What a cleanup does with the log at its end: end the switch under way, else start one.

    Args:
        bounds: as for `try_finish`: those of the plan that was carried out.
    Raises: ClusterLocked.
    """
    if read_status(conn, catalog.schema).is_switching:
        return try_finish(conn, catalog, bounds=bounds)
    return heal_status(conn, catalog) or start_switch(conn, catalog)


def _stretches(plan: CleanupPlan) -> Iterator[_Stretch]:
    for pair in plan.pairs:
        if pair.rows_to_remove:
            yield _Stretch("CONFIRM", pair.origin, pair.receiver, pair.keep)
    for item in plan.origins:
        if item.rows_to_remove and item.bound is not None:
            yield _Stretch("EVENT", item.origin, below=item.bound)
    yield from _following("SEQLOG", plan, lambda item: item.seqlog_rows)
    yield from _following("LOG_SCRIPT", plan, lambda item: item.log_script_rows)
    if plan.nodelock_rows:
        yield _Stretch("NODELOCK", plan.origins[0].origin if plan.origins else 0)


def _following(step: Step, plan: CleanupPlan, rows: Callable[[OriginPlan], int]) -> Iterator[_Stretch]:
    return (_Stretch(step, item.origin, below=item.oldest_sync) for item in plan.origins if rows(item))


def _asked(stretch: _Stretch) -> dict[str, int | None]:
    return {
        "origin": stretch.origin,
        "receiver": stretch.receiver,
        "below": SEQNO_MAX if stretch.below is None else stretch.below,
        "after": stretch.after,
    }
