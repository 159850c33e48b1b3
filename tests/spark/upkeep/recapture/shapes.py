"""Tables of users, as awkward as they are in life: their columns, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any, Literal

from tests.oracles.symmetricds_database import Row
from tests.oracles.symmetricds_schema import Dialect, quoted
from tests.oracles.symmetricds_text import exact, general_ci
from tests.spark.upkeep.recapture.hands import Hand, literal

Kind = Literal["int", "text", "numeric", "uuid", "date", "double", "moment", "choice"]

TYPES: dict[Dialect, dict[Kind, str]] = {
    "sqlite": {
        "int": "INTEGER",
        "text": "VARCHAR(60)",
        "numeric": "NUMERIC(10,2)",
        "date": "DATE",
        "double": "REAL",
        "moment": "TIMESTAMP",
    },
    "postgresql": {
        "int": "bigint",
        "text": "varchar(60)",
        "numeric": "numeric(10,2)",
        "uuid": "uuid",
        "date": "date",
        "double": "double precision",
        "moment": "timestamp",
    },
    "mariadb": {
        "int": "integer",
        "text": "varchar(60)",
        "numeric": "decimal(10,2)",
        "date": "date",
        "double": "double",
        "moment": "datetime",
        "choice": "enum('a', 'b', 'c')",
    },
}
"""The types of each kind; a dialect may lack one."""

READABLE: dict[Dialect, frozenset[Kind]] = {
    "sqlite": frozenset({"int", "text", "numeric"}),
    "postgresql": frozenset({"int", "text", "numeric", "uuid", "date"}),
    "mariadb": frozenset({"int", "text", "numeric", "uuid", "date"}),
}
"""Kinds of which keys are read."""

KEY_TEXTS = (
    *("", "a", "A", "it's", 'say "x"', "back\\slash", "com,ma", "line\nbreak", "two\r\nlines", "Grüße"),
    *("漢字", "%s", "100%", ":k", "?", "{t}", "NULL", "\\", '","', "'; --", "tab\t", '\\\\"', "0", "007"),
)
VALUE_TEXTS = (*KEY_TEXTS, None, None, "\U0001f600", 'a\\"b', "ends\\", " spaced ", "\n", '"')
UUIDS = tuple(f"0000000{n}-aaaa-4bbb-8ccc-00000000000{n}" for n in range(6))


@dataclass(frozen=True)
class Column:
    """A column; None is never in a key. `declared` stands for the type of its kind."""

    name: str
    kind: Kind
    declared: str | None = None


@dataclass(frozen=True)
class Shape:
    """A table of users; `key` names its columns in the order of the primary key."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    schema: str | None = None

    def of(self, name: str) -> Column:
        """The column of a name."""
        return next(column for column in self.columns if column.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all columns."""
        return tuple(column.name for column in self.columns)

    def place(self, dialect: Dialect) -> str:
        """Its name in a statement."""
        own = quoted(self.name, dialect)
        return f"{quoted(self.schema, dialect)}.{own}" if self.schema else own

    def can_be_read(self, dialect: Dialect) -> bool:
        """Whether keys are of types that are read."""
        return all(self.of(name).kind in READABLE[dialect] for name in self.key)

    def create(self, dialect: Dialect) -> str:
        """The statement that creates it."""
        columns = [
            f"{quoted(column.name, dialect)} {column.declared or TYPES[dialect][column.kind]}"
            f"{' not null' if column.name in self.key else ''}"
            for column in self.columns
        ]
        key = ", ".join(quoted(name, dialect) for name in self.key)
        return f"create table {self.place(dialect)} ({', '.join(columns)}, primary key ({key}))"


def _shape(name: str, columns: Mapping[str, Kind], *key: str) -> Shape:
    return Shape(name, tuple(Column(*item) for item in columns.items()), key)


ITEM = _shape("item", {"id": "int", "name": "text", "price": "numeric"}, "id")
LINES = _shape(
    "Order Lines", {"Remark": "text", "Code": "text", "n": "int", "select": "text", "No": "int"}, "Code", "No"
)
RESERVED = _shape("order", {"rate %": "text", "group": "int", "a:b": "text", "?": "numeric"}, "group")
WORDS = _shape("Words%s", {"sense": "text", "Wort :w": "text"}, "Wort :w")
PRICES = _shape("prices", {"price": "numeric", "note": "text"}, "price")
ODD = _shape("odd", {"at": "moment", "note": "text"}, "at")
MIXED = _shape("mixed", {"id": "int", "note": "text", "size": "double"}, "id", "size")
VISITS = _shape("visits", {"note": "text", "who": "uuid", "day": "date"}, "who", "day")
DAYS = _shape("Days", {"note": "text", "day": "date", "name": "text"}, "name", "day")
CHOICES = _shape("choices", {"c": "choice", "note": "text"}, "c")
FREE = _shape("free", {"day": "date", "id": "int", "x": "double", "note": "text"}, "id")

_EACH = (ITEM, LINES, RESERVED, WORDS, PRICES, ODD, MIXED, FREE, DAYS)
SHAPES: dict[Dialect, tuple[Shape, ...]] = {
    "sqlite": _EACH,
    "postgresql": (*_EACH, VISITS),
    "mariadb": (*_EACH, CHOICES),
}


def random_value(rng: Random, kind: Kind, *, of_key: bool) -> Any:
    """A value of a kind; keys are of few values, so that they come again."""
    if not of_key and rng.random() < 0.15:
        return None
    if kind == "int":
        return rng.choice([-1, 0, 1, 2, 3, 7]) if of_key else rng.randrange(-(2**31), 2**31)
    if kind == "text":
        return rng.choice(KEY_TEXTS if of_key else VALUE_TEXTS)
    if kind == "numeric":
        return Decimal(rng.choice(["0", "1.5", "-2.25", "10", "99999.99"]))
    if kind == "date":
        return date(2026, 2, rng.randrange(1, 5))
    return rng.choice(
        {
            "uuid": UUIDS,
            "double": (0.5, 1.5, -2.25),
            "moment": ("2026-01-02 03:04:05", "2026-01-02 00:00:00"),
            "choice": ("a", "b", "c"),
        }[kind]
    )


def can_be_read(kind: Kind, text: str | None, dialect: Dialect) -> bool:
    """Whether a captured text is the value itself: SQLite keeps fractions as doubles."""
    return dialect != "sqlite" or kind != "numeric" or str(text).lstrip("-").isdigit()


def canonical(kind: Kind, value: Any, dialect: Dialect) -> Any:
    """A value of a key, read from the table or from a captured text, so that the same are equal."""
    if kind == "int":
        return int(value)
    if kind == "numeric":
        return Decimal(str(value)).normalize() + 0
    if kind == "date":
        return str(value)[:10]
    if kind == "text":
        return (general_ci if dialect == "mariadb" else exact)(value)
    return str(value)


def key_of(shape: Shape, row: Row, dialect: Dialect) -> tuple[Any, ...]:
    """The key of a row."""
    return tuple(canonical(shape.of(name).kind, row[name], dialect) for name in shape.key)


def is_written(column: Column, value: Any, text: str | None) -> bool:
    """Whether a captured text is this value of a column."""
    if value is None or text is None:
        return value is None and text is None
    if column.kind in ("date", "moment"):
        return text[:10] == str(value)[:10]
    if column.kind in ("numeric", "double"):
        return Decimal(text) == Decimal(str(value))
    return text == str(value)


def where(shape: Shape, key: tuple[Any, ...], dialect: Dialect) -> str:
    """The condition of a key of values."""
    return " and ".join(
        f"{quoted(name, dialect)} = {literal(value, dialect)}"
        for name, value in zip(shape.key, key, strict=True)
    )


def rows_of(hand: Hand, shape: Shape) -> dict[tuple[Any, ...], Row]:
    """Every row of a table by its key."""
    rows = hand.named(f"select * from {shape.place(hand.dialect)}")
    return {key_of(shape, row, hand.dialect): row for row in rows}
