"""Filters and extinctions as Spark columns over binary columns.

True of exactly the keys that `Extinction.covers` takes; null where the key is null.
"""

from decimal import Decimal
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as fn

from spark.formats.extinction import Extinction
from spark.formats.extinction_filter import (
    All,
    AnyOf,
    FieldCompare,
    Modulo,
    Node,
    Not,
    Op,
    Prefix,
    Range,
)
from spark.formats.extinction_sql import prefix_end

_UNSIGNED = "decimal(20,0)"  # 8 bytes without a sign


def covers_column(extinction: Extinction, database: Column, key: Column) -> Column:
    """Whether an extinction covers a key of a database.

    Args:
        database, key: binary.
    Returns: boolean.
    """
    here = database.isin(*(fn.lit(name) for name in sorted(extinction.databases)))
    return reduce(Column.__and__, [here, *range_columns(extinction, key)])


def range_columns(extinction: Extinction, key: Column) -> list[Column]:
    """What a key of one of its databases must fulfil; empty: nothing."""
    conditions = _bounds(key, extinction.start_key, extinction.end_key)
    if extinction.filter is not None:
        conditions.append(_node(extinction.filter.root, key))
    return conditions


def _bounds(key: Column, start: bytes | None, end: bytes | None) -> list[Column]:
    conditions = [] if start is None else [key >= fn.lit(start)]
    return conditions if end is None else [*conditions, key < fn.lit(end)]


def _node(node: Node, key: Column) -> Column:
    match node:
        case Prefix(value):
            return reduce(Column.__and__, _bounds(key, value, prefix_end(value)))
        case Range(start, end):
            return reduce(Column.__and__, _bounds(key, start, end))
        case Modulo(offset, width, divisor, remainder):
            # conv reads up to 64 bits without a sign, and gives them as digits.
            number = fn.conv(fn.hex(fn.substring(key, offset + 1, width)), 16, 10).cast(_UNSIGNED)
            rest = number % fn.lit(Decimal(divisor)).cast(_UNSIGNED)
            return _guarded(key, offset + width, rest == fn.lit(Decimal(remainder)).cast(_UNSIGNED))
        case FieldCompare(offset, width, op, value):
            return _guarded(key, offset + width, _compared(fn.substring(key, offset + 1, width), op, value))
        case All(parts):
            return reduce(Column.__and__, [_node(part, key) for part in parts])
        case AnyOf(parts):
            return reduce(Column.__or__, [_node(part, key) for part in parts])
        case Not(part):
            return ~_node(part, key)


def _guarded(key: Column, length: int, condition: Column) -> Column:
    return fn.when(fn.octet_length(key) >= length, condition).otherwise(fn.lit(False))


def _compared(part: Column, op: Op, value: bytes) -> Column:
    other = fn.lit(value)
    match op:
        case Op.EQ:
            return part == other
        case Op.NE:
            return part != other
        case Op.LT:
            return part < other
        case Op.LE:
            return part <= other
        case Op.GT:
            return part > other
        case Op.GE:
            return part >= other
