"""The tables of a purge as units need them, from the rules of its kind; picklable."""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any

from spark.formats.symmetricds import KindName, Layout
from spark.purge.cutoff import CutoffValue
from spark.purge.upkeep_rules import Rule, rules_of
from spark.rows.catalog import read_table
from spark.rows.family import TableStep
from spark.rows.keys import KeyColumns
from spark.rows.sql import Sql, row_name, source
from spark.targets.connection import Connection
from spark.targets.errors import TargetSchemaUnsupported


@dataclass(frozen=True, slots=True)
class Part:
    """One table of a purge.

    Attributes:
        at: the table, its key, and the conditions under which rows of it go.
        own: what a row that goes fulfils by itself, whatever other tables hold.
        columns: of the table, all of them.
    """

    rule: Rule
    at: TableStep
    own: Sql
    columns: tuple[str, ...]

    @property
    def step(self) -> str:
        """The name of its step."""
        return self.rule.step


def parts_of(
    conn: Connection,
    kind: KindName,
    layout: Layout,
    cutoff: CutoffValue,
    *,
    marks: bool = False,
    recaptures: bool = False,
) -> tuple[Part, ...]:
    """The tables of a kind that are there, in the order in which rows go.

    Args:
        marks: batches are turned to OK first, where the kind knows that step.
        recaptures: rows are captured anew.
    Raises: TargetSchemaUnsupported: a table has no key.
    """
    rules = rules_of(kind, layout, prefix=conn.target.table_prefix, marks=marks)
    return tuple(_part(conn, rule, cutoff, marks=marks, recaptures=recaptures) for rule in rules)


def _part(conn: Connection, rule: Rule, cutoff: CutoffValue, *, marks: bool, recaptures: bool) -> Part:
    name = f"{conn.target.table_prefix}{rule.table}"
    table, row = read_table(conn, name), row_name(conn, name)
    if not table.key:
        raise TargetSchemaUnsupported(f"{name} has neither a primary key nor a unique index without NULLs")
    planned = (rule.marked_guard if marks else "") or rule.planned_guard or rule.guard
    guard = rule.guard
    if recaptures and rule.late_guard:
        guard = f"({guard}) or ({rule.late_guard})"
        planned = f"({planned}) or ({rule.planned_late_guard})"

    def sql(*conditions: str) -> Sql:
        text = " and ".join(f"({condition})" for condition in conditions if condition)
        return Sql(_in_place(conn, text, row), {"cutoff": cutoff})

    own = sql(rule.own)
    at = TableStep(
        table=name,
        source=source(conn, name),
        row=row,
        key=KeyColumns.of(conn, table, row),
        chosen=own,
        planned=sql(rule.own, planned),
        removable=sql(rule.own, guard),
        held=(),
        must_lock=False,
    )
    return Part(rule, at, own, tuple(column.name for column in table.columns))


def _in_place(conn: Connection, text: str, row: str) -> str:
    """A condition with the names of the connection's tables."""
    names: Mapping[str, Any] = {
        field: row
        if field == "t"
        else conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{field}")
        for _, field, _, _ in Formatter().parse(text)
        if field is not None
    }
    return text.format(**names)
