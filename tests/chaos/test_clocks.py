"""When a window was closed, while the clock that it goes by was set."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.chaos.clocks import closed_spans

UNTIL = datetime.fromtimestamp(1_060, UTC)


def test_window_that_never_opens_is_closed_whatever_the_clock_does() -> None:
    sets = [(0.0, 0.0), (1_010.0, 95.0), (1_020.0, 0.0)]
    found = closed_spans(1_000, 1_030, until=None, sets=sets)
    assert found == [(1_000, 1_010), (1_010, 1_020), (1_020, 1_030)]


def test_window_is_closed_until_the_clock_of_the_metadata_says_so() -> None:
    assert closed_spans(1_000, 1_090, until=UNTIL, sets=[(0.0, 0.0)]) == [(1_000, 1_060)]
    assert closed_spans(1_000, 1_090, until=UNTIL, sets=[(0.0, 30.0)]) == [(1_000, 1_030)]
    assert closed_spans(1_000, 1_090, until=UNTIL, sets=[(0.0, -95.0)]) == [(1_000, 1_090)]


def test_clock_that_is_put_back_closes_it_again() -> None:
    sets = [(0.0, 0.0), (1_065.0, -30.0), (1_070.0, 0.0)]
    assert closed_spans(1_000, 1_090, until=UNTIL, sets=sets) == [(1_000, 1_060), (1_065, 1_070)]
