"""Local changes that are written only where an entry is what their writer knows: `if_csn`.

Rules:
- whoever brings changes of others holds the session's row to its commit: a group with a condition takes that
  row first, then the generator's, and so nothing comes between the look and the commit (SQLite: the file);
- the conditions of a request are all held against what stands before it, requests of the same group that are
  written before it among them; one that fails writes nothing of its request, and the others go on;
- a key without an entry and a deleted one are both `none`; a tombstone may be named by its CSN as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from spark.formats.arrow import pa
from spark.formats.replica import ReplicaTables
from spark.replication.replica.entries import Key, read_standing
from spark.targets.connection import Connection

NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Condition:
    """What the key of a change must be at; `csn` None: it has no entry, or a deleted one."""

    row: int
    csn: str | None


@dataclass(frozen=True, slots=True)
class CsnDiffers:
    """A condition does not hold: nothing of its request was written.

    Attributes:
        row: the first such change, from 0.
        csn: what the entry is at; None: there is none.
        by: where the CSN was not given yet: which request of the group, and which of its changes, has it.
    """

    row: int
    csn: str | None
    is_deleted: bool
    by: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Standing:
    csn: str | None
    is_deleted: bool
    by: tuple[int, int] | None = None

    def fits(self, condition: Condition) -> bool:
        """Whether a condition holds."""
        if condition.csn is None:
            return self.is_deleted or (self.csn is None and self.by is None)
        return self.by is None and self.csn == condition.csn


_ABSENT: Final = _Standing(None, is_deleted=False)


@dataclass(frozen=True, slots=True)
class Conditional:
    """One request as it is judged: its number in the group, its changes and their conditions."""

    number: int
    batch: pa.RecordBatch
    conditions: Sequence[Condition]


def conditions_of(column: pa.Array) -> tuple[Condition, ...]:
    """The conditions of a column `if_csn`: null has none, `none` is a key without an entry."""
    if column.null_count == len(column):
        return ()
    return tuple(
        Condition(row, None if text == NONE else text)
        for row, text in enumerate(column.to_pylist())
        if text is not None
    )


def hold_arrivals(conn: Connection, tables: ReplicaTables) -> None:
    """Let no session bring anything until this transaction ends; before `lock_replica`.

    Raises: TargetLockTimeout.
    """
    assert conn.in_transaction, "the lock is held to the commit"
    if conn.dialect.name != "postgresql":
        return  # BEGIN IMMEDIATE has the whole file
    look = f"select one from {tables.session} where one = 1 for update"
    if not conn.execute(look):
        conn.execute(
            f"insert into {tables.session} (one, epoch, batch_seq) values (1, 0, 0)"
            " on conflict (one) do nothing"
        )
        conn.execute(look)


def judge_conditions(
    conn: Connection, tables: ReplicaTables, requests: Sequence[Conditional]
) -> dict[int, CsnDiffers]:
    """Which of the requests must not be written, by their numbers; under the locks.

    Args:
        requests: those that would be written, in the order of the group.
    """
    wanted = {key for each in requests for _, key in _conditional(each)}
    if not wanted:
        return {}
    standing = {
        key: _Standing(csn, is_deleted=is_tombstone)
        for key, csn, is_tombstone in read_standing(conn, tables, sorted(wanted))
    }
    refused: dict[int, CsnDiffers] = {}
    for each in requests:
        keys, conditions = _keys(each.batch), {one.row: one for one in each.conditions}
        for row, key in _conditional(each):
            found = standing.get(key, _ABSENT)
            if not found.fits(conditions[row]):
                refused[each.number] = CsnDiffers(row, found.csn, found.is_deleted, found.by)
                break
        else:
            deletes = each.batch.column("value").is_null().to_pylist()
            for row, key in enumerate(keys):
                if key in wanted:
                    standing[key] = _Standing(None, is_deleted=deletes[row], by=(each.number, row))
    return refused


def _conditional(request: Conditional) -> Iterator[tuple[int, Key]]:
    databases, keys = request.batch.column("database"), request.batch.column("key")
    for one in request.conditions:
        yield one.row, (databases[one.row].as_py(), keys[one.row].as_py())


def _keys(batch: pa.RecordBatch) -> Iterable[Key]:
    return zip(batch.column("database").to_pylist(), batch.column("key").to_pylist(), strict=True)
