"""How many rows a unit gets: as many as take about the target time, never more than was asked for.

The batches that a unit locks cannot change their status while it lasts, so a unit is short:
0.3 s with the archive's fsync (facts: locks). The first window is small; each window sizes the next.

Where somebody waits for units the longest one counts. Where nobody does the usual one counts: a machine that
stood still for a moment would else make them so small that most of their time is that of their commits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

FIRST_ROWS = 5_000
FIRST_WINDOW_UNITS = 4
LEAST_ROWS = 200
GROWTH_MAX = 4.0
HEADROOM = 0.7


@dataclass(slots=True)
class UnitSize:
    """The current size.

    Args:
        most_rows: the service's or the client's bound.
        target_s: what a unit should take at most.
        window_units: units of a full window.
        least: fewer do not pay, unless even they are too long for a statement.
        is_waited_for: others wait for the rows that a unit locks.
        first_rows: of the first window, if `rows` names none.
    """

    most_rows: int
    target_s: float
    window_units: int
    rows: int = 0
    windows: int = 0
    least: int = LEAST_ROWS
    is_waited_for: bool = True
    first_rows: int = FIRST_ROWS

    def __post_init__(self) -> None:
        self.rows = self.rows or min(self.first_rows, self.most_rows)

    @property
    def units(self) -> int:
        """How many units the next window has."""
        return FIRST_WINDOW_UNITS if self.windows == 0 else self.window_units

    def learn(self, elapsed_s: Sequence[float]) -> None:
        """Size the next window by the longest unit of the last, or by the usual one."""
        self.windows += 1
        if not elapsed_s:
            return
        taken_s = max(elapsed_s) if self.is_waited_for else median(elapsed_s)
        if taken_s <= 0:
            return
        factor = min(GROWTH_MAX, HEADROOM * self.target_s / taken_s)
        least = min(self.least, self.most_rows)
        self.rows = max(least, min(self.most_rows, int(self.rows * factor)))

    def cut(self, rows: int, *, parts: int) -> int:
        """The rows of a part of a unit that was too long for a statement, and of the units that follow."""
        self.rows = max(1, min(self.rows, rows // parts))
        self.least = min(self.least, self.rows)
        return self.rows

    def within(self, rows_per_s: float | None) -> int:
        """The size under a throttle: a unit is never more than a second's worth."""
        if rows_per_s is None:
            return self.rows
        return max(1, min(self.rows, int(rows_per_s)))
