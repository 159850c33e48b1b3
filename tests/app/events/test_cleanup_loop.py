"""The loop of a cleanup's units: it ends when nothing is left, not when nothing was drawn.

The story: a stop that came between the loop's own look at it and the drawing of the next unit left nothing
drawn. The loop took that for its end, and a cleanup that leaves the log tables alone succeeded with events
that it had not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.events.cleanup.loop import Cleanup, CleanupCourse, divide
from app.jobs.errors import JobStopped, StopCause
from app.jobs.models import ThrottleSetting
from app.jobs.running.sql_target import Claimed
from app.sweeps.loop import Sweep
from spark.events.cleaning.records import CleanupPlan, OriginPlan, SwitchForecast
from spark.events.records import Catalog
from spark.events.unit import CleanupUnit, Span, UnitJob, UnitResult
from spark.formats.slony import LogStatus
from spark.targets.work import Outcome

LAST_LOOK = 1
"""The loop's own."""
NOW = datetime(2026, 11, 22, tzinfo=UTC)
CATALOG = Catalog("lab", "_lab", "2.2.11", 1, (), (), frozenset())
ORIGIN = OriginPlan(1, 10, 9, 9, 110, 110, 101, 110, 110, None, 0, 0)
PLAN = CleanupPlan(NOW, "PROGRAM", (ORIGIN,), (), 0, SwitchForecast(LogStatus.LOG_1, "START", "sl_log_2"))


@dataclass
class StoppedBetween:
    """A context whose stop comes right after the last look at it before a unit is drawn."""

    looks: int = 0
    job: Any = field(default_factory=lambda: SimpleNamespace(id="job_1", token=1))
    clock: Any = field(default_factory=lambda: SimpleNamespace(boottime_s=lambda: 0.0))
    throttle: Any = field(
        default_factory=lambda: SimpleNamespace(setting=ThrottleSetting(), delay_s=lambda: 0.0)
    )

    @property
    def stop_cause(self) -> StopCause | None:
        return StopCause.ABORT if self.looks >= LAST_LOOK else None

    def check(self) -> None:
        if self.stop_cause is not None:
            raise JobStopped(self.stop_cause)
        self.looks += 1

    def progress(self, **_: Any) -> None:
        pass

    def show_bounds(self) -> None:
        pass


class NoLease:
    """Draws, and runs what it gets: here it must get nothing."""

    def map(self, units: Iterator[Any]) -> Iterator[Any]:
        assert next(units, None) is None
        return iter(())


def test_stop_before_the_first_unit_is_drawn_stops_and_is_no_end() -> None:
    context = StoppedBetween()
    params = SimpleNamespace(max_rows_in_tx=None)
    claimed = Claimed("target", "_lab.cleanup", has_ledger=True)
    cleanup = cast(Cleanup, Cleanup(context, None, None, params, CATALOG, NOW, claimed=claimed))  # type: ignore[arg-type]
    with pytest.raises(JobStopped) as stopped:
        Sweep(cast(Any, context), cast(Any, NoLease()), _course(cleanup)).run()
    assert stopped.value.cause is StopCause.ABORT
    assert cleanup.tally.units == 0


def test_an_origin_is_busy_until_the_last_of_its_units_has_ended() -> None:
    """Two units of confirmations may be of one origin; the end of one does not free its events."""
    asked: list[set[int]] = []
    job = UnitJob("job_1", 1, "_lab.cleanup")
    units = [_confirmations(job, lo) for lo in (1, 5)]

    class Walk:
        def next_unit(self, _conn: Any, *, rows_max: int, busy: set[int]) -> CleanupUnit | None:
            asked.append(set(busy))
            return units.pop(0) if units else None

        def note(self, _unit: CleanupUnit, _result: UnitResult) -> None:
            pass

    class Lease:
        def map(self, drawn: Iterator[CleanupUnit]) -> Iterator[Outcome[CleanupUnit, UnitResult]]:
            under_way = [unit for unit in (next(drawn, None), next(drawn, None)) if unit is not None]
            while under_way:
                yield Outcome(under_way.pop(0), UnitResult(1), None, 0.1)
                assert next(drawn, None) is None

    context = StoppedBetween(looks=-100)
    context.throttle.charge = lambda **_: None
    params = SimpleNamespace(max_rows_in_tx=None)
    claimed = Claimed("target", "_lab.cleanup", has_ledger=True)
    cleanup = cast(Cleanup, Cleanup(context, None, None, params, CATALOG, NOW, claimed=claimed))  # type: ignore[arg-type]
    course = _course(cleanup)
    course._walk = cast(Any, Walk())
    Sweep(cast(Any, context), cast(Any, Lease()), course).run()
    assert asked == [set(), {1}, {1}, set()]
    assert cleanup.tally.units == 2


@pytest.mark.parametrize("bound", [{"rows_per_s": 5.0}, {"bytes_per_s": 5.0}, {"intensity": 0.1}])
def test_a_throttle_that_is_set_meanwhile_is_waited_for_behind_the_unit_under_way(
    bound: dict[str, float],
) -> None:
    job = UnitJob("job_1", 1, "_lab.cleanup")
    units = [_confirmations(job, lo) for lo in (1, 5, 9)]

    class Walk:
        def next_unit(self, _conn: Any, *, rows_max: int, busy: set[int]) -> CleanupUnit:
            return units.pop(0)

    context = StoppedBetween(looks=-100)
    params = SimpleNamespace(max_rows_in_tx=None)
    claimed = Claimed("target", "_lab.cleanup", has_ledger=True)
    cleanup = cast(Cleanup, Cleanup(context, None, None, params, CATALOG, NOW, claimed=claimed))  # type: ignore[arg-type]
    course = _course(cleanup)
    course._walk = cast(Any, Walk())
    drawn = course.next_units()
    assert drawn is not None
    assert next(drawn)
    context.throttle.setting = ThrottleSetting(**bound)
    assert next(drawn, None) is None
    assert len(units) == 2


def test_parts_of_a_unit_that_was_too_long_are_all_of_it_in_its_order() -> None:
    job = UnitJob("job_1", 1, "_lab.cleanup")
    wide = replace(_confirmations(job, 1), spans=(Span(1, 1, 10, below=20, receiver=2),))
    parts = divide(wide)
    assert [(part.spans[0].lo, part.spans[0].hi) for part in parts] == [(1, 3), (4, 6), (7, 9), (10, 10)]
    assert divide(parts[-1]) == [parts[-1]]
    two = replace(wide, spans=(*wide.spans, Span(2, 5, 6, below=20, receiver=1)))
    assert [part.spans for part in divide(two)] == [(span,) for span in two.spans]


def _course(cleanup: Cleanup) -> CleanupCourse:
    return CleanupCourse(cleanup, PLAN, UnitJob("job_1", 1, "_lab.cleanup"), before=0)


def _confirmations(job: UnitJob, lo: int) -> CleanupUnit:
    return CleanupUnit(job, "_lab", 1, "CONFIRM", (Span(1, lo, lo + 3, below=20, receiver=2),), "PROGRAM")
