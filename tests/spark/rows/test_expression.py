"""The language that names rows: what it reads, and where it says what is wrong."""

from __future__ import annotations

from decimal import Decimal

import pytest

from spark.rows.expression import (
    TESTS_MAX,
    Among,
    Between,
    Both,
    Compare,
    ExpressionInvalid,
    IsNull,
    Not,
    parse,
)


def test_and_binds_closer_than_or_and_not_closest() -> None:
    found = parse("a = 1 or not b = 'x' and c is not null")
    negated = Not(Compare("b", "=", "x"))
    assert found == Both((Compare("a", "=", 1), Both((negated, IsNull("c", True)), True)), False)


def test_every_kind_of_value_and_name_is_read() -> None:
    assert parse("\"we\"\"ird\" != 'it''s'") == Compare('we"ird', "<>", "it's")
    assert parse("x IN (-1, 2.50, TRUE)") == Among("x", (-1, Decimal("2.50"), True), False)
    assert parse("x not between .5 and +3") == Between("x", Decimal("0.5"), 3, True)
    assert parse('"and" = 1') == Compare("and", "=", 1)
    assert parse("x = '--; drop table t'") == Compare("x", "=", "--; drop table t")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "at character 1: a column"),
        ("a", "at character 2: a comparison"),
        ("a =", "at character 4: a value"),
        ("a = b", "at character 5: a value"),
        ("a = 1 b", "at character 7: AND, OR or the end"),
        ("a = 1; b = 2", "at character 6"),
        ("(a = 1", "at character 7: )"),
        ("a in ()", "at character 7: a value"),
        ("a not = 1", "at character 7: IN or BETWEEN"),
        ("1 = 1", "at character 1: a column"),
        ("a = null", "at character 5: a value"),
        ("a = 1e5", "at character 5"),
        ("a = 'open", "at character 5"),
        ("a = 0x41", "at character 5"),
        ("a /* */ = 1", "at character 3"),
        ("a = 1\0", "NUL"),
        ("(" * 40 + "a = 1" + ")" * 40, "nested deeper"),
        ("not " * 40 + "a = 1", "nested deeper"),
        (" or ".join(["a = 1"] * (TESTS_MAX + 1)), "more than"),
        ("a = '" + "x" * 5_000 + "'", "longer than"),
        ("a = " + "9" * 70, "a number of more than"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ExpressionInvalid) as refused:
        parse(text)
    assert told in refused.value.detail
