"""When a backlog grows: a naive model over random histories, and saws that never do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from app.purge.backlog.trend import POINTS_MIN, Point, judge_trend, window_of

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
STEP = timedelta(minutes=5)
WINDOW = timedelta(hours=2)
DAY = timedelta(days=1)
LEAST = 10


def history(values: list[int], *, step: timedelta = STEP) -> list[Point]:
    return [Point(NOON + number * step, value) for number, value in enumerate(values)]


def grows(values: list[int], *, window: timedelta = WINDOW, least: int = LEAST) -> bool | None:
    return judge_trend(history(values), window=window, least=least).is_growing


def naive(points: list[Point], window: timedelta, least: int) -> tuple[bool | None, float | None]:
    """Written from the sentence of the documentation, with lists and loops alone."""
    end = points[-1].at
    inside = [each for each in points if end - each.at < window]
    known = [each for each in points if end - each.at < window + DAY]
    slope = None
    if len(inside) > 1:
        xs = [(each.at - end).total_seconds() / 3600 for each in inside]
        ys = [each.value for each in inside]
        mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
        over = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
        slope = over / sum((x - mean_x) ** 2 for x in xs)
    if len(inside) < POINTS_MIN or end - points[0].at < 0.9 * window:
        return None, slope
    third = len(inside) // 3
    last = inside[len(inside) - third :]
    before = [each for each in known if each not in inside] + inside[:third]
    rise = min(each.value for each in last) - max(each.value for each in before)
    fall = max(one.value - two.value for number, one in enumerate(known) for two in known[number:])
    return rise >= least and rise >= fall / 5, slope


def random_history(rng: Random) -> list[Point]:
    at, value, points = NOON, rng.choice([0, 50, 5_000]), []
    drift = rng.choice([-3, 0, 0, 1, 3, 40])
    for _ in range(rng.randrange(1, 400)):
        at += STEP * rng.choice([1, 1, 1, 1, 2, 7])
        if rng.random() < 0.004:
            value = rng.randrange(0, value + 1)
        value = max(0, value + drift + rng.randrange(-5, 6))
        points.append(Point(at, value))
    return points


@pytest.mark.parametrize("cases", [60, pytest.param(1_000, marks=pytest.mark.long)])
def test_random_histories_are_judged_as_by_the_naive_model(cases: int) -> None:
    rng = Random("trend")
    verdicts = set()
    for _ in range(cases):
        points = random_history(rng)
        window, least = rng.choice([timedelta(hours=1), WINDOW, timedelta(hours=6)]), rng.choice([1, 10, 100])
        found = judge_trend(points, window=window, least=least)
        is_growing, slope = naive(points, window, least)
        assert found.is_growing is is_growing
        assert found.per_hour == (None if slope is None else pytest.approx(slope, rel=1e-6, abs=1e-6))
        verdicts.add(found.is_growing)
    assert verdicts == {True, False, None}


@pytest.mark.parametrize("period", [2, 5, 24, 72, 144, 288])
@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_steady_saw_never_grows_once_a_tooth_is_known(period: int, jitter: float) -> None:
    rng = Random(period)
    values: list[int] = []
    while len(values) < 600:
        height = 4_000 * (1 + jitter * (rng.random() - 0.5))
        values += [round(height * number / period) for number in range(period)]
    alarms = [end for end in range(period + 1, len(values) + 1, 4) if grows(values[max(0, end - 320) : end])]
    assert alarms == []


def test_steady_noise_never_grows() -> None:
    rng = Random(7)
    values = [1_000 + rng.randrange(-200, 200) for _ in range(500)]
    assert not any(grows(values[max(0, end - 320) : end]) for end in range(1, 500, 4))


def test_node_that_is_offline_is_found_within_two_windows() -> None:
    """A saw of 400 until the node stops; from then on 20 batches more at each look."""
    saw = [20 * (number % 20) for number in range(320)]
    rise = [saw[-1] + 20 * number for number in range(1, 49)]
    first = next(end for end in range(1, 49) if grows(saw + rise[:end]))
    assert first * STEP <= 2 * WINDOW


def test_growth_that_has_ended_grows_no_more() -> None:
    rise = [10 * number for number in range(60)]
    assert grows(rise) is True
    assert grows(rise + [590] * 24) is False
    assert grows(rise + [300 - 10 * number for number in range(12)]) is False


def test_few_batches_more_are_no_growth() -> None:
    values = [0] * 24 + [number // 3 for number in range(24)]
    assert grows(values, least=10) is False
    assert grows(values, least=3) is True


def test_nothing_is_said_of_too_few_looks_or_too_short_a_time() -> None:
    assert grows([10 * number for number in range(POINTS_MIN - 1)]) is None
    assert grows([10 * number for number in range(21)]) is None
    assert grows([10 * number for number in range(24)]) is True
    assert judge_trend([], window=WINDOW, least=1).is_growing is None
    assert judge_trend(history([3]), window=WINDOW, least=1).per_hour is None


def test_window_has_at_least_six_looks() -> None:
    assert window_of(WINDOW, STEP) == WINDOW
    assert window_of(WINDOW, timedelta(hours=4)) == DAY
