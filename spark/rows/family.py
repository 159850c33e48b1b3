"""A table and the tables whose rows go with its rows: which rows are chosen, kept, and removed.

The rule:
- A row of the table is CHOSEN when it is older than the cut-off and the expression is true for it. A row of a
  named child is chosen when it refers to a row that is chosen and FREE.
- A row is HELD by each row that refers to it by a foreign key and does not go with it: every row of a table
  that was not named, and of a named child each that is itself held. A row that nothing holds is free.
- Removed are the chosen rows to which no row refers at the moment of the delete: the deepest children first.
  So nothing that is needed goes, whatever is written meanwhile.
- Where a table refers to itself, the steps are repeated until nothing more goes, at most PASSES_MAX times. A
  row that another row of its table needs becomes free when that one has gone, and its children go then.
- PLANNED is what may go in any of the passes: so a row of the table counts, with its children, unless a row
  of the same table that was not chosen refers to it. No pass removes a row that was not planned, as long as
  nobody writes; where no table refers to itself, every planned row goes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from spark.rows.catalog import findings_of, read_table
from spark.rows.condition import Cutoff, Row, before, where
from spark.rows.expression import Expression
from spark.rows.keys import KeyColumns
from spark.rows.sql import Binder, Sql, row_name, source
from spark.rows.table import ForeignKey, Table, TableFinding
from spark.targets.connection import Connection
from spark.targets.errors import TargetSchemaUnsupported

CHILDREN_MAX = 20
PASSES_MAX = 20
NESTED_MAX = 60
"""Subqueries in one condition."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows of which table.

    Args:
        children: tables of the same schema whose rows go with the rows to which they refer.
    """

    table: str
    cutoff: Cutoff | None
    where: Expression | None
    children: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.cutoff is not None or self.where is not None, "never all rows of a table"


@dataclass(frozen=True, slots=True)
class TableStep:
    """One table as units need it; picklable.

    Attributes:
        removable: chosen, and no row refers to it.
        planned: chosen and free: what would go with all its children, in whichever pass.
        must_lock: rows are locked before they are looked at: others could make new ones that refer to them.
    """

    table: str
    source: str
    row: str
    key: KeyColumns
    chosen: Sql
    planned: Sql
    removable: Sql
    held: tuple[tuple[str, Sql], ...]
    must_lock: bool


@dataclass(frozen=True, slots=True)
class Family:
    """All tables of a selection, as they are now; the table itself comes first."""

    conn: Connection
    selection: Selection
    time_zone: str
    tables: dict[str, Table] = field(default_factory=dict)

    @classmethod
    def read(cls, conn: Connection, selection: Selection, *, time_zone: str) -> "Family":
        """Read the catalog.

        Raises: TargetTablesMissing; TargetSchemaUnsupported: a child that does not refer to the others.
        """
        found = cls(conn, selection, time_zone)
        for name in (selection.table, *selection.children):
            found.tables[name] = read_table(conn, name)
        for child in selection.children:
            if not found.parents(child):
                raise TargetSchemaUnsupported(
                    f"{child} has no foreign key to {selection.table} or to another of `children`"
                )
        found.order()
        return found

    def parents(self, child: str) -> list[tuple[str, ForeignKey]]:
        """The tables of the family to which another of it refers."""
        return [
            (name, foreign)
            for name, table in self.tables.items()
            for foreign in table.incoming
            if foreign.schema is None and foreign.child == child and name != child
        ]

    def order(self) -> list[str]:
        """Children before those to which they refer.

        Raises: TargetSchemaUnsupported: two refer to each other, or a child has none above it.
        """
        left, found = list(self.tables), []
        while left:
            ready = [name for name in left if not any(parent in left for parent, _ in self.parents(name))]
            if not ready:
                raise TargetSchemaUnsupported(
                    f"{', '.join(left)} refer to each other: name only some of them"
                )
            found += ready
            left = [name for name in left if name not in ready]
        return found[::-1]

    @property
    def repeats(self) -> bool:
        """Whether one pass may leave rows that only rows gone by now have held."""
        return any(table.refers_to_itself for table in self.tables.values())

    def findings(self) -> tuple[TableFinding, ...]:
        """What forbids the purge, and what the owner should know."""
        found: list[TableFinding] = []
        for name, table in self.tables.items():
            cutoff = self.selection.cutoff
            of_table = cutoff.column if cutoff and name == self.selection.table else None
            found += findings_of(self.conn, table, time_column=of_table)
            found += self._cascades(name, table)
        return tuple(found)

    def _cascades(self, name: str, table: Table) -> list[TableFinding]:
        """Children that the database would remove by itself, without archive or count."""
        return [
            TableFinding(
                "CASCADES",
                "ERROR",
                name,
                f"{foreign.name} of {foreign.child} is ON DELETE CASCADE: name {foreign.child} in `children`",
            )
            for foreign in table.incoming
            if foreign.on_delete == "CASCADE"
            and foreign.child != name
            and (foreign.schema is not None or foreign.child not in self.tables)
        ]

    def steps(self) -> list[TableStep]:
        """One step for each table, in the order in which rows go.

        Raises: ExpressionInvalid; TargetSchemaUnsupported: too deep.
        """
        return [self._step(name) for name in self.order()]

    def _step(self, name: str) -> TableStep:
        table = self.tables[name]
        row = row_name(self.conn, name)
        return TableStep(
            table=name,
            source=source(self.conn, name),
            row=row,
            key=KeyColumns.of(self.conn, table, row),
            chosen=_Conditions(self, "c").sql(lambda made: made.chosen(name, row)),
            planned=_Conditions(self, "f", of_any_pass=True).sql(
                lambda made: f"({made.chosen(name, row)}) and {made.goes(name, row)}"
            ),
            removable=_Conditions(self, "p").sql(
                lambda made: f"({made.chosen(name, row)}) and {made.unreferred(name, row)}"
            ),
            held=tuple(self._held(name, row)),
            must_lock=bool(table.incoming) and self.conn.dialect.name != "sqlite",
        )

    def _held(self, name: str, row: str) -> list[tuple[str, Sql]]:
        """Foreign key to the condition under which it holds a chosen row."""
        found: list[tuple[str, Sql]] = []
        for foreign in self.tables[name].incoming:
            if foreign.child == name and foreign.schema is None:
                continue
            label = f"{foreign.schema + '.' if foreign.schema else ''}{foreign.child}.{foreign.name}"
            made = _Conditions(self, f"h{len(found)}_", of_any_pass=True)
            found.append((label, made.sql(partial(_holding, name=name, row=row, foreign=foreign))))
        return found


class _Conditions:
    """Makes one condition; every subquery has a name of its own.

    Args:
        of_any_pass: about what may go in some pass, not in the one that begins now.
    """

    def __init__(self, family: Family, prefix: str, *, of_any_pass: bool = False) -> None:
        self._family = family
        self._of_any_pass = of_any_pass
        self._conn = family.conn
        self._binder = Binder(prefix)
        self._nested = 0

    def sql(self, make: Callable[["_Conditions"], str]) -> Sql:
        """What `make` says, with its values."""
        text = make(self)
        return Sql(text, dict(self._binder.bound))

    def chosen(self, name: str, row: str) -> str:
        """Older than the cut-off and named by the expression; of a child: refers to one that goes."""
        selection = self._family.selection
        if name != selection.table:
            return " or ".join(
                self._goes_with(parent, foreign, row) for parent, foreign in self._family.parents(name)
            )
        here = Row(self._conn, self._family.tables[name], row, self._family.time_zone)
        parts = []
        if selection.cutoff is not None:
            parts.append(before(here, selection.cutoff, self._binder))
        if selection.where is not None:
            parts.append(where(here, selection.where, self._binder))
        return " and ".join(f"({part})" for part in parts)

    def _goes_with(self, parent: str, foreign: ForeignKey, row: str) -> str:
        above = self._alias()
        return (
            f"exists (select 1 from {self._name(None, parent)} {above}"
            f" where {self._refers(foreign, above, row)}"
            f" and ({self.chosen(parent, above)}) and {self.goes(parent, above)})"
        )

    def goes(self, name: str, row: str) -> str:
        """Whether a chosen row is free: in this pass, or in any."""
        if name != self._family.selection.table:
            return self.free(name, row, with_itself=False)
        if not self._of_any_pass:
            return self.free(name, row, with_itself=True)
        kept = [
            f"not {self._kept_by(foreign, row)}"
            for foreign in self._family.tables[name].incoming
            if foreign.schema is None and foreign.child == name
        ]
        return " and ".join([self.free(name, row, with_itself=False), *kept])

    def _kept_by(self, foreign: ForeignKey, row: str) -> str:
        """Whether a row of the table itself refers to the row and goes in no pass: it was not chosen."""
        below, name = self._alias(), foreign.child
        stays = f"(({self.chosen(name, below)}) is not true)"
        if self._conn.dialect.name == "mysql":  # one that refers to itself is not deleted
            key = self._family.tables[name].key
            stays += f" or ({self._matches(below, key, row, key)})"
        match = self._refers(foreign, row, below)
        return f"exists (select 1 from {self._name(None, name)} {below} where {match} and ({stays}))"

    def free(self, name: str, row: str, *, with_itself: bool) -> str:
        """Whether nothing holds the row."""
        parts = [
            f"not {self.holds(foreign, row)}"
            for foreign in self._family.tables[name].incoming
            if with_itself or foreign.schema is not None or foreign.child != name
        ]
        return f"({' and '.join(parts)})" if parts else "(1 = 1)"

    def holds(self, foreign: ForeignKey, row: str) -> str:
        """Whether a row that does not go with it refers to the row."""
        below = self._alias()
        match = self._refers(foreign, row, below)
        is_here = foreign.schema is None
        is_own = is_here and foreign.child in self._family.tables
        table = self._family.tables.get(foreign.child) if is_here else None
        held = ""
        if table is not None and foreign in table.incoming:  # of the table itself: a row may name itself
            held = f" and {self._differs(table, below, row)}"
        elif is_own:
            held = f" and not {self.free(foreign.child, below, with_itself=False)}"
        return (
            f"exists (select 1 from {self._name(foreign.schema, foreign.child)} {below} where {match}{held})"
        )

    def unreferred(self, name: str, row: str) -> str:
        """Whether no other row refers to the row now."""
        parts = []
        table = self._family.tables[name]
        for foreign in table.incoming:
            below = self._alias()
            match = self._refers(foreign, row, below)
            if foreign.schema is None and foreign.child == name:
                match += f" and {self._differs(table, below, row)}"
            child = self._name(foreign.schema, foreign.child)
            parts.append(f"not exists (select 1 from {child} {below} where {match})")
        return f"({' and '.join(parts)})" if parts else "(1 = 1)"

    def _alias(self) -> str:
        self._nested += 1
        if self._nested > NESTED_MAX:
            raise TargetSchemaUnsupported("too many foreign keys between the children: name fewer of them")
        return f"r{self._nested}"

    def _name(self, schema: str | None, table: str) -> str:
        return self._conn.dialect.qualify(schema or self._conn.target.schema, table)

    def _refers(self, foreign: ForeignKey, row: str, below: str) -> str:
        """Whether a row of the child refers to a row. What is referred to has the collation that counts."""
        return self._matches(row, foreign.columns, below, foreign.child_columns, foreign.collations)

    def _matches(
        self,
        one: str,
        columns: Sequence[str],
        other: str,
        others: Sequence[str],
        collations: Sequence[str] = (),
    ) -> str:
        """On SQLite the collation of the first counts; PostgreSQL wants it named where the two differ."""
        quote = self._conn.dialect.quote
        named = (f" collate {name}" if name else "" for name in collations or [""] * len(columns))
        return " and ".join(
            f"{one}.{quote(column)}{collation} = {other}.{quote(beside)}"
            for column, collation, beside in zip(columns, named, others, strict=True)
        )

    def _differs(self, table: Table, one: str, other: str) -> str:
        """A row that refers to itself needs nobody else; MariaDB refuses to delete it all the same."""
        if self._conn.dialect.name == "mysql":
            return "1 = 1"
        return f"not ({self._matches(one, table.key, other, table.key)})"


def _holding(made: _Conditions, *, name: str, row: str, foreign: ForeignKey) -> str:
    return f"({made.chosen(name, row)}) and {made.holds(foreign, row)}"
