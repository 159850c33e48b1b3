"""Pieces of SQL with the values that they bind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class Sql:
    """A text and its parameters; picklable."""

    text: str
    bound: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Binder:
    """Gives every value a name of its own in one statement."""

    prefix: str = "p"
    bound: dict[str, Any] = field(default_factory=dict)

    def add(self, value: Any) -> str:
        """The placeholder of a value."""
        name = f"{self.prefix}{len(self.bound)}"
        self.bound[name] = value
        return f":{name}"


def row_name(conn: Connection, table: str) -> str:
    """How a statement calls the rows of its table: a DELETE of one table has no alias on MariaDB."""
    return conn.dialect.quote(table) if conn.dialect.name == "mysql" else "t"


def source(conn: Connection, table: str) -> str:
    """The table as it stands behind FROM."""
    name = conn.dialect.qualify(conn.target.schema, table)
    return name if conn.dialect.name == "mysql" else f"{name} as t"
