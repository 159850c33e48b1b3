"""How long a sweep over several tables still takes.

A row that goes costs more than one that stays, a row of one table more than one of another, and pieces must
be cut before they can be done. What is ahead is weighed by that, and the pace is measured in these weights.
So the passage from one table to the next, or from old rows to young ones, does not surprise it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.jobs.models import ThrottleSetting
from app.jobs.running.pace import Pace, rate_under

STAYS: Final = 0.15
"""What a row costs that is looked at and stays, beside one that goes (measured: 0.1 to 0.2)."""
TRUSTED_ROWS: Final = 2_000
"""So many rows say little of how many of those that are old enough go."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a step will look at.

    Attributes:
        going: rows that are old enough to go, the first ones of the step.
        cost: of a row that goes, beside those of other steps.
    """

    rows: int
    going: int
    cost: float = 1.0


@dataclass(slots=True)
class _Seen:
    """What was seen of a step."""

    examined: int = 0
    gone: int = 0


class Outlook:
    """Of one attempt of a sweep, in the thread that runs it.

    Args:
        ahead: step to what it will look at, in the order of the steps.
        after_s: what comes after the last unit.
        expected: rows per second of an earlier attempt.
    """

    def __init__(
        self, ahead: Mapping[str, Ahead], *, after_s: float = 0.0, expected: float | None = None
    ) -> None:
        self._ahead = dict(ahead)
        self._steps: Sequence[str] = list(self._ahead)
        self._after_s = after_s
        self._seen = {step: _Seen() for step in self._steps}
        self._pace = Pace(expected)
        self._at = self._steps[0]
        self._work = 0.0
        self._gone = 0
        self._cut_rows = 0
        self._cutting_s = 0.0
        self._cut_ahead = 0
        self._bounds = ThrottleSetting()
        self._free: float | None = None

    @classmethod
    def of_total(cls, total: int, *, expected: float | None = None) -> "Outlook":
        """Of a sweep that knows only how many rows there are, whatever step they belong to."""
        return cls({"": Ahead(total, total)}, expected=expected)

    @property
    def total(self) -> int:
        """Rows that will be looked at."""
        return sum(each.rows for each in self._ahead.values())

    def resume(self, step: str, examined: int) -> None:
        """An earlier attempt has come so far."""
        for name in self._until(step):
            rows = min(examined, self._ahead[name].rows)
            self._seen[name] = _Seen(examined=rows, gone=min(rows, self._ahead[name].going))
            examined -= rows

    def cut(self, rows: int, *, took_s: float) -> None:
        """Pieces of so many rows were cut, which took a while in which no unit ran."""
        self._cut_rows += rows
        self._cut_ahead += rows
        self._cutting_s += took_s

    def done(self, step: str, *, rows: int, gone: int, at_s: float, took_s: float | None) -> None:
        """A unit was done.

        Args:
            at_s: seconds of a clock that never goes back.
            took_s: what it took; None: an earlier attempt had done it, which took this one no time.
        """
        name = self._named(step)
        seen, cost = self._seen[name], self._ahead[name].cost
        seen.examined += rows
        seen.gone += gone
        self._cut_ahead = max(0, self._cut_ahead - rows)
        if took_s is not None:
            if name != self._at:  # what is believed of the cost of its rows may be wrong
                self._pace.begin_anew(self._pace.rate, weight_s=self._pace.measured_s)
                self._at = name
            if not self._work:  # workers that connect are no measure of what they do then
                self._pace.add(at_s - took_s - self._cutting_s, 0.0)
            self._work += cost * (gone + STAYS * max(0, rows - gone))
            self._gone += gone
        self.look(at_s)

    def look(self, at_s: float) -> None:
        """Nothing more was done until now."""
        if self._work:
            self._pace.add(at_s - self._cutting_s, self._work)

    def bounds(self, setting: ThrottleSetting) -> None:
        """The bounds in effect; others than before begin a new measurement."""
        if setting == self._bounds:
            return
        if self._bounds == ThrottleSetting():
            self._free = self._pace.rate
        self._bounds = setting
        expected = rate_under(
            self._free,
            rows_per_s=setting.rows_per_s,
            intensity=setting.intensity,
            work_per_row=self._work / self._gone if self._gone else 1.0,
        )
        self._pace.begin_anew(expected)

    def left_s(self, step: str) -> float | None:
        """Seconds until the end under the bounds in effect, in `step`; None: nothing is known of the pace."""
        rate = self._pace.rate
        if rate is None or rate <= 0:
            return None
        name = self._named(step)
        left = self._steps[self._steps.index(name) :]
        work_s = sum(self._work_left(each) for each in left) / rate
        return work_s + self._cutting_left_s(name, left) + self._after_s

    def _work_left(self, step: str) -> float:
        ahead, seen = self._ahead[step], self._seen[step]
        rows = max(0, ahead.rows - seen.examined)
        old = min(seen.examined, ahead.going)
        hits = (seen.gone + TRUSTED_ROWS) / (old + TRUSTED_ROWS)
        going = min(rows, max(0, ahead.going - old) * min(1.0, hits))
        return ahead.cost * (going + STAYS * (rows - going))

    def _cutting_left_s(self, step: str, left: Sequence[str]) -> float:
        if not self._cut_rows:
            return 0.0
        uncut = sum(max(0, self._ahead[each].rows - self._seen[each].examined) for each in left)
        return max(0, uncut - self._cut_ahead) * self._cutting_s / self._cut_rows

    def _named(self, step: str) -> str:
        return step if step in self._ahead else self._steps[-1]

    def _until(self, step: str) -> Sequence[str]:
        return self._steps[: self._steps.index(self._named(step)) + 1]
