"""The ETA of sweeps, told while simulated ones run, against the end that they then really have.

A look comes every half second, as progress is written. After the first tenth of a run at least 80 % of the
looks must be within 30 % of what then remained. The rule of before, the average since the start over the rows
of all tables, is judged by the same oracle and must not pass where it did not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from app.jobs.models import ThrottleSetting
from app.jobs.running.pace import Pace, Shown
from app.sweeps.outlook import Ahead, Outlook

WITHIN, WANTED, UNJUDGED, LOOK_S = 0.3, 0.8, 0.1, 0.5
UNIT_ROWS, WINDOW_UNITS = 5_000, 32
FREE = ThrottleSetting()


@dataclass(frozen=True)
class Step:
    """A step of a simulated sweep: what it has, what its rows really cost, and what is believed of that."""

    name: str
    rows: int
    going: int
    row_us: float = 20.0
    stays: float = 0.15
    cut_us: float = 1.0
    believed: float = 1.0
    slowing: float = 1.0
    """How many times slower its last row is than its first."""


@dataclass
class Told:
    """What clients were told: at which second, and how much should be left."""

    looks: list[tuple[float, float | None]] = field(default_factory=list)

    def share(self, ends_s: float) -> float:
        """Of the looks after the first tenth, those that were right."""
        began_s = self.looks[0][0]
        judged = [look for look in self.looks if began_s + UNJUDGED * (ends_s - began_s) < look[0] < ends_s]
        right = [
            told is not None and abs(told - (ends_s - at_s)) <= WITHIN * (ends_s - at_s)
            for at_s, told in judged
        ]
        return sum(right) / len(right)


@dataclass
class Run:
    """A simulated sweep: its clock, its throttle, and who tells how long it takes."""

    steps: Sequence[Step]
    expected: float | None = None
    bounds_at: Callable[[int], ThrottleSetting] = lambda _done: FREE
    seed: int = 1

    def __post_init__(self) -> None:
        self.now_s = 100.0
        self.random = random.Random(self.seed)
        ahead = {step.name: Ahead(step.rows, step.going, step.believed) for step in self.steps}
        self.outlook = Outlook(ahead, expected=self.expected)
        self.done = 0
        self.told, self.told_before = Told(), Told()
        self.began_s = self.now_s
        self.table_rows = sum(step.rows for step in self.steps)

    def go(self, *, upto: int | None = None) -> None:
        """Run to the end, or until so many rows are done."""
        self.look()
        for step, lo, hi in self._windows():
            self.now_s += (hi - lo) * step.cut_us / 1e6
            self.outlook.cut(hi - lo, took_s=(hi - lo) * step.cut_us / 1e6)
            for at in range(lo, hi, UNIT_ROWS):
                if upto is not None and self.done >= upto:
                    return
                self._unit(step, at, min(hi, at + UNIT_ROWS))

    def _windows(self) -> Iterator[tuple[Step, int, int]]:
        for step in self.steps:
            for lo in range(0, step.rows, UNIT_ROWS * WINDOW_UNITS):
                yield step, lo, min(step.rows, lo + UNIT_ROWS * WINDOW_UNITS)

    def _unit(self, step: Step, lo: int, hi: int) -> None:
        gone = max(0, min(hi, step.going) - lo)
        slow = 1.0 + (step.slowing - 1.0) * lo / step.rows
        rows = gone + step.stays * (hi - lo - gone)
        took_s = rows * step.row_us / 1e6 * slow * self.random.uniform(0.7, 1.3)
        bounds = self.bounds_at(self.done)
        rest_s = 0.0 if bounds.rows_per_s is None else max(0.0, gone / bounds.rows_per_s - took_s)
        rest_s += took_s * (1 / (bounds.intensity or 1.0) - 1)
        self.now_s += took_s
        self.done += hi - lo
        self.outlook.bounds(bounds)
        self.outlook.done(step.name, rows=hi - lo, gone=gone, at_s=self.now_s, took_s=took_s)
        self.look(step)
        self.now_s += rest_s

    def look(self, step: Step | None = None) -> None:
        """A client looks, if it is time."""
        if self.told.looks and self.now_s - self.told.looks[-1][0] < LOOK_S:
            return
        self.outlook.look(self.now_s)
        name = (step or self.steps[0]).name
        self.told.looks.append((self.now_s, self.outlook.left_s(name)))
        so_far_s = self.now_s - self.began_s
        rate = self.done / so_far_s if so_far_s > 0 and self.done else None
        self.told_before.looks.append(
            (self.now_s, None if rate is None else max(0, self.table_rows - self.done) / rate)
        )

    @property
    def share(self) -> float:
        """How much of what clients were told was right."""
        return self.told.share(self.now_s)

    @property
    def share_before(self) -> float:
        """The same of the average since the start."""
        return self.told_before.share(self.now_s)


def steady() -> Run:
    """One table whose rows cost the same."""
    return Run([Step("DATA", 1_000_000, 1_000_000)])


def slowing() -> Run:
    """One table whose last rows cost twice as much as its first."""
    return Run([Step("DATA", 1_000_000, 1_000_000, slowing=2.0)])


def uneven() -> Run:
    """Three tables, each of other costs than is believed of it."""
    return Run(
        [
            Step("DATA", 400_000, 400_000, row_us=30),
            Step("EVENTS", 580_000, 580_000, row_us=9, believed=0.45),
            Step("BATCHES", 20_000, 20_000, row_us=200, believed=6.0),
        ]
    )


def range_of_a_table() -> Run:
    """Of the first table three rows in ten are old; of the second only a range is walked at all."""
    run = Run(
        [
            Step("DATA", 1_000_000, 300_000, row_us=40),
            Step("EVENTS", 360_000, 360_000, row_us=15, believed=0.4),
        ]
    )
    run.table_rows = 2_200_000
    return run


def throttled_on_the_way() -> Run:
    """Free, then bound to a rate, then free again."""
    bound = ThrottleSetting(rows_per_s=20_000)
    return Run(
        [Step("DATA", 1_000_000, 1_000_000)],
        bounds_at=lambda done: bound if 200_000 <= done < 800_000 else FREE,
    )


def slowed_by_a_window() -> Run:
    """Half the intensity from a quarter on."""
    bound = ThrottleSetting(intensity=0.5)
    return Run(
        [Step("DATA", 1_000_000, 1_000_000)], bounds_at=lambda done: bound if done >= 250_000 else FREE
    )


@pytest.mark.parametrize(
    "make", [steady, slowing, uneven, range_of_a_table, slowed_by_a_window], ids=lambda make: make.__name__
)
@pytest.mark.parametrize("seed", range(5))
def test_simulated_sweep_ends_when_it_was_told_to(make: Callable[[], Run], seed: int) -> None:
    run = make()
    run.random = random.Random(seed)
    run.go()
    assert run.share >= WANTED, run.told.looks


@pytest.mark.parametrize(
    "make", [uneven, range_of_a_table, slowed_by_a_window], ids=lambda make: make.__name__
)
def test_average_since_the_start_over_all_tables_is_found_wrong(make: Callable[[], Run]) -> None:
    run = make()
    run.go()
    assert run.share_before < WANTED


def test_throttle_that_changes_poisons_only_the_looks_before_it_did() -> None:
    # While it is bound nobody can know that the bound will be lifted: each stretch is judged for itself.
    run = throttled_on_the_way()
    run.go()
    bound = [look for look in run.told.looks if look[1] is not None and look[1] > 25]
    freed = [look for look in run.told.looks if run.now_s - look[0] < 3.0]
    assert bound, "it was slow for a while"
    assert Told(freed).share(run.now_s) >= WANTED, freed


def test_bound_to_a_rate_the_rest_is_reckoned_by_it_at_once() -> None:
    bound = ThrottleSetting(rows_per_s=20_000)
    run = Run([Step("DATA", 1_000_000, 1_000_000)], bounds_at=lambda done: bound if done >= 200_000 else FREE)
    run.go()
    slow = [look for look in run.told.looks if run.now_s - look[0] <= 40.0]
    assert Told(slow).share(run.now_s) == 1.0, slow


def test_pause_in_the_middle_takes_nothing_from_the_rate() -> None:
    first = steady()
    first.go(upto=500_000)
    rate = first.outlook._pace.rate
    assert rate is not None
    second = Run([Step("DATA", 1_000_000, 1_000_000)], expected=rate)
    second.now_s += 86_400
    second.outlook.resume("DATA", 500_000)
    assert second.outlook.left_s("DATA") == pytest.approx(10, rel=WITHIN), "known before anything was done"
    second.steps = [Step("DATA", 500_000, 500_000)]
    second.go()
    assert second.share >= WANTED


def test_units_that_only_find_what_was_done_gain_nothing() -> None:
    outlook = Outlook({"DATA": Ahead(10_000, 10_000)})
    for at in range(5):
        outlook.done("DATA", rows=1_000, gone=1_000, at_s=float(at), took_s=None)
    assert outlook.left_s("DATA") is None
    for at in range(5, 8):
        outlook.done("DATA", rows=1_000, gone=1_000, at_s=float(at), took_s=1.0)
    assert outlook.left_s("DATA") == pytest.approx(2.0, rel=0.2)


def test_work_that_stands_still_is_noticed() -> None:
    outlook = Outlook.of_total(100_000)
    for at in range(10):
        outlook.done("DATA", rows=1_000, gone=1_000, at_s=float(at), took_s=1.0)
    before = outlook.left_s("DATA")
    outlook.look(40.0)
    after = outlook.left_s("DATA")
    assert before is not None
    assert after is not None
    assert after > 3 * before


def test_pace_keeps_few_samples_of_a_long_run() -> None:
    pace = Pace()
    for second in range(200_000):
        pace.add(second / 10, second)
    assert pace.rate == pytest.approx(10.0, rel=0.01)
    assert len(pace._samples) < 500


def test_progress_is_shown_more_often_in_the_beginning_and_never_more_often_than_that() -> None:
    shown, times = Shown(), []
    for tick in range(1_000):
        at_s = tick / 100
        shown.count(at_s, done=tick, bounds=None)
        if shown.is_due(at_s, every_s=0.5):
            shown.show(at_s)
            times.append(at_s)
    gaps = [after - before for before, after in pairwise(times)]
    assert min(gaps) >= 0.12
    assert max(gaps) <= 0.51
    assert len(times) <= 10 / 0.5 + 6
