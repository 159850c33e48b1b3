"""The bytes of a record."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.targets.files import control_record
from spark.targets.files.control_errors import ControlFileFull
from spark.targets.files.control_record import ControlRecord, ProtectedRange, decode, encode
from tests.spark.targets.released import released

numbers = st.integers(0, 2**62)
ranges = st.builds(
    lambda name, kind, first, more: ProtectedRange(name, kind, first, None if more is None else first + more),
    st.text("abcdefghjkmnpqrstvwxyz0123456789_", min_size=1, max_size=40),
    st.sampled_from(["BACKUP", "NETWORK_RESTORE", "SCAN", "FEEDER"]),
    st.integers(0, 2**30),
    st.none() | st.integers(0, 2**30 - 1),
)
records = st.builds(
    ControlRecord,
    *[numbers] * 3,
    *[st.integers(0, 2**64 - 1)] * 3,
    st.lists(ranges, max_size=20).map(tuple),
)
RECORD = ControlRecord(7, 5, 9, 64769, 3, 4, (ProtectedRange("prt_1", "BACKUP", 2, 4),))


@given(records, st.binary(max_size=100))
def test_any_record_is_read_as_it_was_written_whatever_follows_it(record: ControlRecord, rest: bytes) -> None:
    assert decode(encode(record) + rest) == record


@given(records, st.data())
def test_any_flipped_bit_makes_a_slot_invalid(record: ControlRecord, data: st.DataObject) -> None:
    slot = bytearray(encode(record))
    bit = data.draw(st.integers(0, len(slot) * 8 - 1))
    slot[bit // 8] ^= 1 << bit % 8

    assert decode(bytes(slot)) is None


@given(records, records, st.data())
def test_slot_torn_anywhere_over_an_older_one_is_invalid_or_one_of_the_two(
    old: ControlRecord, new: ControlRecord, data: st.DataObject
) -> None:
    before, after = encode(old), encode(new)
    cut = data.draw(st.integers(0, len(after)))

    torn = after[:cut] + before[cut:]

    assert decode(torn) in (None, old, new)


def test_every_cut_of_a_slot_is_invalid() -> None:
    slot = encode(RECORD)
    assert [decode(slot[:cut]) for cut in range(len(slot))] == [None] * len(slot)


def test_empty_or_foreign_bytes_are_no_record() -> None:
    noise = random.Random(1).randbytes(control_record.SLOT_BYTES)
    assert decode(b"") is None
    assert decode(bytes(control_record.SLOT_BYTES)) is None
    assert decode(noise) is None


def test_a_thousand_longest_ranges_fit_and_one_more_is_refused_with_the_maximum() -> None:
    many = tuple(ProtectedRange(f"{n:040d}", "NETWORK_RESTORE", n, 0x7FFFFFFF) for n in range(1001))
    full = ControlRecord(*[2**62] * 3, *[2**64 - 1] * 3, many[:1000])

    assert len(encode(full)) <= control_record.SLOT_BYTES
    assert decode(encode(full)) == full
    with pytest.raises(ControlFileFull, match="1001 protected ranges; a control file holds 1000"):
        encode(full.protecting(many[1000]))


def test_range_covers_its_files_and_no_others() -> None:
    closed, open_end = ProtectedRange("a", "SCAN", 2, 4), ProtectedRange("b", "FEEDER", 3, None)
    record = RECORD.protecting(closed, open_end)

    assert [number for number in range(7) if closed.covers(number)] == [2, 3, 4]
    assert [number for number in range(7) if open_end.covers(number)] == [3, 4, 5, 6]
    assert [held.id for held in record.covering(3)] == ["prt_1", "a", "b"]
    assert [held.id for held in released(record, "a", "prt_1").covering(3)] == ["b"]


def test_edits_hold_each_range_once_and_never_lower_the_epoch() -> None:
    assert RECORD.protecting(*RECORD.ranges) == RECORD
    assert RECORD.claimed(4) == RECORD
    assert RECORD.claimed(6).epoch == 6
