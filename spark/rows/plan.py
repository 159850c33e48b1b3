"""What a purge ROWS would do: exact counts of the moment, with what stays and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spark.purge.scan import PlanStopped
from spark.rows.condition import Row, is_unreadable
from spark.rows.family import Family, TableStep
from spark.rows.keys import KeyTexts, shown, texts_of
from spark.rows.sql import Binder, Sql
from spark.rows.walk import each_chunk, within
from spark.targets.connection import Connection

CHUNK_ROWS = 20_000
SAMPLES_MAX = 5
HELD = "HELD_BY_FOREIGN_KEY"
RowKeySink = Callable[[int, Sequence[KeyTexts]], None]
"""Takes the place of a table in the order of steps, and keys of its rows that would go, ascending."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """One table: its rows, and those that would go."""

    table: str
    rows: int
    rows_to_remove: int


@dataclass(frozen=True, slots=True)
class RowsWarning:
    """What stays although it was chosen, or what the owner should know; `sample` holds keys."""

    code: str
    table: str
    count: int
    sample: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """The whole plan, tables in the order in which rows go."""

    tables: tuple[TableRows, ...]
    warnings: tuple[RowsWarning, ...]

    @property
    def rows(self) -> int:
        """Rows of the tables."""
        return sum(table.rows for table in self.tables)

    @property
    def rows_to_remove(self) -> int:
        """Rows that would go."""
        return sum(table.rows_to_remove for table in self.tables)


@dataclass(slots=True)
class _Counted:
    """One condition that is counted."""

    code: str
    sql: Sql
    detail: str
    count: int = 0
    samples: tuple[str, ...] = ()


def plan_rows(
    conn: Connection,
    family: Family,
    *,
    should_stop: Callable[[], bool],
    keys: RowKeySink | None = None,
) -> RowsPlan:
    """Count what would go, table by table, and what a foreign key keeps.

    Where a table refers to itself, the counts are upper bounds of what all passes together remove: a row may
    be held by one that is chosen and stays. Else they are exact.

    Raises: PlanStopped; ExpressionInvalid.
    """
    tables, warnings = [], []
    for place, step in enumerate(family.steps()):
        rows, to_remove, counted = _count(conn, family, step, place, should_stop, keys)
        tables.append(TableRows(step.table, rows, to_remove))
        warnings += [
            RowsWarning(item.code, step.table, item.count, item.samples, item.detail)
            for item in counted
            if item.count
        ]
    warnings += [
        RowsWarning(finding.code, finding.table, 0, (), finding.detail) for finding in family.findings()
    ]
    return RowsPlan(tuple(tables), tuple(warnings))


def _count(
    conn: Connection,
    family: Family,
    step: TableStep,
    place: int,
    should_stop: Callable[[], bool],
    keys: RowKeySink | None,
) -> tuple[int, int, list[_Counted]]:
    counted = _conditions(conn, family, step)
    rows = to_remove = 0
    sums = "".join(f", coalesce(sum(case when {item.sql.text} then 1 else 0 end), 0)" for item in counted)
    bound = {name: value for item in counted for name, value in item.sql.bound.items()}
    for after, upto in each_chunk(conn, step, rows=CHUNK_ROWS, should_stop=should_stop):
        if should_stop():
            raise PlanStopped
        between = within(step, after, upto)
        [(seen, *numbers)] = conn.execute(
            f"select count(*){sums} from {step.source} where {between.text}", {**bound, **between.bound}
        )
        rows += int(seen)
        to_remove += int(numbers[0])
        for item, number in zip(counted, numbers, strict=True):
            item.count += int(number)
            if number and item.code == HELD and len(item.samples) < SAMPLES_MAX:
                item.samples += _samples(conn, step, between, item.sql, SAMPLES_MAX - len(item.samples))
        if keys is not None and numbers[0]:
            keys(place, _keys(conn, step, between, step.planned))
    if should_stop():
        raise PlanStopped
    return rows, to_remove, [item for item in counted if item.code]


def _conditions(conn: Connection, family: Family, step: TableStep) -> list[_Counted]:
    found = [_Counted("", step.planned, "")]
    found += [
        _Counted(HELD, sql, f"chosen, but {label} still needs them: they stay") for label, sql in step.held
    ]
    cutoff = family.selection.cutoff
    if cutoff is None or step.table != family.selection.table:
        return found
    row = Row(conn, family.tables[step.table], step.row, family.time_zone)
    name = row.quoted(row.column(cutoff.column))
    found.append(
        _Counted("TIME_NULL", Sql(f"{name} is null"), f"{cutoff.column} is NULL: never older, they stay")
    )
    binder = Binder("u")
    text = is_unreadable(row, cutoff, binder)
    detail = f"{cutoff.column} is no time that compares with the cut-off: they stay"
    return [*found, _Counted("TIME_UNREADABLE", Sql(text, dict(binder.bound)), detail)]


def _keys(conn: Connection, step: TableStep, between: Sql, condition: Sql) -> list[KeyTexts]:
    rows = conn.execute(
        f"select {step.key.selected} from {step.source} where ({between.text}) and ({condition.text})"
        f" order by {step.key.order()}",
        {**between.bound, **condition.bound},
    )
    return [texts_of(row) for row in rows]


def _samples(conn: Connection, step: TableStep, between: Sql, condition: Sql, most: int) -> tuple[str, ...]:
    bound: dict[str, Any] = {**between.bound, **condition.bound, "most": most}
    rows = conn.execute(
        f"select {step.key.selected} from {step.source} where ({between.text}) and ({condition.text})"
        f" order by {step.key.order()} limit :most",
        bound,
    )
    return tuple(shown(texts_of(row)) for row in rows)
