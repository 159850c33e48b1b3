"""The speed of a job: what was done is charged, debt drains at the rate in effect, idling gives no credit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.jobs.models import ThrottleSetting
from app.jobs.running.throttle import Throttle
from tests.app.fake_clock import FakeClock

RATES = st.floats(min_value=1, max_value=1e6)


def throttle(clock: FakeClock, **bounds: float) -> Throttle:
    return Throttle(clock, ThrottleSetting(**bounds))


def test_unbounded_job_never_waits(clock: FakeClock) -> None:
    free = Throttle(clock)
    free.charge(rows=10**9, byte_count=10**12, worked_s=3600)
    assert free.delay_s() == 0


@pytest.mark.parametrize(
    ("bounds", "delay_s"),
    [
        ({"rows_per_s": 100}, 5.0),
        ({"bytes_per_s": 1_000}, 2.0),
        ({"intensity": 0.25}, 3.0),
        ({"rows_per_s": 100, "bytes_per_s": 1_000, "intensity": 0.25}, 5.0),
        ({"rows_per_s": 10_000, "bytes_per_s": 1_000, "intensity": 0.25}, 3.0),
        ({"intensity": 1.0}, 0.0),
    ],
)
def test_strictest_bound_decides(clock: FakeClock, bounds: dict[str, float], delay_s: float) -> None:
    job = throttle(clock, **bounds)
    job.charge(rows=500, byte_count=2_000, worked_s=1.0)
    assert job.delay_s() == pytest.approx(delay_s)
    clock.advance(delay_s / 2)
    assert job.delay_s() == pytest.approx(delay_s / 2)
    clock.advance(delay_s / 2 + 1e-6)
    assert job.delay_s() == 0


def test_idle_time_gives_no_credit(clock: FakeClock) -> None:
    job = throttle(clock, rows_per_s=100, intensity=0.5)
    clock.advance(86_400)
    job.charge(rows=100, byte_count=0, worked_s=1)
    assert job.delay_s() == pytest.approx(1.0)


def test_changed_rate_drains_the_old_debt_at_once(clock: FakeClock) -> None:
    job = throttle(clock, rows_per_s=10)
    job.charge(rows=1_000, byte_count=0, worked_s=0)
    clock.advance(50)
    assert job.delay_s() == pytest.approx(50)
    job.set(ThrottleSetting(rows_per_s=1_000))
    assert job.delay_s() == pytest.approx(0.5)
    job.set(ThrottleSetting(rows_per_s=1))
    assert job.delay_s() == pytest.approx(500)
    job.set(ThrottleSetting())
    assert job.delay_s() == 0


def test_bound_set_later_does_not_charge_for_the_past(clock: FakeClock) -> None:
    job = Throttle(clock)
    job.charge(rows=10**6, byte_count=0, worked_s=100)
    clock.advance(1)
    job.set(ThrottleSetting(rows_per_s=1, intensity=0.1))
    assert job.delay_s() == 0


@given(rate=RATES, work=st.lists(st.integers(min_value=0, max_value=10_000), min_size=1, max_size=30))
def test_job_that_waits_as_told_keeps_its_rate_exactly(rate: float, work: list[int]) -> None:
    clock = FakeClock()
    job = throttle(clock, rows_per_s=rate)
    began = clock.boottime_s()
    for rows in work:
        job.charge(rows=rows, byte_count=0, worked_s=0)
        clock.advance(job.delay_s())
    passed = clock.boottime_s() - began
    assert passed == pytest.approx(sum(work) / rate, rel=1e-3, abs=1e-3)


@given(
    intensity=st.floats(min_value=0.05, max_value=1),
    work=st.lists(st.floats(min_value=0, max_value=5), min_size=1, max_size=30),
)
def test_job_that_waits_as_told_works_its_share(intensity: float, work: list[float]) -> None:
    clock = FakeClock()
    job = throttle(clock, intensity=intensity)
    began = clock.boottime_s()
    for worked_s in work:
        clock.advance(worked_s)
        job.charge(rows=1, byte_count=1, worked_s=worked_s)
        clock.advance(job.delay_s())
    passed = clock.boottime_s() - began
    assert sum(work) == pytest.approx(passed * intensity, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(
    ("bounds", "charges"),
    [
        ({}, None),
        ({"rows_per_s": 1_000}, 20),
        ({"bytes_per_s": 1_000}, 5),
        ({"intensity": 0.5}, 50),
        ({"rows_per_s": 1_000, "bytes_per_s": 1_000, "intensity": 0.5}, 5),
        ({"rows_per_s": 10}, 0),
    ],
)
def test_so_many_charges_of_the_usual_size_fit_into_a_second(
    clock: FakeClock, bounds: dict[str, float], charges: int | None
) -> None:
    job = throttle(clock, **bounds)
    assert job.charges_in(1.0) in (None, 0)  # nothing is known of the size yet
    for _ in range(3):
        job.charge(rows=50, byte_count=200, worked_s=0.01)
    assert job.charges_in(1.0) == charges
