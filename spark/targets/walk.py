"""How a sweep goes through its tables: steps, the keys between which each walks, and the pieces of it.

A key is what orders the rows of a step, a number or several: of purges (data id), (batch id), (number of a
node, batch id) or (start id, end id). A piece lies between two keys, both included, and is what one unit
removes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark.targets.connection import Connection

Key = tuple[int, ...]
Bounds = tuple[Key, Key]


@dataclass(frozen=True, slots=True)
class Piece:
    """Keys `lo` to `hi`, both included; about `rows` rows of the step lie in it."""

    lo: Key
    hi: Key
    rows: int

    def after(self) -> Key:
        """The first key behind it."""
        return (*self.hi[:-1], self.hi[-1] + 1)

    def reaches(self, hi: Key) -> bool:
        """Whether nothing of a piece that ends with `hi` is left behind this one."""
        return self.hi >= hi


class Walk(Protocol):
    """The way of one kind of sweep."""

    @property
    def steps(self) -> Sequence[str]:
        """In their order."""
        ...

    def bounds(self, conn: Connection, step: str, known: Mapping[str, Bounds | None]) -> Bounds | None:
        """The first and the last key of a step; None: nothing to do.

        Args:
            known: what earlier steps had; a step that shares the range of another takes it from there.
        """
        ...

    def pieces(
        self, conn: Connection, step: str, bounds: Bounds, *, after: Key | None, rows: int, count: int
    ) -> list[Piece]:
        """The next pieces behind `after`, at most `count` of about `rows` rows; an empty list ends the step.

        Args:
            after: the last key of the piece before; None: from the first key of `bounds` on.
        """
        ...
