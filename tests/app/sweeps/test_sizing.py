"""How the units of one window size those of the next."""

from __future__ import annotations

import pytest

from app.sweeps.sizing import LEAST_ROWS, UnitSize

STOOD_STILL = [0.1] * 7 + [60.0]
"""Eight units, one of which a machine that stood still has held up."""


def _size(*, is_waited_for: bool) -> UnitSize:
    return UnitSize(most_rows=20_000, target_s=1.0, window_units=32, rows=5_000, is_waited_for=is_waited_for)


def test_the_longest_unit_counts_where_somebody_waits_for_it() -> None:
    size = _size(is_waited_for=True)
    size.learn(STOOD_STILL)
    assert size.rows == LEAST_ROWS


def test_the_usual_unit_counts_where_nobody_does() -> None:
    size = _size(is_waited_for=False)
    size.learn(STOOD_STILL)
    assert size.rows == 20_000


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_units_that_all_take_too_long_become_smaller(is_waited_for: bool) -> None:
    size = _size(is_waited_for=is_waited_for)
    size.learn([2.0, 2.0, 2.0])
    assert size.rows == 1_750
    size.learn([])  # a window whose units were done before
    assert size.rows == 1_750


def test_a_step_may_begin_with_small_units_and_grows_as_any() -> None:
    size = UnitSize(most_rows=5_000, target_s=0.3, window_units=32, first_rows=500)
    assert size.rows == 500
    size.learn([0.02])
    assert size.rows == 2_000
    assert UnitSize(most_rows=100, target_s=0.3, window_units=32, first_rows=500).rows == 100
