"""What has to be known of a table before rows of it go: values only.

`Column.kind` is what a literal is compared as; `dynamic` are SQLite's columns, which hold anything.
"""

from dataclasses import dataclass
from typing import Literal

ColumnKind = Literal[
    "number", "boolean", "text", "label", "uuid", "timestamp", "timestamptz", "date", "dynamic", "other"
]
Severity = Literal["ERROR", "WARNING", "INFO"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `type` is the name of its type as a cast takes it."""

    name: str
    type: str
    kind: ColumnKind


@dataclass(frozen=True, slots=True)
class Index:
    """An index over columns; one with an expression, a condition or a part of a column is not unique here."""

    columns: tuple[str, ...]
    is_primary: bool
    is_unique_not_null: bool


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Rows of `child` that need rows of the table.

    Attributes:
        schema: of the child; None: that of the connection.
        on_delete: CASCADE, SET NULL, SET DEFAULT, RESTRICT or NO ACTION.
        collations: of PostgreSQL's columns that are referred to, quoted; "" where the child's is the same.
    """

    name: str
    schema: str | None
    child: str
    child_columns: tuple[str, ...]
    columns: tuple[str, ...]
    on_delete: str
    has_index: bool
    collations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableFinding:
    """Something about a table that forbids the purge (ERROR) or that its owner should know."""

    code: str
    severity: Severity
    table: str
    detail: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        key: the columns of the primary key, else of the shortest unique index without NULLs; empty: none.
        incoming: foreign keys of other tables, and of itself, that point here.
        rows_estimate: as the target's statistics say; None: unknown.
    """

    name: str
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...]
    incoming: tuple[ForeignKey, ...]
    triggers: tuple[str, ...]
    rows_estimate: int | None
    bytes: int | None
    findings: tuple[TableFinding, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that order its rows."""
        primary = [index.columns for index in self.indexes if index.is_primary and index.is_unique_not_null]
        unique = [index.columns for index in self.indexes if index.is_unique_not_null]
        return min(primary or unique, key=lambda columns: (len(columns), columns), default=())

    def column(self, name: str) -> Column | None:
        """A column by its exact name."""
        return next((column for column in self.columns if column.name == name), None)

    def is_led_by(self, name: str) -> bool:
        """Whether an index begins with a column."""
        return any(index.columns[:1] == (name,) for index in self.indexes)

    @property
    def refers_to_itself(self) -> bool:
        """Whether a row can need another row of the table."""
        return any(foreign.child == self.name and foreign.schema is None for foreign in self.incoming)
