"""The way through the tables of a purge, in ranges of their keys (of the form of spark.rows.walk)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark.rows.walk import RowsWalk, step_name
from spark.targets.connection import Connection
from spark.targets.walk import Bounds, Key, Piece
from spark.upkeep.parts import Part

FIRST = step_name(0, 0)


@dataclass(frozen=True, slots=True)
class UpkeepWalk:
    """One table after the other, each to the last row that there is when its step begins."""

    parts: Sequence[Part]

    @property
    def steps(self) -> Sequence[str]:
        """In the order in which rows go."""
        return [part.step for part in self.parts]

    def bounds(self, conn: Connection, step: str, _known: Mapping[str, Bounds | None]) -> Bounds | None:
        """From before the first row to the last."""
        return self._of(step).bounds(conn, FIRST, {})

    def pieces(
        self, conn: Connection, step: str, bounds: Bounds, *, after: Key | None, rows: int, count: int
    ) -> list[Piece]:
        """The next ranges of rows that are looked at."""
        return self._of(step).pieces(conn, FIRST, bounds, after=after, rows=rows, count=count)

    def _of(self, step: str) -> RowsWalk:
        part = next(part for part in self.parts if part.step == step)
        return RowsWalk([part.at], False, {})
