"""The throttle of the document: units spread over the cycle, no credit, nothing held while it waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.erase.cycle.throttle import Rate, header_times_s, round_units
from app.erase.record import Record
from app.jobs.again import set_throttle
from app.jobs.models import ThrottleSetting
from spark.erase.calls.calls import RoundCall
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import MIB, FakeLog

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
DURATION_S = 3_000.0
LONG = {"min_file_age": "PT0S", "duration": f"PT{DURATION_S:.0f}S"}


def test_units_fill_what_is_left_of_the_cycle() -> None:
    rate = Rate.of(total_units=3_000, left_s=30)
    assert rate.next_at(NOON, NOON, 300) == NOON + timedelta(seconds=3)


def test_time_lost_gives_no_credit() -> None:
    rate = Rate.of(total_units=3_000, left_s=30)
    late = NOON + timedelta(hours=1)
    assert rate.next_at(NOON, late, 300) == late + timedelta(seconds=3)


def test_work_ahead_of_its_time_waits_for_it() -> None:
    rate = Rate.of(total_units=3_000, left_s=30)
    ahead = NOON + timedelta(seconds=10)
    assert rate.next_at(ahead, NOON, 300) == ahead + timedelta(seconds=3)


@pytest.mark.parametrize(("units", "left_s"), [(0, 30.0), (100, 0.0)])
def test_nothing_to_spread_is_no_throttle(units: int, left_s: float) -> None:
    assert Rate.of(total_units=units, left_s=left_s).next_at(NOON, NOON, 50) == NOON


def test_stretches_of_a_file_add_up_to_its_length() -> None:
    assert sum(round_units(size) for size in (5 * MIB, 3 * MIB)) == 8 * MIB


@pytest.mark.parametrize(("count", "duration_s", "span_s"), [(10, 1e6, 10.0), (10_000, 1e6, 1_000.0)])
def test_headers_are_read_over_the_lesser_span(count: int, duration_s: float, span_s: float) -> None:
    assert header_times_s(count, duration_s) == span_s


def test_throttled_cycle_follows_its_plan(erasers: Erasers, log: FakeLog) -> None:
    for number in range(4):
        log.add(number, rounds=4)
    at: list[float] = []
    log.on_round = lambda _call: at.append(erasers.clock.boottime_s())
    began = erasers.clock.boottime_s()
    erasers.begin(**LONG)
    erasers.run(until_s=DURATION_S)
    assert erasers.cycle().state == "COMPLETE"
    # Three files of equal size: each has a third of the cycle, a third of which is spare time. Another third
    # of it goes before the first round, for the read through the file.
    share = DURATION_S / 9
    for number in range(3):
        first = at[number * 4] - began
        assert first == pytest.approx(number * 2 * share + share, rel=0.05)
    assert at[-1] - began < 6 * share
    assert erasers.cycle().done_units == erasers.cycle().total_units


def test_what_a_round_has_done_wakes_nobody_but_its_readers(
    erasers: Erasers, log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each loop that looks where there is news looked behind each round of a cycle of weeks."""
    grown: dict[bool, set[int]] = {True: set(), False: set()}
    change_file = Record.change_file

    def counted(self: Record, *what: Any, say: Any = None, **named: Any) -> Any:
        before = erasers.database.news()
        try:
            return change_file(self, *what, say=say, **named)
        finally:
            grown[say is not None].add(erasers.database.news() - before)

    monkeypatch.setattr(Record, "change_file", counted)
    log.add(0, rounds=5)
    log.add(1)
    erasers.begin(**LONG)
    erasers.run(until_s=DURATION_S)
    assert erasers.cycle().state == "COMPLETE"
    assert grown == {True: {1}, False: {0}}


def test_throttled_cycle_tells_when_its_plan_is_done(erasers: Erasers, log: FakeLog) -> None:
    """By the moments of work alone it was seconds from its end, or a day behind it."""
    for number in range(4):
        log.add(number, rounds=4)
    ends: list[float] = []
    erasers.begin(**LONG)

    def look(_call: RoundCall) -> None:
        progress = erasers.job().progress
        if progress is not None and progress["fraction"] < 1:
            eta = datetime.fromisoformat(progress["eta"])
            ends.append((eta - NOON).total_seconds())
            assert progress["rate_per_s"] == pytest.approx(1000 / erasers.cycle().ms_per_unit, abs=0.1)

    log.on_round = look
    erasers.run(until_s=DURATION_S)
    cycle = erasers.cycle()
    assert (cycle.ends_at, cycle.state) != (None, "RUNNING")
    assert len(ends) >= 10
    end_s = (cycle.ends_at - NOON).total_seconds()
    assert max(ends) <= end_s
    assert min(ends) >= end_s - DURATION_S / 3 - 1


def test_nothing_is_held_while_it_waits(erasers: Erasers, log: FakeLog) -> None:
    erasers.begin(**LONG)
    erasers.run(until_s=100)
    job = erasers.job()
    assert (job.state, erasers.waiting_kinds()) == ("WAITING", ["THROTTLE"])
    assert job.lease_instance is None
    assert log.open_hands == 0
    assert erasers.cycle().next_at is not None


def test_hashing_is_not_done_again_after_each_wait(erasers: Erasers, log: FakeLog) -> None:
    log.add(0, rounds=6)
    erasers.begin(**LONG)
    erasers.run(until_s=DURATION_S)
    prepared = [call for call in log.asked if type(call).__name__ == "PrepareCall" and call.number == 0]
    assert len(log.rounds_of(0)) == 6
    assert len(prepared) == 1


def test_clean_files_are_cheaper_and_the_cycle_ends_early(erasers: Erasers, log: FakeLog) -> None:
    log.add(0, rounds=0)
    log.add(1, rounds=0)
    began = erasers.clock.now()
    erasers.begin(**LONG)
    erasers.run(until_s=DURATION_S)
    cycle = erasers.cycle()
    assert cycle.state == "COMPLETE"
    assert cycle.done_units == cycle.total_units
    assert cycle.ended_at is not None
    assert (cycle.ended_at - began).total_seconds() < DURATION_S / 2


def test_headers_of_many_files_are_read_in_pieces(erasers: Erasers, log: FakeLog) -> None:
    for number in range(3, 90):
        log.add(number, rounds=0)
    erasers.begin(period="P25D")
    erasers.run(until_s=45)
    assert 0 < len(erasers.states()) < 90
    erasers.run(until_s=100)
    assert len(erasers.states()) == 90


def test_bounds_set_while_it_runs_hold_it_back(erasers: Erasers, log: FakeLog) -> None:
    """`PATCH /throttle`: a round of 1,200 bytes at 12 bytes a second is 100 seconds."""
    log.add(0, rounds=4)

    def slow_down(_call: RoundCall) -> None:
        assert erasers.context is not None
        erasers.context.throttle.set(ThrottleSetting(bytes_per_s=12))
        with erasers.database.transaction() as db:
            setting = ThrottleSetting(bytes_per_s=12)
            set_throttle(db, erasers.job().id, setting, now=erasers.clock.now(), actor="ann")
        log.on_round = lambda _call: None

    log.on_round = slow_down
    began = erasers.clock.boottime_s()
    erasers.begin()
    erasers.run(until_s=10_000, until=lambda: len(log.rounds_of(0)) == 4)
    assert erasers.clock.boottime_s() - began >= 290
    assert erasers.job().state == "WAITING"
