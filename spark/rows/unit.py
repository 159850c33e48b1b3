"""One unit of the purge ROWS: one transaction over one range of a table's keys.

Rules, beside those of every unit (spark.targets.transaction):
- Where other rows can refer to the table, its chosen rows are locked before the delete, which is a statement
  of its own: it sees each row that referred to them before the lock, and none can come until the end.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark.rows.family import TableStep
from spark.rows.keys import KeyTexts
from spark.rows.walk import within
from spark.targets.archive.archive import archive_delete
from spark.targets.connection import Connection
from spark.targets.ledger import name_of_keys
from spark.targets.manifest import ManifestEntry
from spark.targets.transaction import Done, UnitResult, run_in_transaction

ONLY_MAX = 5_000
"""Keys that one unit of a plan names."""


@dataclass(frozen=True, slots=True)
class RowsUnit:
    """Everything that a worker needs besides a connection; picklable. See `transaction.AnyUnit`.

    Attributes:
        after, upto: the range of keys, the first excluded; () begins with the first row.
        only: the keys of the plan's rows in the range; None: every row of it that the rule removes.
        most: rows that it may remove; None: as many as it finds.
    """

    job_id: str
    unit_id: str
    step: str
    table: TableStep
    after: KeyTexts
    upto: KeyTexts
    token: int
    resource: str
    has_ledger: bool = True
    archive_dir: str | None = None
    only: tuple[KeyTexts, ...] | None = None
    most: int | None = None


def unit_id(step: str, after: KeyTexts, upto: KeyTexts) -> str:
    """The unit's name in the ledger."""
    return f"rows-{step}-{name_of_keys(after, upto)}"


def run_rows(conn: Connection, unit: RowsUnit) -> UnitResult:
    """Remove the rows of one unit, or none of them: then, where it found more than it may, it says how many.

    Raises: as `run_in_transaction`.
    """

    def work() -> Done:
        locked = _lock(conn, unit) if unit.table.must_lock else 0
        rows, entry = _remove(conn, unit)
        return Done(rows, entry, locked, {"table": unit.table.table})

    return run_in_transaction(conn, unit, work, most=unit.most)


def _lock(conn: Connection, unit: RowsUnit) -> int:
    text, bound = _condition(unit, unit.table.chosen.text, dict(unit.table.chosen.bound))
    of = " of t" if conn.dialect.name == "postgresql" else ""
    return len(conn.execute(f"select 1 from {unit.table.source} where {text} for update{of}", bound))


def _remove(conn: Connection, unit: RowsUnit) -> tuple[int, ManifestEntry | None]:
    text, bound = _condition(unit, unit.table.removable.text, dict(unit.table.removable.bound))
    delete = f"delete from {unit.table.source} where {text}"
    if unit.archive_dir is None:
        return conn.execute_count(delete, bound), None
    entry = archive_delete(
        conn,
        delete,
        bound,
        table=unit.table.table,
        alias="t" if conn.dialect.name == "postgresql" else None,
        directory=Path(unit.archive_dir),
        job_id=unit.job_id,
        unit_id=unit.unit_id,
        token=unit.token,
    )
    return (0 if entry is None else entry.rows), entry


def _condition(unit: RowsUnit, text: str, bound: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    between = within(unit.table, unit.after, unit.upto)
    bound |= between.bound
    text = f"({between.text}) and ({text})"
    if unit.only is not None:
        named = unit.table.key.among(unit.only)
        bound |= named.bound
        text += f" and {named.text}"
    return text, bound
