"""Expressions and cut-offs as SQL with bound values, for one table of one dialect.

Every value is bound as what its column holds; a comparison that a column's type does not allow is refused
here, never converted by the server (MariaDB finds 'abc' = 0 true). What a column of SQLite holds is looked at
row by row: a value of another type is neither greater nor less, it is unknown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from spark.purge.cutoff import convert, local_reading
from spark.rows.expression import (
    Among,
    Between,
    Both,
    Compare,
    Expression,
    ExpressionInvalid,
    IsNull,
    Not,
    Value,
)
from spark.rows.sql import Binder
from spark.rows.table import Column, Table
from spark.targets.connection import Connection

LEAST_EPOCH_MS = 100_000_000_000
"""March 1973; a lower number is seconds."""
INT64_MAX = 2**63 - 1
_DATE = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*"
_OFFSET = "*[-+Zz]*"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = ("timestamp", "timestamptz", "date")
_WHOLE = ("smallint", "integer", "bigint", "tinyint", "mediumint", "int")


@dataclass(frozen=True, slots=True)
class Cutoff:
    """Rows whose time lies before an instant.

    Args:
        column: by its exact name.
        at: aware.
        unit: of a column of numbers: S or MS since 1970; None: a column of times (SQLite: MS or texts).
    """

    column: str
    at: datetime
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One table as a statement calls it."""

    conn: Connection
    table: Table
    name: str
    time_zone: str

    def column(self, name: str) -> Column:
        """A column.

        Raises: ExpressionInvalid: the table has none of that name.
        """
        found = self.table.column(name)
        if found is None:
            known = ", ".join(column.name for column in self.table.columns[:20])
            raise ExpressionInvalid(f"{self.table.name} has no column {name!r}; it has {known}")
        return found

    def quoted(self, column: Column) -> str:
        """The column in a statement."""
        return f"{self.name}.{self.conn.dialect.quote(column.name)}"


def where(row: Row, expression: Expression, binder: Binder) -> str:
    """An expression as SQL.

    Raises: ExpressionInvalid.
    """
    if isinstance(expression, Both):
        word = " and " if expression.is_and else " or "
        return word.join(f"({where(row, part, binder)})" for part in expression.parts)
    if isinstance(expression, Not):
        return f"not ({where(row, expression.part, binder)})"
    column = row.column(expression.column)
    name = row.quoted(column)
    if isinstance(expression, IsNull):
        return f"{name} is {'not ' if expression.negated else ''}null"
    values = _values(expression)
    if column.kind == "dynamic":
        return _guarded(name, values, _tested(name, expression, _dynamic, binder))

    def bound(value: Value) -> Any:
        return _bound(row, column, value, is_equality=_is_equality(expression))

    return _tested(name, expression, bound, binder)


def before(row: Row, cutoff: Cutoff, binder: Binder) -> str:
    """True for rows older than a cut-off; a time that is none, or stands for 'never', is older than nothing.

    Raises: ExpressionInvalid: the column holds no times.
    """
    column = row.column(cutoff.column)
    name = row.quoted(column)
    if cutoff.unit is not None:
        return _before_number(column, name, cutoff, binder)
    if column.kind == "dynamic":
        return _before_dynamic(row, column, cutoff, binder)
    if column.kind not in _TIMES:
        raise ExpressionInvalid(
            f"{column.name} is {column.type}: name a column of times, or time_unit S or MS for one of numbers"
        )
    # From the year 1 on: neither -infinity of PostgreSQL nor 0000-00-00 of MariaDB is a time.
    least: Any = datetime(1, 1, 2)
    bound: Any = local_reading(cutoff.at, time_zone=row.time_zone)
    if column.kind == "timestamptz":
        bound = cutoff.at.astimezone(UTC)
        least = least.replace(tzinfo=UTC)
        if row.conn.dialect.name == "mysql":
            bound, least = bound.replace(tzinfo=None), least.replace(tzinfo=None)
    if column.kind == "date":
        bound, least = bound.date(), least.date()
    is_day = f" and not ({_is_no_day(name)})" if _may_be_no_day(row, column) else ""
    return f"{name} >= {binder.add(least)} and {name} < {binder.add(bound)}{is_day}"


def is_unreadable(row: Row, cutoff: Cutoff, binder: Binder) -> str:
    """True for rows whose time is there and is none."""
    column = row.column(cutoff.column)
    name = row.quoted(column)
    if column.kind == "dynamic":
        if cutoff.unit is not None:
            return f"typeof({name}) not in ('integer', 'null')"
        return (
            f"not (typeof({name}) = 'null' or {_is_text_time(name, binder)}"
            f" or (typeof({name}) = 'integer' and {name} >= {LEAST_EPOCH_MS}))"
        )
    if column.kind not in _TIMES:
        return "1 = 0"
    least = f"{name} < {binder.add(date(1, 1, 2) if column.kind == 'date' else datetime(1, 1, 2))}"
    return f"{least} or {_is_no_day(name)}" if _may_be_no_day(row, column) else least


def _may_be_no_day(row: Row, column: Column) -> bool:
    """MariaDB, MySQL: such a column may hold 2026-00-00, whose month or day nobody knows."""
    return row.conn.dialect.name == "mysql" and column.kind in ("date", "timestamp")


def _is_no_day(name: str) -> str:
    return f"month({name}) = 0 or dayofmonth({name}) = 0"


def _before_number(column: Column, name: str, cutoff: Cutoff, binder: Binder) -> str:
    since = (cutoff.at - _EPOCH).total_seconds()
    bound = int(since // 1) if cutoff.unit == "S" else int(since * 1000 // 1)
    if column.kind == "dynamic":
        return f"typeof({name}) = 'integer' and {name} < {binder.add(bound)}"
    if column.kind != "number" or column.type not in _WHOLE:
        raise ExpressionInvalid(f"{column.name} is {column.type}: time_unit is for columns of whole numbers")
    return f"{name} < {binder.add(bound)}"


def _before_dynamic(row: Row, column: Column, cutoff: Cutoff, binder: Binder) -> str:
    name = row.quoted(column)
    text = binder.add(convert(cutoff.at, time_zone=row.time_zone, encoding="text"))
    is_over = f"{name} < {text}"
    if column.type.lower() == "date":  # a day without a time is over when the next one has begun
        is_over += f" and (length({name}) > 10 or {name} < substr({text}, 1, 10))"
    number = binder.add(convert(cutoff.at, time_zone=row.time_zone, encoding="epoch_ms"))
    return (
        f"({_is_text_time(name, binder)} and {is_over}) or"
        f" (typeof({name}) = 'integer' and {name} >= {LEAST_EPOCH_MS} and {name} < {number})"
    )


def _is_text_time(name: str, binder: Binder) -> str:
    # An offset is an instant of its own, and compares as text with no other. SQLite reads no 0000-00-00, no
    # 13th month and no '10:00 PM', and the year 0 is none.
    return (
        f"(typeof({name}) = 'text' and {name} glob {binder.add(_DATE)} and {name} > '0001-01-01'"
        f" and substr({name}, 11) not glob {binder.add(_OFFSET)} and julianday({name}) is not null)"
    )


def _values(expression: Compare | Among | Between) -> tuple[Value, ...]:
    if isinstance(expression, Compare):
        return (expression.value,)
    if isinstance(expression, Among):
        return expression.values
    return (expression.least, expression.greatest)


def _is_equality(expression: Compare | Among | Between) -> bool:
    return isinstance(expression, Among) or (
        isinstance(expression, Compare) and expression.operator in ("=", "<>")
    )


def _tested(
    name: str, expression: Compare | Among | Between, bound: Callable[[Value], Any], binder: Binder
) -> str:
    marks = [binder.add(bound(value)) for value in _values(expression)]
    if isinstance(expression, Compare):
        return f"{name} {expression.operator} {marks[0]}"
    negated = "not " if expression.negated else ""
    if isinstance(expression, Among):
        return f"{name} {negated}in ({', '.join(marks)})"
    return f"{name} {negated}between {marks[0]} and {marks[1]}"


def _guarded(name: str, values: tuple[Value, ...], test: str) -> str:
    """SQLite: the test for values of its own type, unknown for others."""
    is_text = {isinstance(value, str) for value in values}
    if len(is_text) > 1:
        raise ExpressionInvalid("texts and numbers in one comparison: a row is one or the other")
    kinds = "'text'" if is_text == {True} else "'integer', 'real'"
    return f"case when typeof({name}) in ({kinds}) then {test} end"


def _dynamic(value: Value) -> Any:
    if isinstance(value, bool):
        return int(value)
    # SQLite has no greater number; it compares a float with a whole number exactly.
    is_too_great = isinstance(value, int) and abs(value) > INT64_MAX
    return float(value) if is_too_great or isinstance(value, Decimal) else value


def _bound(row: Row, column: Column, value: Value, *, is_equality: bool) -> Any:
    """A value as the column holds it."""
    is_mysql = row.conn.dialect.name == "mysql"
    if column.kind == "number":
        if isinstance(value, bool) and is_mysql:
            return int(value)
        return _need(column, value, not isinstance(value, str | bool), "a number")
    if column.kind == "boolean":
        return _need(column, value, isinstance(value, bool), "TRUE or FALSE")
    text = _need(column, value, isinstance(value, str), "a text")
    if column.kind == "text":
        return text
    if column.kind == "label" and is_equality:
        return text
    if column.kind == "uuid" and is_equality:
        return _read(column, text, lambda: str(UUID(text)), "a UUID")
    if column.kind == "date":
        return _read(column, text, lambda: date.fromisoformat(text), "a date like '2026-01-31'")
    if column.kind in _TIMES:
        return _moment(row, column, text)
    allowed = "IS NULL only" if column.kind == "other" else "= and IN only"
    raise ExpressionInvalid(f"{column.name} is {column.type}: it can be compared by {allowed}")


def _need(column: Column, value: Value, holds: bool, wanted: str) -> Any:
    if not holds:
        raise ExpressionInvalid(f"{column.name} is {column.type}: compare it with {wanted}, not {value!r}")
    return value


def _read(column: Column, text: str, read: Callable[[], Any], wanted: str) -> Any:
    try:
        return read()
    except ValueError as error:
        raise ExpressionInvalid(f"{column.name} is {column.type}: {text[:40]!r} is not {wanted}") from error


def _moment(row: Row, column: Column, text: str) -> datetime:
    """A time of the text, with the zone where it says one, else as the store's clock shows it."""
    read: datetime = _read(
        column, text, lambda: datetime.fromisoformat(text), "a time like '2026-01-31T12:00:00Z'"
    )
    zone = ZoneInfo(row.time_zone)
    if column.kind == "timestamp":
        if read.tzinfo is None:
            return read
        local = _moved(column, text, read, zone)
        _need_one(column, text, local, f"{row.time_zone} shows that hour twice: name another one")
        return local.replace(tzinfo=None, fold=0)
    if read.tzinfo is None:
        read = read.replace(tzinfo=zone)
        _need_one(column, text, read, f"{row.time_zone} has no or two such times: add an offset, like +01:00")
    instant = _moved(column, text, read, UTC)
    return instant.replace(tzinfo=None) if row.conn.dialect.name == "mysql" else instant


def _moved(column: Column, text: str, at: datetime, zone: tzinfo) -> datetime:
    try:
        return at.astimezone(zone)
    except OverflowError as error:
        raise ExpressionInvalid(f"{column.name}: {text[:40]!r} leaves the years 1 to 9999") from error


def _need_one(column: Column, text: str, local: datetime, fault: str) -> None:
    """Refuse a local time at which the clocks were set back or forward: rows on either side look alike.

    Raises: ExpressionInvalid.
    """
    if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        raise ExpressionInvalid(f"{column.name}: {text[:40]!r} is no one time, {fault}")
