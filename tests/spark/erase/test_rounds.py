"""Planned entries as bytes, and their division into rounds."""

import pyarrow as pa
import pytest

from spark.erase.entry_tables import BATCH_ROWS, pack, rows_of, unpack
from spark.erase.native.planned import PLANNED
from spark.erase.overwrite.rounds import RoundSlice, slice_entries, split_rounds

SIZE = 1 << 30


def table(*entries: tuple[int, int], flags: int = 0) -> pa.Table:
    """Entries of (offset, bytes of the item)."""
    rows = [
        {
            "offset": offset,
            "reason": 5,
            "type": 35,
            "flags": flags,
            "previous": 0,
            "item_bytes": size,
            "vlsn": 0,
            "checksum": 1,
        }
        for offset, size in entries
    ]
    return pa.Table.from_pylist(rows, PLANNED)


def many(count: int, stride: int = 100, size: int = 50) -> pa.Table:
    return table(*((38 + stride * number, size) for number in range(count)))


def test_table_becomes_bytes_and_comes_back() -> None:
    assert unpack(pack(many(12_345))).equals(many(12_345))
    assert unpack(pack(many(0))).num_rows == 0


def test_table_in_pieces_is_packed_as_one_that_is_whole() -> None:
    whole = many(12_345)
    pieces = pa.concat_tables([whole.slice(at, 7) for at in range(0, 12_345, 7)])
    assert pack(pieces) == pack(whole)


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 0), (0, 1), (5_119, 5_121), (0, 12_345), (5_120, 10_240), (12_344, 12_345), (3_000, 11_000)],
)
def test_slice_is_the_rows_that_were_asked_for(first: int, last: int) -> None:
    taken = slice_entries(pack(many(12_345)), first, last)
    assert unpack(taken).equals(many(12_345).slice(first, last - first).combine_chunks())
    if last - first > 2:
        assert unpack(slice_entries(taken, 1, 2)).equals(many(12_345).slice(first + 1, 1).combine_chunks())


def test_rounds_have_at_most_so_many_entries() -> None:
    rounds = split_rounds(pack(many(12_345)), file_size=SIZE)
    assert [each.entry_count for each in rounds] == [5_120, 5_120, 2_105]
    assert [(each.first, each.last) for each in rounds] == [(0, 5_120), (5_120, 10_240), (10_240, 12_345)]
    assert rounds[1].first_offset == 38 + 100 * 5_120
    assert rounds[1].end_offset == 38 + 100 * 10_239 + 14 + 50


def test_rounds_span_at_most_eight_mebibytes() -> None:
    mebibyte = 1 << 20
    rounds = split_rounds(pack(many(20, stride=mebibyte, size=mebibyte - 14)), file_size=SIZE)
    assert [each.entry_count for each in rounds] == [8, 8, 4]
    assert all(each.end_offset - each.first_offset <= 8 * mebibyte for each in rounds)
    apart = split_rounds(pack(many(3, stride=9 * mebibyte)), file_size=SIZE)
    assert [each.entry_count for each in apart] == [1, 1, 1]


def test_entry_larger_than_a_round_is_a_round_of_its_own() -> None:
    large = 20 << 20
    entries = pack(table((38, 10), (100, large), (100 + 14 + large, 10)))
    assert split_rounds(entries, file_size=SIZE) == [
        RoundSlice(0, 1, 38, 62, 1),
        RoundSlice(1, 2, 100, 114 + large, 1),
        RoundSlice(2, 3, 114 + large, 138 + large, 1),
    ]


def test_no_entries_make_no_rounds() -> None:
    assert split_rounds(pack(many(0)), file_size=SIZE) == []
    assert BATCH_ROWS == 5_120


@pytest.mark.parametrize(
    "wrong",
    [
        table((38, 100), (100, 10)),  # one lies in the other
        table((200, 10), (100, 10)),
        table((0, 24)),  # the header of the file
        table((SIZE - 20, 10)),  # behind the end of the file
        table((38, -1)),
        table((38, 10)).set_column(2, "type", pa.array([20], pa.uint8())),  # the end of a checkpoint
    ],
)
def test_entries_that_no_plan_makes_are_not_worked_on(wrong: pa.Table) -> None:
    with pytest.raises(AssertionError):
        rows_of(pack(wrong), file_size=SIZE)


def test_header_is_longer_where_there_is_a_vlsn() -> None:
    assert rows_of(pack(table((38, 10), flags=0x20)), file_size=SIZE).ends.tolist() == [70]
    assert rows_of(pack(table((38, 10))), file_size=SIZE).ends.tolist() == [62]
