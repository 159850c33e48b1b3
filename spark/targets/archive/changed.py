"""Columns whose type was changed since rows were archived: where the server would change values.

It refuses what does not fit at all. What it rounds, cuts or reads anew it says nothing of: a number of fewer
digits behind the point, seconds without fractions, a text that becomes a number.
"""

import re
from typing import Final

from spark.targets.archive.columns import Column, TableShape

_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "integer", "bigint"})
_DECIMALS: Final = frozenset({"numeric", "decimal"})
_FLOATS: Final = {"real": 1, "float": 1, "double": 2}
_TIMES: Final = frozenset({"date", "time", "datetime", "timestamp", "interval", "year"})
_TYPE = re.compile(r"(?P<word>[a-z]+)[a-z ]*(\((?P<numbers>[0-9, -]*)\))?.*")
_NUMBERS = re.compile(r"\(.*?\)")
_MICROSECONDS: Final = 6
UNBOUNDED: Final = 10_000


def changed_by(shape: TableShape, live: TableShape) -> str | None:
    """The first column that might change values of an archive, in words; None: there is none."""
    now = {column.name: column for column in live.columns}
    for was in shape.columns:
        found = now.get(was.name)
        if found is not None and _may_change(was, found, is_mysql=shape.dialect == "mysql"):
            return f"{was.name} was {was.source_type} and is {found.source_type} now"
    return None


def _may_change(was: Column, now: Column, *, is_mysql: bool) -> bool:
    if was.source_type == now.source_type:
        return False
    old, new = _TYPE.match(was.source_type), _TYPE.match(now.source_type)
    if old is None or new is None:
        return False
    before, after = old["word"], new["word"]
    if after in _INTEGERS:
        return before not in _INTEGERS
    if after in _DECIMALS:
        return before not in _INTEGERS and not (
            before in _DECIMALS and _scale(new["numbers"], is_mysql) >= _scale(old["numbers"], is_mysql)
        )
    if after in _FLOATS:
        return new["numbers"] is not None or _FLOATS.get(before, UNBOUNDED) > _FLOATS[after]
    if after in _TIMES:
        is_same = _NUMBERS.sub("", was.source_type) == _NUMBERS.sub("", now.source_type)
        return not is_same or _seconds(new["numbers"], is_mysql) < _seconds(old["numbers"], is_mysql)
    return after == "jsonb"


def _scale(numbers: str | None, is_mysql: bool) -> int:
    """Digits behind the point."""
    if numbers is None:
        return 0 if is_mysql else UNBOUNDED
    return int(numbers.partition(",")[2] or 0)


def _seconds(numbers: str | None, is_mysql: bool) -> int:
    """Digits of fractions of seconds."""
    return (0 if is_mysql else _MICROSECONDS) if not numbers else int(numbers)
