"""The generator never goes back: over restarts, clock jumps, full seconds and peers that are ahead."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.formats.csn import FIELD_MAX, TIMESTAMP_MAX, Csn
from spark.replication.csn_generator import (
    SKEW_MAX_S,
    ClockSkewExceeded,
    GeneratorState,
    TimestampOutOfRange,
    adjust,
    next_csn,
    rise,
)

NOON = 1_795_000_000


def test_csns_of_one_second_count_up() -> None:
    first, state = next_csn(GeneratorState(7, NOON), now_s=NOON)
    second, _ = next_csn(state, now_s=NOON)
    assert (first, second) == (Csn.of(NOON, 0, 7), Csn.of(NOON, 1, 7))


def test_new_second_starts_at_zero() -> None:
    _, state = next_csn(GeneratorState(7, NOON), now_s=NOON)
    assert next_csn(state, now_s=NOON + 1)[0] == Csn.of(NOON + 1, 0, 7)


def test_clock_that_goes_back_is_made_up_for_and_paid_back() -> None:
    first, state = next_csn(GeneratorState(7, NOON), now_s=NOON)
    behind, state = next_csn(state, now_s=NOON - 100)
    assert behind == Csn.of(NOON, 1, 7) > first
    assert state.local_offset_s == 100
    _, state = next_csn(state, now_s=NOON - 40)
    assert (state.local_offset_s, state.timestamp) == (40, NOON)
    later, state = next_csn(state, now_s=NOON + 5)
    assert (later, state.local_offset_s) == (Csn.of(NOON + 5, 0, 7), 0)


def test_full_second_borrows_from_the_next() -> None:
    csn, state = next_csn(GeneratorState(7, NOON, sequence=FIELD_MAX), now_s=NOON)
    assert csn == Csn.of(NOON + 1, 0, 7)
    assert state.local_offset_s == 1
    assert next_csn(state, now_s=NOON + 1)[0] == Csn.of(NOON + 1, 1, 7)


def test_restart_from_the_kept_state_goes_on_above() -> None:
    last, state = next_csn(GeneratorState(7, NOON), now_s=NOON)
    restored = GeneratorState(**asdict(state))
    assert next_csn(restored, now_s=NOON - 3_600)[0] > last


@pytest.mark.parametrize("sequence", [0, 5, FIELD_MAX - 1, FIELD_MAX])
@pytest.mark.parametrize("ahead_s", [-10, 0, 1, 500, SKEW_MAX_S])
def test_csn_after_a_peers_is_newer(ahead_s: int, sequence: int) -> None:
    remote = Csn.of(NOON + ahead_s, sequence, 9, FIELD_MAX)
    _, state = next_csn(GeneratorState(7, NOON), now_s=NOON)
    assert next_csn(adjust(state, remote=remote, now_s=NOON), now_s=NOON)[0] > remote


@pytest.mark.parametrize("sequence", [0, 5, FIELD_MAX - 1, FIELD_MAX])
@pytest.mark.parametrize("behind_s", [-10, 0, 1, 500, SKEW_MAX_S - 1])
def test_what_a_clock_that_went_back_takes_is_paid_back(behind_s: int, sequence: int) -> None:
    held = Csn.of(NOON + behind_s, sequence, 9, FIELD_MAX)
    first, state = next_csn(rise(GeneratorState(7, NOON), above=held, now_s=NOON), now_s=NOON)
    assert first > held
    _, state = next_csn(state, now_s=NOON + SKEW_MAX_S)
    assert (state.local_offset_s, state.remote_offset_s) == (0, 0)


def test_a_clock_a_day_and_a_second_behind_what_is_here_is_refused() -> None:
    held = Csn.of(NOON + SKEW_MAX_S + 1, 0, 9)
    with pytest.raises(ClockSkewExceeded, match="86401 s behind"):
        rise(GeneratorState(7, NOON), above=held, now_s=NOON)


def test_peer_one_day_and_a_second_ahead_is_refused() -> None:
    remote = Csn.of(NOON + SKEW_MAX_S + 1, 0, 9)
    with pytest.raises(ClockSkewExceeded, match="86401 s ahead") as caught:
        adjust(GeneratorState(7, NOON), remote=remote, now_s=NOON)
    assert caught.value.skew_s == SKEW_MAX_S + 1


def test_many_small_steps_of_peers_do_not_pass_the_limit() -> None:
    state = GeneratorState(7, NOON)
    state = adjust(state, remote=Csn.of(NOON + SKEW_MAX_S - 10, 0, 9), now_s=NOON)
    with pytest.raises(ClockSkewExceeded):
        adjust(state, remote=Csn.of(state.timestamp + 20, 0, 9), now_s=NOON)


def test_two_generators_that_follow_each_other_do_not_drift_apart_from_the_clock() -> None:
    # Clocks that tick half a second apart: each in turn sees the other a second ahead. Without the second
    # that the next tick eats, both gain a second with every half one.
    one, other = GeneratorState(1, NOON), GeneratorState(2, NOON)
    for half in range(1, 1_200):
        one_s, other_s = NOON + half // 2, NOON + (half - 1) // 2
        csn, one = next_csn(one, now_s=one_s)
        other = adjust(other, remote=csn, now_s=other_s)
        csn, other = next_csn(other, now_s=other_s)
        one = adjust(one, remote=csn, now_s=one_s)
    assert max(one.timestamp, other.timestamp) <= NOON + 601


def test_clock_a_day_and_a_second_behind_is_refused() -> None:
    _, state = next_csn(GeneratorState(7, NOON), now_s=NOON)
    assert next_csn(state, now_s=NOON - SKEW_MAX_S)[1].local_offset_s == SKEW_MAX_S
    with pytest.raises(ClockSkewExceeded, match="86401 s behind"):
        next_csn(state, now_s=NOON - SKEW_MAX_S - 1)


@pytest.mark.parametrize("now_s", [-1, TIMESTAMP_MAX + 1])
def test_clock_outside_of_all_csns_is_refused(now_s: int) -> None:
    with pytest.raises(TimestampOutOfRange):
        next_csn(GeneratorState(7, min(max(now_s, 10), TIMESTAMP_MAX)), now_s=now_s)


def test_last_second_of_all_is_not_overrun() -> None:
    full = GeneratorState(7, TIMESTAMP_MAX, sequence=FIELD_MAX)
    with pytest.raises(TimestampOutOfRange):
        next_csn(full, now_s=TIMESTAMP_MAX)
    last, _ = next_csn(GeneratorState(7, TIMESTAMP_MAX), now_s=TIMESTAMP_MAX)
    assert last.timestamp == TIMESTAMP_MAX


# What happens to a generator: the clock moves, or a peer's CSN is seen, and then CSNs are taken.
MOVES = st.sampled_from([0, 0, 1, 1, 2, 60, 90_000, 10**8, -1, -30, -5_000, -90_000])
PEERS = st.none() | st.tuples(
    st.integers(-200, 90_000), st.sampled_from([0, 1, 77, FIELD_MAX - 1, FIELD_MAX])
)
EVENTS = st.lists(
    st.tuples(
        MOVES,
        PEERS,
        st.sampled_from([adjust, rise]),
        st.integers(0, 3),
        st.sampled_from([None, FIELD_MAX - 1, FIELD_MAX]),
    ),
    max_size=30,
)


@given(EVENTS)
@settings(max_examples=300)
def test_whatever_happens_every_csn_is_greater_than_all_before(events: list[tuple]) -> None:
    state, now_s, floor = GeneratorState(7, NOON), NOON, Csn.of(0, 0, 7)
    for move_s, peer, follow, count, sequence in events:
        now_s = max(0, min(now_s + move_s, TIMESTAMP_MAX - 10**6))
        if sequence is not None and sequence >= state.sequence:
            state = GeneratorState(**asdict(state) | {"sequence": sequence})  # a busy second, quickly
        if peer is not None:
            ahead_s, number = peer
            remote = Csn.of(max(0, state.timestamp + ahead_s), number, 9)
            try:
                if follow is adjust:
                    state = adjust(state, remote=remote, now_s=now_s)
                else:
                    state = rise(state, above=remote, now_s=now_s)
            except ClockSkewExceeded:
                continue
            floor = max(floor, remote)
        for _ in range(count):
            try:
                csn, state = next_csn(state, now_s=now_s)
            except ClockSkewExceeded:
                break
            assert csn > floor
            floor = csn
        assert 0 <= state.local_offset_s <= SKEW_MAX_S
        assert 0 <= state.remote_offset_s <= SKEW_MAX_S
