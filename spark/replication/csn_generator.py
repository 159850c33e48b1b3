"""The generator of CSNs as a pure state machine: state and clock in, CSN and state out.

Invariants:
- every CSN is greater than all that the same line of states has given, whatever the clock did in between;
- after `adjust` and `rise` every new CSN is greater than the other one;
- timestamp = sampled_s + local_offset_s + remote_offset_s never goes back; no offset is ever negative;
- neither offset is above the skew limit: beyond it the generator refuses, and the state stays as it was.

A caller keeps the state where it keeps the change itself, in the same transaction: a restart goes on from it.
Source: facts/replication-session, section 2 (389's csngen.c).
"""

from dataclasses import dataclass, replace
from typing import Final

from spark.formats.csn import FIELD_MAX, RID_MAX, RID_MIN, TIMESTAMP_MAX, Csn

SKEW_MAX_S: Final = 86_400


class ClockSkewExceeded(Exception):
    """A clock, ours or the peer's, is so far off that following it would carry its error everywhere."""

    def __init__(self, detail: str, *, skew_s: int) -> None:
        super().__init__(detail)
        self.detail = detail
        self.skew_s = skew_s


class TimestampOutOfRange(Exception):
    """The clock is before 1970 or past the last second that a CSN has."""


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """What a generator remembers; `sequence` is that of the next CSN.

    Attributes:
        local_offset_s: what the own clock went back, and what overflowing sequences took; a clock that moves
            forward eats it.
        remote_offset_s: how far peers are ahead.
    """

    rid: int
    sampled_s: int
    local_offset_s: int = 0
    remote_offset_s: int = 0
    sequence: int = 0

    def __post_init__(self) -> None:
        assert RID_MIN <= self.rid <= RID_MAX, self.rid
        assert min(self.sampled_s, self.local_offset_s, self.remote_offset_s) >= 0, self
        assert 0 <= self.sequence <= FIELD_MAX, self.sequence

    @property
    def timestamp(self) -> int:
        """The second that the next CSN would carry."""
        return self.sampled_s + self.local_offset_s + self.remote_offset_s


def next_csn(state: GeneratorState, *, now_s: int) -> tuple[Csn, GeneratorState]:
    """Give one CSN, and the state to keep with it.

    Raises:
        ClockSkewExceeded: the clock is more than a day behind what was given already.
        TimestampOutOfRange: the clock shows a time that no CSN has.
    """
    state = _roll_over(_sample(state, now_s))
    csn = Csn.of(state.timestamp, state.sequence, state.rid)
    return csn, replace(state, sequence=state.sequence + 1)


def adjust(state: GeneratorState, *, remote: Csn, now_s: int) -> GeneratorState:
    """Follow a peer's greatest CSN, so that what is made from now on is newer.

    Only for peers of the same generation: a foreign one would infect every replica with its clock.

    Raises:
        ClockSkewExceeded: the peer is more than a day ahead, or the clock as for next_csn.
        TimestampOutOfRange: as for next_csn.
    """
    state = _sample(state, now_s)
    ahead_s = remote.timestamp - state.timestamp
    if ahead_s > 0:
        if state.remote_offset_s + ahead_s > SKEW_MAX_S:
            skew_s = state.remote_offset_s + ahead_s
            raise ClockSkewExceeded(f"the peer's CSN {remote} is {skew_s} s ahead", skew_s=skew_s)
        # One second goes to the offset that the clock eats, else two replicas ratchet each other up.
        parked_s = 1 if state.local_offset_s == 0 else 0
        state = replace(
            state,
            local_offset_s=state.local_offset_s + parked_s,
            remote_offset_s=state.remote_offset_s + ahead_s - parked_s,
            sequence=0,
        )
    return _past(state, remote)


def rise(state: GeneratorState, *, above: Csn, now_s: int) -> GeneratorState:
    """Let what is made from now on be newer than a change that is here.

    It was in time when it came: where the clock stands before it now, the clock went back, or is another
    machine's. A clock that moves forward eats what this takes.

    Raises:
        ClockSkewExceeded: the clock is more than a day behind it.
        TimestampOutOfRange: as for next_csn.
    """
    state = _sample(state, now_s)
    behind_s = above.timestamp - state.timestamp
    if behind_s > 0:
        local_s = state.local_offset_s + behind_s
        if local_s > SKEW_MAX_S:
            raise ClockSkewExceeded(
                f"the clock is {local_s} s behind {above}, which is here already", skew_s=local_s
            )
        state = replace(state, local_offset_s=local_s, sequence=0)
    return _past(state, above)


def _past(state: GeneratorState, csn: Csn) -> GeneratorState:
    """The next CSN is above one of the same second."""
    if state.timestamp != csn.timestamp or csn.sequence < state.sequence:
        return state
    # The last number of a second is never given: _roll_over takes it for "the second is full".
    return _roll_over(replace(state, sequence=min(csn.sequence + 1, FIELD_MAX)))


def _sample(state: GeneratorState, now_s: int) -> GeneratorState:
    """Look at the clock; the timestamp stays or grows."""
    moved_s = now_s - state.sampled_s
    if moved_s == 0:
        return state
    local_s = max(0, state.local_offset_s - moved_s)
    if local_s > SKEW_MAX_S:
        raise ClockSkewExceeded(f"the clock is {local_s} s behind what was given already", skew_s=local_s)
    grown = now_s + local_s + state.remote_offset_s > state.timestamp
    _check_range(now_s, now_s + local_s + state.remote_offset_s)
    return replace(state, sampled_s=now_s, local_offset_s=local_s, sequence=0 if grown else state.sequence)


def _roll_over(state: GeneratorState) -> GeneratorState:
    if state.sequence < FIELD_MAX:
        return state
    if state.local_offset_s >= SKEW_MAX_S:
        raise ClockSkewExceeded("more CSNs were taken than a day has", skew_s=state.local_offset_s + 1)
    _check_range(state.sampled_s, state.timestamp + 1)
    return replace(state, local_offset_s=state.local_offset_s + 1, sequence=0)


def _check_range(now_s: int, timestamp: int) -> None:
    if now_s < 0 or timestamp > TIMESTAMP_MAX:
        raise TimestampOutOfRange(f"{timestamp} s after 1970 is no time of a CSN")
