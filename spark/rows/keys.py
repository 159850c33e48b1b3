"""Keys of rows of any type: read, kept as texts, and put back into a statement.

A key is a tuple of texts, each with a letter for its type (`i:5`, `s:abc`); JSON and pickle keep it as it is.
PostgreSQL writes every key as text and casts it back, so that all types are alike there.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from spark.rows.sql import Binder, Sql
from spark.rows.table import Table
from spark.targets.connection import Connection

KeyTexts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The key of one table, as statements of one dialect name it; picklable.

    Args:
        names: qualified and quoted.
        types: of PostgreSQL's casts; elsewhere unused.
    """

    dialect: str
    names: tuple[str, ...]
    types: tuple[str, ...]

    @classmethod
    def of(cls, conn: Connection, table: Table, row: str) -> "KeyColumns":
        """Args: row: what the statement calls the table's rows."""
        columns = [column for name in table.key if (column := table.column(name)) is not None]
        names = tuple(f"{row}.{conn.dialect.quote(column.name)}" for column in columns)
        return cls(conn.dialect.name, names, tuple(column.type for column in columns))

    @property
    def selected(self) -> str:
        """The list of a SELECT."""
        if self.dialect == "postgresql":
            return ", ".join(f"cast({name} as text)" for name in self.names)
        return ", ".join(self.names)

    def order(self, direction: str = "") -> str:
        """The list of an ORDER BY."""
        return ", ".join(f"{name}{direction}" for name in self.names)

    def after(self, key: KeyTexts, prefix: str) -> Sql:
        """True for rows behind a key."""
        return self._beside(key, prefix, ">", "")

    def upto(self, key: KeyTexts, prefix: str) -> Sql:
        """True for rows up to a key, itself included."""
        return self._beside(key, prefix, "<", "=")

    def among(self, keys: Sequence[KeyTexts]) -> Sql:
        """True for rows with one of some keys."""
        assert keys, "a unit of a plan has a row"
        if self.dialect == "mysql":
            values = [tuple(map(value_of, key)) for key in keys]
            named = self.names[0] if len(self.names) == 1 else f"({', '.join(self.names)})"
            return Sql(
                f"{named} in :only", {"only": [key[0] for key in values] if len(self.names) == 1 else values}
            )
        named = f"({', '.join(self.names)})"
        if self.dialect == "sqlite":
            binder = Binder("only_")
            rows = ", ".join(f"({', '.join(binder.add(value_of(text)) for text in key)})" for key in keys)
            return Sql(f"{named} in (values {rows})", binder.bound)
        columns = {f"only_{place}": [key[place][2:] for key in keys] for place in range(len(self.names))}
        listed = ", ".join(f"cast(:{name} as text[])" for name in columns)
        cast = ", ".join(f"cast(o.k{place} as {kind})" for place, kind in enumerate(self.types))
        heads = ", ".join(f"k{place}" for place in range(len(self.names)))
        return Sql(f"{named} in (select {cast} from unnest({listed}) as o ({heads}))", columns)

    def _beside(self, key: KeyTexts, prefix: str, sign: str, last: str) -> Sql:
        assert len(key) == len(self.names), "a key has a value for each column"
        bound = {f"{prefix}{place}": value_of(text) for place, text in enumerate(key)}
        marks = [self._mark(prefix, place) for place in range(len(key))]
        if self.dialect != "mysql" or len(key) == 1:
            return Sql(f"({', '.join(self.names)}) {sign}{last} ({', '.join(marks)})", bound)
        # MariaDB finds no range of an index in a comparison of rows.
        steps = []
        for place, name in enumerate(self.names):
            equal = [f"{self.names[before]} = {marks[before]}" for before in range(place)]
            end = last if place == len(self.names) - 1 else ""
            steps.append(" and ".join([*equal, f"{name} {sign}{end} {marks[place]}"]))
        return Sql(f"{self.names[0]} {sign}= {marks[0]} and (({') or ('.join(steps)}))", bound)

    def _mark(self, prefix: str, place: int) -> str:
        mark = f":{prefix}{place}"
        return f"cast({mark} as {self.types[place]})" if self.dialect == "postgresql" else mark


def texts_of(row: Sequence[Any]) -> KeyTexts:
    """A key as it was read, as texts.

    Raises: TypeError: a value of a type that no key has here.
    """
    return tuple(map(_text, row))


def value_of(text: str) -> Any:
    """One value of a key, as the driver takes it."""
    kind, value = text[0], text[2:]
    if kind == "i":
        return int(value)
    if kind == "f":
        return float(value)
    if kind == "n":
        return Decimal(value)
    if kind == "t":
        return datetime.fromisoformat(value)
    if kind == "d":
        return date.fromisoformat(value)
    return b64decode(value) if kind == "b" else value


def shown(key: KeyTexts) -> str:
    """A key for people."""
    return ", ".join(text[2:] for text in key)


def _text(value: Any) -> str:
    if isinstance(value, int):
        return f"i:{value}"
    if isinstance(value, str):
        return f"s:{value}"
    if isinstance(value, float):
        return f"f:{value!r}"
    if isinstance(value, Decimal):
        return f"n:{value}"
    if isinstance(value, datetime):
        return f"t:{value.isoformat()}"
    if isinstance(value, date):
        return f"d:{value.isoformat()}"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"b:{b64encode(bytes(value)).decode()}"
    raise TypeError(f"a key of type {type(value).__name__}")
