"""How many rows each unit of a window may remove, so that all of a job's never exceed its limit.

The limits are held against a count before the first unit. Rows that come or change after it could add to it.

Rules:
- what is left of the limit is divided among the units of a window: each gets the rows of its piece where all
  of them fit, and an even part of what remains then;
- a unit that would remove more is rolled back. It comes again in a window of its own, with all that is left;
  windows grow again behind it;
- a unit that had all that was left, and would still remove more, ends the job: it has removed nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.jobs.errors import JobFailed
from spark.targets.transaction import AnyUnit


@dataclass(frozen=True, slots=True)
class Limit:
    """What one job may remove.

    Attributes:
        most: rows of all tables, by all attempts together.
        removed: rows that finished units have removed, from rows by step as this attempt knows them.
        bound: a unit with the most rows that it may remove.
    """

    most: int
    removed: Callable[[Mapping[str, int]], int]
    bound: Callable[[Any, int], AnyUnit]


@dataclass(slots=True)
class Allowance:
    """Divides what is left; `most_units` of the next window, None: as many as it likes."""

    limit: Limit
    most_units: int | None = None
    _left: int = 0
    _parts: dict[str, int] = field(default_factory=dict)
    _was_refused: bool = False

    def begin(
        self, units: Sequence[AnyUnit], sizes: Sequence[int], *, rows: Mapping[str, int]
    ) -> list[AnyUnit]:
        """The units of a window, with their parts of what is left.

        Args:
            sizes: rows of their pieces; rows: removed by step, as this attempt knows them.
        """
        self._left = max(0, self.limit.most - self.limit.removed(rows))
        self._parts.clear()
        self._was_refused = False
        return self._divided(self._left, units, sizes)

    def divide(self, unit: AnyUnit, parts: Sequence[AnyUnit], sizes: Sequence[int]) -> list[AnyUnit]:
        """The parts of a unit, which share what it had."""
        return self._divided(self._parts.pop(unit.unit_id), parts, sizes)

    def refuse(self, unit: AnyUnit, rows: int) -> None:
        """A unit would have removed so many rows.

        Raises: JobFailed: LIMIT_EXCEEDED: it had all that was left.
        """
        self._was_refused = True
        if self._parts[unit.unit_id] < self._left:
            return
        gone, most = self.limit.most - self._left, self.limit.most
        raise JobFailed(
            "LIMIT_EXCEEDED",
            f"rows came or changed after the count: {gone} have gone, the next unit would remove {rows}, and"
            f" the limits allow {most}. What is removed stays removed: look at a new plan, then submit the"
            " purge again",
        )

    def end(self) -> None:
        """A window has ended: the next one has one unit where a unit was refused, else twice as many."""
        if self._was_refused:
            self.most_units = 1
        elif self.most_units is not None:
            self.most_units *= 2

    def _divided(self, left: int, units: Sequence[AnyUnit], sizes: Sequence[int]) -> list[AnyUnit]:
        whole = sum(sizes)
        fits = whole <= left
        even = (left - whole if fits else left) // max(1, len(units))
        found = []
        for unit, size in zip(units, sizes, strict=True):
            part = even + (size if fits else 0)
            self._parts[unit.unit_id] = part
            found.append(self.limit.bound(unit, part))
        return found
