"""Sets of files as few ranges, against sets of numbers."""

from hypothesis import given
from hypothesis import strategies as st

from app.protection.files import covering, covers, merged, name_of, number_of, without

NUMBERS = st.integers(min_value=0, max_value=60)
RANGES = st.lists(
    st.tuples(NUMBERS, st.one_of(st.none(), NUMBERS)).map(
        lambda pair: pair if pair[1] is None or pair[0] <= pair[1] else (pair[1], pair[0])
    ),
    max_size=6,
)


def numbers_in(ranges: list[tuple[int, int | None]]) -> set[int]:
    return {number for number in range(100) if covers(ranges, number)}


def test_name_and_number_are_each_others_inverse() -> None:
    assert name_of(0x1A) == "0000001a.jdb"
    assert number_of("0000001a.jdb") == 0x1A


@given(st.lists(NUMBERS, max_size=30), st.integers(min_value=1, max_value=5))
def test_covering_has_every_file_within_its_bound(numbers: list[int], ranges_max: int) -> None:
    ranges = covering(numbers, ranges_max=ranges_max)
    assert len(ranges) <= ranges_max
    assert numbers_in(ranges) >= set(numbers)
    assert merged(ranges) == ranges
    if ranges_max >= len(numbers):
        assert numbers_in(ranges) == set(numbers)


@given(RANGES)
def test_merged_ranges_cover_the_same(ranges: list[tuple[int, int | None]]) -> None:
    assert numbers_in(merged(ranges)) == numbers_in(ranges)


@given(RANGES, st.lists(NUMBERS, max_size=10), st.integers(min_value=6, max_value=20))
def test_ranges_without_files_lose_nothing_else(
    ranges: list[tuple[int, int | None]], numbers: list[int], ranges_max: int
) -> None:
    ranges = merged(ranges)
    left = without(ranges, numbers, ranges_max=ranges_max)
    assert len(left) <= ranges_max
    assert numbers_in(ranges) - set(numbers) <= numbers_in(left) <= numbers_in(ranges)
    if ranges_max == 20:
        assert numbers_in(left) == numbers_in(ranges) - set(numbers)
