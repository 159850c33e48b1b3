"""Keys of entries: no two rows share one, and each tells what it is made of."""

from __future__ import annotations

from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from spark.slony_feed.keys import SYNC_KEY, row_key, script_key, sequence_key, table_key

TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12)
AWKWARD = st.text(st.sampled_from("%/.!25Fa\u00e9 \\\n"), max_size=8)
NAMES = st.one_of(TEXT, AWKWARD).filter(bool)
VALUES = st.lists(st.one_of(TEXT, AWKWARD), min_size=1, max_size=3)


@given(schema=NAMES, table=NAMES, values=VALUES)
def test_a_key_is_read_back_as_what_it_was_made_of(schema: str, table: str, values: list[str]) -> None:
    key = row_key(schema, table, values)
    head, *rest = key.split("/")
    assert tuple(map(unquote, head.split("."))) == (schema, table)
    assert list(map(unquote, rest)) == values
    assert key.startswith(table_key(schema, table))


@given(schema=NAMES, table=NAMES, values=VALUES, other=st.tuples(NAMES, NAMES))
def test_no_row_has_the_key_of_another_kind_or_the_beginning_of_another_table(
    schema: str, table: str, values: list[str], other: tuple[str, str]
) -> None:
    key = row_key(schema, table, values)
    assert not key.startswith("!")
    assert all(each.startswith("!") for each in (SYNC_KEY, script_key(7), sequence_key(schema, table)))
    if other != (schema, table):
        assert not key.startswith(table_key(*other))


def test_the_encoding_is_the_documented_one() -> None:
    assert row_key("public", "movement", ["12", "3"]) == "public.movement/12/3"
    assert row_key("a.b", "!c%", ["x/y%", "", "1.5"]) == "a%2Eb.%21c%25/x%2Fy%25//1.5"
    assert sequence_key("public", "ticket") == "!sequence/public.ticket"
