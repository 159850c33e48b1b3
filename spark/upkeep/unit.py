"""One unit: one transaction over one range of a table's keys.

Invariants, beside those of every unit (spark.targets.transaction):
- What may still need a row is asked for in the transaction that removes it. On MariaDB and MySQL by a read of
  its own just before the delete: in the delete it would lock rows that somebody captures at this moment.
- Where a kind says so, the outgoing batches that a row is in are locked first: none is sent again meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark.purge.batch_locks import lock_batches
from spark.purge.cutoff import CutoffValue
from spark.purge.statements import PurgeSpec, Statements
from spark.rows.keys import KeyTexts, texts_of, value_of
from spark.rows.sql import Sql
from spark.rows.walk import within
from spark.targets.connection import Connection
from spark.targets.ledger import name_of_keys
from spark.targets.manifest import ManifestEntry
from spark.targets.transaction import Done, UnitResult, delete_rows, run_in_transaction
from spark.targets.walk import Key
from spark.upkeep.parts import Part

ROWS_MAX = 5_000
"""Keys that one unit names: of a plan, and on MariaDB and MySQL."""


@dataclass(frozen=True, slots=True)
class UpkeepUnit:
    """Everything that a worker needs besides a connection; picklable. See `transaction.AnyUnit`.

    Attributes:
        after, upto: the range of keys, the first excluded; () begins with the first row.
        only: the keys of the plan's rows, in the place of a range; None: every row that the rule removes.
        most: rows that it may remove; None: as many as it finds.
        recapture: a captured row goes only when it was captured again.
    """

    job_id: str
    unit_id: str
    part: Part
    after: KeyTexts
    upto: KeyTexts
    cutoff: CutoffValue
    token: int
    resource: str
    has_ledger: bool = True
    archive_dir: str | None = None
    only: tuple[KeyTexts, ...] | None = None
    most: int | None = None
    recapture: bool = False

    @property
    def step(self) -> str:
        """Of its part."""
        return self.part.step


def unit_id(step: str, lo: Key, hi: Key) -> str:
    """The unit's name in the ledger."""
    return f"{step}-{name_of_keys(lo, hi)}"


def run_upkeep(conn: Connection, unit: UpkeepUnit) -> UnitResult:
    """Remove, or mark, the rows of one unit that may go now.

    Raises: as `run_in_transaction`.
    """

    def work() -> Done:
        locked = _lock(conn, unit) if unit.part.rule.locks_batches else None
        rows, entry = _remove(conn, unit)
        return Done(rows, entry, locked, {"table": unit.part.at.table})

    return run_in_transaction(conn, unit, work, most=unit.most)


def _range(unit: UpkeepUnit) -> Sql:
    if unit.only is not None:
        return unit.part.at.key.among(unit.only)
    return within(unit.part.at, unit.after, unit.upto)


def _both(one: Sql, other: Sql) -> Sql:
    return Sql(f"({one.text}) and ({other.text})", {**one.bound, **other.bound})


def _lock(conn: Connection, unit: UpkeepUnit) -> int:
    """The batches of the captured rows; their key is one number."""
    ids = _ids(unit.only) if unit.only is not None else _ids([key for key in (unit.after, unit.upto) if key])
    low = ids[0] if unit.only is not None or unit.after else -(2**63)
    statements = Statements.of(conn, PurgeSpec(unit.cutoff))
    return lock_batches(conn, "DATA", statements, {"lo": low, "hi": ids[-1]})


def _ids(keys: Sequence[KeyTexts]) -> list[int]:
    return sorted(int(value_of(key[0])) for key in keys)


def _remove(conn: Connection, unit: UpkeepUnit) -> tuple[int, ManifestEntry | None]:
    at, rule = unit.part.at, unit.part.rule
    condition = _both(_range(unit), at.removable)
    if conn.dialect.name == "mysql":
        chosen = conn.execute(
            f"select {at.key.selected} from {at.source} where {condition.text}", dict(condition.bound)
        )
        if not chosen:
            return 0, None
        condition = _both(at.key.among([texts_of(row) for row in chosen]), unit.part.own)
    bound: dict[str, Any] = dict(condition.bound)
    if rule.action == "MARK":
        return conn.execute_count(f"update {at.source} set status = 'OK' where {condition.text}", bound), None
    alias = "t" if conn.dialect.name == "postgresql" else None
    delete = f"delete from {at.source} where {condition.text}"
    return delete_rows(conn, unit, delete, bound, table=rule.table, alias=alias)
