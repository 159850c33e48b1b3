"""One unit: one transaction over one range of a table's keys.

Invariants, beside those of every unit (spark.targets.transaction):
- What may still need a row is asked for in the transaction that removes it. On MariaDB and MySQL by a read of
  its own just before the delete: in the delete it would lock rows that somebody captures at this moment.
- Where a kind says so, the outgoing batches that a row is in are locked first: none is sent again meanwhile.
- Where rows are captured anew, only those go that were.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from spark.formats.symmetricds import DATA
from spark.purge.batch_locks import lock_batches
from spark.purge.cutoff import CutoffValue
from spark.purge.statements import PurgeSpec, Statements
from spark.rows.keys import KeyTexts, texts_of, value_of
from spark.rows.sql import Binder, Sql
from spark.rows.walk import within
from spark.targets.connection import Connection
from spark.targets.ledger import name_of_keys
from spark.targets.manifest import ManifestEntry
from spark.targets.transaction import Done, UnitResult, delete_rows, run_in_transaction
from spark.targets.walk import Key
from spark.upkeep.parts import Part
from spark.upkeep.recapture.acts import Recapture, clock_kept
from spark.upkeep.recapture.judging import stranded_rows

ROWS_MAX = 5_000
"""Keys that one unit names: of a plan, and on MariaDB and MySQL."""


@dataclass(frozen=True, slots=True)
class UpkeepUnit:
    """Everything that a worker needs besides a connection; picklable. See `transaction.AnyUnit`.

    Attributes:
        after, upto: the range of keys, the first excluded; () begins with the first row.
        only: the keys of the plan's rows, in the place of a range; None: every row that the rule removes.
        most: rows that it may remove; None: as many as it finds.
        recapture: rows of sym_data are captured anew, and only then removed.
        time_zone: of naive columns of the target.
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
    time_zone: str = "UTC"

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
    assert not unit.recapture or unit.part.rule.table == DATA, "only captured rows are captured anew"

    def work() -> Done:
        locked = _lock(conn, unit) if unit.part.rule.locks_batches else None
        rows, entry = _remove(conn, unit)
        return Done(rows, entry, locked, {"table": unit.part.at.table})

    with clock_kept(conn) if unit.recapture else nullcontext():
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


def _captured(conn: Connection, unit: UpkeepUnit, condition: Sql) -> Sql | None:
    """The rows of a condition that were captured anew; None: there is none."""
    rows = stranded_rows(conn, unit.part, condition)
    ids = Recapture(conn, unit.part.columns, unit.cutoff, unit.time_zone).run(rows)
    if not ids:
        return None
    binder = Binder("captured")
    listed = ", ".join(binder.add(data_id) for data_id in sorted(ids))
    return Sql(f"{unit.part.at.row}.data_id in ({listed})", binder.bound)


def _remove(conn: Connection, unit: UpkeepUnit) -> tuple[int, ManifestEntry | None]:
    at, rule = unit.part.at, unit.part.rule
    condition = _both(_range(unit), at.removable)
    if unit.recapture:
        ids = _captured(conn, unit, condition)
        if not ids:
            return 0, None
        condition = _both(ids, at.removable)  # captures wait for locks: a batch may hold a row by now
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
