"""How fast work goes lately, and so how long the rest of it takes.

Rules:
- only the last stretch counts: a quarter of the time so far, within HORIZON_LEAST_S and HORIZON_MOST_S;
- what was measured under other bounds says nothing of these: a change begins anew, from what they allow.
"""

from collections import deque
from typing import Final

HORIZON_LEAST_S: Final = 1.0
HORIZON_MOST_S: Final = 120.0
HORIZON_SHARE: Final = 0.25
SAMPLES_MAX: Final = 240
FIRST_SHARE: Final = 0.25
SOON_SHARE: Final = 0.2
EXPECTED_S: Final = 0.5
"""What was expected weighs as much as so many seconds of measurement."""


class Pace:
    """The pace of one attempt, of work in any unit that grows evenly with time.

    Args:
        expected: work per second, before anything was measured; None: nothing is known.
    """

    def __init__(self, expected: float | None = None) -> None:
        self._expected = expected
        self._weight_s = EXPECTED_S
        self._samples: deque[tuple[float, float]] = deque()
        self._began_s: float | None = None
        self._gained = False

    def add(self, at_s: float, work: float) -> None:
        """So much work was done by then, in all.

        Args:
            at_s: seconds of a clock that never goes back.
            work: never less than before.
        """
        if self._began_s is None:
            self._began_s = at_s
        if self._samples and work > self._samples[-1][1]:
            self._gained = True
        least_s = self._horizon_s(at_s) / SAMPLES_MAX
        if len(self._samples) > 1 and at_s - self._samples[-2][0] < least_s:
            self._samples[-1] = (at_s, work)
        else:
            self._samples.append((at_s, work))
        oldest_s = at_s - self._horizon_s(at_s)
        while len(self._samples) > 2 and self._samples[1][0] <= oldest_s and self._samples[1][1] < work:
            self._samples.popleft()

    def begin_anew(self, expected: float | None, *, weight_s: float = EXPECTED_S) -> None:
        """The conditions have changed: what was measured does not hold any more.

        Args:
            expected: work per second from now on; None: nothing is known.
            weight_s: it weighs as much as so many seconds of measurement, at most EXPECTED_S.
        """
        last = self._samples[-1] if self._samples else None
        self._samples.clear()
        self._expected, self._gained = expected, False
        self._weight_s = min(EXPECTED_S, weight_s)
        if last is not None:
            self._began_s = last[0]
            self._samples.append(last)

    @property
    def measured_s(self) -> float:
        """How long was measured since the beginning, or since it began anew; at most the horizon."""
        return self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0

    @property
    def rate(self) -> float | None:
        """Work per second; None: nothing was gained yet, and nothing is expected."""
        if not self._gained:
            return self._expected
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        worked_s, work = last_s - first_s, last - first
        if self._expected is not None and worked_s < HORIZON_LEAST_S:
            worked_s, work = worked_s + self._weight_s, work + self._expected * self._weight_s
        return work / worked_s if worked_s > 0 and work > 0 else self._expected

    def _horizon_s(self, at_s: float) -> float:
        so_far_s = 0.0 if self._began_s is None else at_s - self._began_s
        return min(HORIZON_MOST_S, max(HORIZON_LEAST_S, HORIZON_SHARE * so_far_s))


class Shown:
    """What was shown of an attempt: when last, what it has gained, and its rate of late."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._began_s: float | None = None
        self._shown_s: float | None = None
        self._done_at_start = 0
        self._bounds: object = None

    def count(self, at_s: float, *, done: int, bounds: object) -> int:
        """So much is done by now, without what was only found done; how much of it this attempt has gained.

        Args:
            bounds: those in effect: a rate under others says nothing.
        """
        if self._began_s is None:
            self._began_s, self._done_at_start, self._bounds = at_s, done, bounds
        if bounds != self._bounds:
            self._bounds = bounds
            self._pace.begin_anew(None)
        gained = done - self._done_at_start
        self._pace.add(at_s, gained)
        return gained

    def is_due(self, at_s: float, *, every_s: float) -> bool:
        """Whether to show it now; in the beginning after a fifth of the time so far, at least FIRST_SHARE."""
        if self._shown_s is None or self._began_s is None:
            return True
        soon_s = max(FIRST_SHARE * every_s, SOON_SHARE * (at_s - self._began_s))
        return at_s - self._shown_s >= min(every_s, soon_s)

    def show(self, at_s: float) -> None:
        """It is shown now."""
        self._shown_s = at_s

    @property
    def rate(self) -> float | None:
        """Of late, per second; None: nothing was gained yet."""
        return self._pace.rate


def fraction_of(done: int, total: int | None) -> float | None:
    """How much is done; None: nobody knows."""
    return None if not total else round(min(1.0, done / total), 4)


def rate_under(
    free: float | None, *, rows_per_s: float | None, intensity: float | None, work_per_row: float
) -> float | None:
    """What bounds let through of a pace without any; None: nothing is known of it.

    Args:
        free: work per second without bounds; None: it was never seen.
        work_per_row: work for each row that the bounds count.
    """
    slowed = None if free is None else free * (intensity or 1.0)
    bound = None if rows_per_s is None else rows_per_s * work_per_row
    known = [each for each in (slowed, bound) if each is not None]
    return min(known) if known else None
