"""Whether a backlog grows, from looks at it. Pure: no clock, no metadata.

A backlog is no level but a saw: it fills until a node pulls, and empties. So what counts is not the slope of
a window, but whether even the least of its last third is more than the most that was there before its middle
third, on the whole day before too. How much more: as many batches as the parameter says, and a fifth of the
deepest fall that was seen: a saw whose teeth differ a little does not grow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import linear_regression
from typing import Final

POINTS_MIN: Final = 6
"""Looks in a window, at least; with fewer nothing is said."""
LOOKED_BACK: Final = timedelta(days=1)
"""Before the window: what was usual."""
COVERED: Final = 0.9
"""The first look that is known must be so far back, as a part of the window."""
RIPPLE_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Point:
    """How much waited at an instant."""

    at: datetime
    value: int


@dataclass(frozen=True, slots=True)
class Trend:
    """What a window says.

    Attributes:
        looks: how many lie in the window.
        per_hour: slope of the line through them, least squares; None: fewer than two.
        is_growing: None: too few looks, or they do not reach back as far as the window.
        rise: from the most before the middle third to the least of the last third; below zero: none.
    """

    looks: int
    per_hour: float | None
    is_growing: bool | None
    rise: int | None


def window_of(window: timedelta, interval: timedelta) -> timedelta:
    """The window in which there are enough looks."""
    return max(window, POINTS_MIN * interval)


def judge_trend(points: Sequence[Point], *, window: timedelta, least: int) -> Trend:
    """Judge the window that ends with the last look.

    Args:
        points: by time, the oldest first.
        least: batches that a rise has at least.
    """
    if not points:
        return Trend(0, None, None, None)
    end = points[-1].at
    known = [each for each in points if each.at > end - window - LOOKED_BACK]
    inside = [each for each in known if each.at > end - window]
    per_hour = _slope(inside)
    if len(inside) < POINTS_MIN or points[0].at > end - COVERED * window:
        return Trend(len(inside), per_hour, None, None)
    third = len(inside) // 3
    middle = len(known) - len(inside) + third
    base = max(each.value for each in known[:middle])
    rise = min(each.value for each in inside[-third:]) - base
    is_growing = rise >= max(least, 1) and rise >= RIPPLE_SHARE * deepest_fall(known)
    return Trend(len(inside), per_hour, is_growing, rise)


def deepest_fall(points: Sequence[Point]) -> int:
    """The most that a value lies below an earlier one."""
    fall = most = 0
    for each in points:
        most = max(most, each.value)
        fall = max(fall, most - each.value)
    return fall


def _slope(points: Sequence[Point]) -> float | None:
    hours = [(each.at - points[0].at).total_seconds() / 3600 for each in points]
    if len(points) < 2 or hours[-1] == hours[0]:
        return None
    return linear_regression(hours, [float(each.value) for each in points]).slope
