"""CSNs: strict text, and an order that text and numbers share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.formats.csn import Csn, CsnInvalid
from tests.oracles.changelog_export import read_export

FIELDS = st.tuples(
    st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF)
)


def test_recorded_csn_is_split_into_its_fields() -> None:
    csn = Csn("6afffe53003200030000")
    assert (csn.timestamp, csn.sequence, csn.rid, csn.subsequence) == (0x6AFFFE53, 0x32, 3, 0)


@given(FIELDS)
def test_fields_survive_the_text(fields: tuple[int, int, int, int]) -> None:
    csn = Csn.of(*fields)
    assert Csn(str(csn)) == csn
    assert (csn.timestamp, csn.sequence, csn.rid, csn.subsequence) == fields


@given(FIELDS, FIELDS)
def test_order_of_the_text_is_that_of_the_numbers(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int]
) -> None:
    assert (Csn.of(*one) < Csn.of(*other)) == (one < other)
    assert (Csn.of(*one) == Csn.of(*other)) == (one == other)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "0 characters"),
        ("6afffe5300320003000", 19, "19 characters"),
        ("6afffe530032000300000", 20, "21 characters"),
        ("6afffe53003200030000\n", 20, "no hexadecimal digit"),
        ("6AFFFE53003200030000", 1, "lower-case"),
        ("6afffe5300320003000g", 19, "'g' at character 19"),
        (" 6afffe5300320003000", 0, "' ' at character 0"),
        ("6afffe53-0032-0003-0", 8, "'-' at character 8"),
        ("0x6afffe530032000300", 1, "'x' at character 1"),
        ("٦afffe53003200030000", 0, "no hexadecimal digit"),
        ("6" * 100_000, 20, "100000 characters"),
    ],
)
def test_text_that_is_no_csn_is_refused_with_its_place(text: str, position: int, words: str) -> None:
    with pytest.raises(CsnInvalid) as caught:
        Csn(text)
    assert caught.value.position == position
    assert words in caught.value.detail
    assert len(caught.value.detail) < 300


@given(st.text(alphabet="0123456789abcdefABCg -\n", min_size=0, max_size=24))
def test_any_text_is_a_csn_exactly_if_it_is_twenty_digits(text: str) -> None:
    is_csn = len(text) == 20 and set(text) <= set("0123456789abcdef")
    if is_csn:
        assert Csn(text) == text
    else:
        with pytest.raises(CsnInvalid):
            Csn(text)


def test_real_changelog_is_exported_in_the_order_of_csns() -> None:
    csns = read_export("s1-changelog-full.ldif.gz").csns
    assert len(csns) == 2019
    assert csns == sorted(csns)
    numbers = [(csn.timestamp, csn.sequence, csn.rid, csn.subsequence) for csn in csns]
    assert numbers == sorted(numbers)
