"""Filters and ranges of extinctions as SQL over a column of bytes, for PostgreSQL (bytea) and SQLite (blob).

The condition is true of exactly the keys that `Extinction.covers` takes; it is never null and never fails,
where the column is not null. Numbers stand in the text, since they were read as numbers; bytes are
parameters.
SQLite has no function for the number of a byte: its place in a blob of all bytes is that number.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

from spark.formats.extinction import Extinction
from spark.formats.extinction_filter import (
    All,
    AnyOf,
    FieldCompare,
    Filter,
    Modulo,
    Node,
    Not,
    Op,
    Prefix,
    Range,
)

BYTES_DIALECTS: Final = ("postgresql", "sqlite")
_ALL_BYTES: Final = bytes(range(256))
_OPERATORS: Final = {Op.EQ: "=", Op.NE: "<>", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}


@dataclass(frozen=True, slots=True)
class SqlCondition:
    """A condition and the bytes that it names, as `:name`."""

    text: str
    params: dict[str, Any]


def range_condition(
    extinction: Extinction, *, column: str, dialect: Literal["postgresql", "sqlite"], name: str = "ext"
) -> SqlCondition:
    """Whether a key lies in the range and passes the filter; the database is the caller's to compare.

    Args:
        column: the key's, as it stands in the statement.
        name: what the names of the parameters begin with.
    """
    writer = _Writer(column, dialect, name)
    parts = writer.bounds(extinction.start_key, extinction.end_key)
    if extinction.filter is not None:
        parts.append(writer.node(extinction.filter.root))
    return SqlCondition(_joined(parts, "and") if parts else "(1 = 1)", writer.params)


def filter_condition(
    found: Filter, *, column: str, dialect: Literal["postgresql", "sqlite"], name: str = "ext"
) -> SqlCondition:
    """Whether a key passes the filter."""
    writer = _Writer(column, dialect, name)
    return SqlCondition(writer.node(found.root), writer.params)


def prefix_end(prefix: bytes) -> bytes | None:
    """The least bytes that are greater than all that begin with `prefix`; None: there are none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _joined(parts: list[str], word: str) -> str:
    return f"({f' {word} '.join(parts)})"


class _Writer:
    """Writes one condition and collects its parameters."""

    def __init__(self, column: str, dialect: str, name: str) -> None:
        assert dialect in BYTES_DIALECTS, "a replica lies on one of these"
        self.params: dict[str, Any] = {}
        self._column = column
        self._is_postgresql = dialect == "postgresql"
        self._name = name
        self._length = f"octet_length({column})" if self._is_postgresql else f"length({column})"

    def bounds(self, start: bytes | None, end: bytes | None) -> list[str]:
        parts = []
        if start is not None:
            parts.append(f"{self._column} >= {self._param(start)}")
        if end is not None:
            parts.append(f"{self._column} < {self._param(end)}")
        return parts

    def node(self, node: Node) -> str:
        match node:
            case Prefix(value):
                # As a range, which an index can serve.
                return _joined(self.bounds(value, prefix_end(value)), "and")
            case Range(start, end):
                return _joined(self.bounds(start, end), "and")
            case Modulo(offset, width, divisor, remainder):
                return self._guarded(offset + width, f"{self._rest(offset, width, divisor)} = {remainder}")
            case FieldCompare(offset, width, op, value):
                part = f"substr({self._column}, {offset + 1}, {width})"
                return self._guarded(offset + width, f"{part} {_OPERATORS[op]} {self._param(value)}")
            case All(parts):
                return _joined([self.node(part) for part in parts], "and")
            case AnyOf(parts):
                return _joined([self.node(part) for part in parts], "or")
            case Not(part):
                return f"(not {self.node(part)})"

    def _guarded(self, length: int, condition: str) -> str:
        """False of a shorter key; by CASE, since AND promises no order, and a missing byte is an error."""
        return f"(case when {self._length} >= {length} then {condition} else (1 = 0) end)"

    def _rest(self, offset: int, width: int, divisor: int) -> str:
        """The remainder, a byte at a time: nothing on the way exceeds 256 times the divisor."""
        found = "0"
        for place in range(offset, offset + width):
            if self._is_postgresql:
                byte = f"get_byte({self._column}, {place})"
                found = f"mod(cast({found} as bigint) * 256 + {byte}, {divisor})"
            else:
                byte = f"(instr({self._param(_ALL_BYTES)}, substr({self._column}, {place + 1}, 1)) - 1)"
                found = f"((({found}) * 256 + {byte}) % {divisor})"
        return found

    def _param(self, value: bytes) -> str:
        for name, there in self.params.items():
            if there == value:
                return f":{name}"
        name = f"{self._name}{len(self.params)}"
        self.params[name] = value
        return f":{name}"
