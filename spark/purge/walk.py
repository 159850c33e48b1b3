"""The way of the purge OUTGOING through the document's four steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark.purge.ranges import Range, next_ranges, step_bounds
from spark.purge.statements import STEPS, PurgeSpec, Step
from spark.targets.connection import Connection
from spark.targets.walk import Bounds, Key, Piece


@dataclass(frozen=True, slots=True)
class OutgoingWalk:
    """The document's four steps, by id; EVENTS and BATCHES share a range.

    Args:
        event_batches: batches in one piece of EVENTS; None: by rows.
    """

    spec: PurgeSpec
    event_batches: int | None = None

    @property
    def steps(self) -> Sequence[Step]:
        """Without the first where stranded batches stay."""
        return STEPS if self.spec.mark_stranded else STEPS[1:]

    def bounds(self, conn: Connection, step: str, known: Mapping[str, Bounds | None]) -> Bounds | None:
        """As the document computes them; EVENTS after DATA."""
        if step == "BATCHES" and "EVENTS" in known:
            return known["EVENTS"]
        found = step_bounds(conn, _step(step), self.spec)
        return None if found is None else ((found[0],), (found[1],))

    def pieces(
        self, conn: Connection, step: str, bounds: Bounds, *, after: Key | None, rows: int, count: int
    ) -> list[Piece]:
        """Keyset ranges of ids."""
        (first,), (last,) = bounds
        found = next_ranges(
            conn,
            _step(step),
            self.spec,
            after=first - 1 if after is None else after[0],
            upto=last,
            rows=rows,
            count=count,
            max_batches=self.event_batches,
        )
        return [_piece(item) for item in found]


def _step(name: str) -> Step:
    return next(step for step in STEPS if step == name)


def _piece(item: Range) -> Piece:
    return Piece((item.lo,), (item.hi,), item.rows)
