"""Records of rows of the log, of every kind and size, against the words of Slony-I's trigger."""

from __future__ import annotations

from typing import Any

import pytest

from spark.events.feed.making import change_of
from spark.events.feed.records import Change

SETS: dict[int, int | None] = {1: 7, 2: None}
SEQNO = 5_000_000_001


def row(cmdtype: str, args: list[Any], *, table: int | None = 1, updated: int | None = 0) -> tuple[Any, ...]:
    return (11, 22, table, "public", "account", cmdtype, updated, args)


def flat(pairs: dict[str, str | None]) -> list[str | None]:
    return [each for pair in pairs.items() for each in pair]


def columns(count: int, prefix: str) -> dict[str, str | None]:
    return {f"{prefix}{at}": None if at % 3 == 2 else f"é{at}" for at in range(count)}


@pytest.mark.parametrize("count", range(9))
def test_names_and_values_of_any_number(count: int) -> None:
    make, values = change_of(SEQNO, SETS), columns(count, "v")
    inserted, deleted = make(row("I", flat(values))), make(row("D", flat(values)))
    assert inserted == Change(SEQNO, "INSERT", 11, 22, 7, 1, "public", "account", values=values)
    assert deleted == Change(SEQNO, "DELETE", 11, 22, 7, 1, "public", "account", key=values)
    assert type(inserted) is type(deleted) is Change
    assert list(inserted.values or {}) == list(values), "in the order of the row"


@pytest.mark.parametrize("updated", range(5))
@pytest.mark.parametrize("count", range(1, 5))
def test_an_update_is_divided_where_the_row_says(updated: int, count: int) -> None:
    values, key = columns(updated, "same"), columns(count, "same")
    found = change_of(SEQNO, SETS)(row("U", flat(values) + flat(key), updated=updated))
    assert found == Change(SEQNO, "UPDATE", 11, 22, 7, 1, "public", "account", key=key, values=values)


def test_of_a_name_that_comes_twice_the_later_value_stays() -> None:
    found = change_of(SEQNO, SETS)(row("I", ["a", "1", "b", "2", "a", "3"]))
    assert found.values == {"a": "3", "b": "2"}


@pytest.mark.parametrize("count", [1, 3, 5, 7, 9])
@pytest.mark.parametrize("cmdtype", "ID")
def test_a_name_without_its_value_is_an_error(cmdtype: str, count: int) -> None:
    with pytest.raises(ValueError, match="shorter"):
        change_of(SEQNO, SETS)(row(cmdtype, ["a"] * count))


@pytest.mark.parametrize(
    ("cmdtype", "args", "kind", "detail"),
    [
        ("T", [], "TRUNCATE", None),
        ("S", ["drop"], "DDL", {"statement": "drop", "only_on": None}),
        ("S", ["drop", ""], "DDL", {"statement": "drop", "only_on": None}),
        ("S", ["drop", "2,3"], "DDL", {"statement": "drop", "only_on": "2,3"}),
        ("s", ["x"], "DDL_END", None),
        ("Z", ["x", None], "UNKNOWN", {"cmdtype": "Z", "arguments": ["x", None]}),
    ],
)
def test_kinds_without_a_row(cmdtype: str, args: list[Any], kind: str, detail: dict[str, Any] | None) -> None:
    found = change_of(SEQNO, SETS)(row(cmdtype, args, table=None, updated=None))
    assert (found.kind, found.detail) == (kind, detail)
    assert found.key is found.values is found.set_id is found.table_id is None


@pytest.mark.parametrize(("table", "set_id"), [(1, 7), (2, None), (3, None), (None, None)])
def test_the_set_is_that_of_the_table_now(table: int | None, set_id: int | None) -> None:
    assert change_of(SEQNO, SETS)(row("T", [], table=table)).set_id == set_id
