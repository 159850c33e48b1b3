"""What every unit of every sweep is: one transaction under the fence, with its row in the ledger.

Invariants:
- The fence is read first and held to the end: no unit of an older claim writes.
- Rows, ledger row and manifest row are committed together; the archive's file is durable before.
- A repeated unit finds its ledger row and changes nothing. Without a ledger it finds nothing left to remove.
- A unit that may remove so many rows and no more is rolled back where it would: the count is its statement's.

Source: facts/locks.md; design.md, Purge.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from spark.targets.archive.archive import archive_delete
from spark.targets.connection import Connection
from spark.targets.fence import check_fence
from spark.targets.ledger import LedgerRow, find_unit, record_manifest, record_unit
from spark.targets.manifest import ManifestEntry
from spark.targets.silence import application_name


class AnyUnit(Protocol):
    """What the units of all kinds have in common.

    `unit_id` is safe in a file name and the same at every attempt; `token` is of the fence and of the
    attempt; `resource` names the fence's row; without `has_ledger` the caller holds the advisory lock;
    `archive_dir` is the directory of the attempt's file, None: rows are not kept.
    """

    @property
    def job_id(self) -> str: ...

    @property
    def unit_id(self) -> str: ...

    @property
    def step(self) -> str: ...

    @property
    def token(self) -> int: ...

    @property
    def resource(self) -> str: ...

    @property
    def has_ledger(self) -> bool: ...

    @property
    def archive_dir(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What one unit did.

    Attributes:
        rows: removed, or marked by STRANDED.
        repeated: an earlier attempt had done it; `rows` are that attempt's.
        archive: the durable file, valid because this transaction committed.
        locked_batches: batch rows that nobody could change meanwhile; 0 where a whole database is locked.
        refused: rows that it would have removed, more than it may: it did nothing, and left no ledger row.
    """

    rows: int
    repeated: bool = False
    archive: ManifestEntry | None = None
    locked_batches: int = 0
    refused: int | None = None


class _TooMany(Exception):
    """A unit removed more rows than it may: takes them back by ending the transaction."""


@dataclass(frozen=True, slots=True)
class Done:
    """What the statements of a unit did; `detail` goes into its ledger row.

    Attributes:
        locked_batches: of a purge; None: the unit locks none.
    """

    rows: int
    archive: ManifestEntry | None = None
    locked_batches: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


def run_in_transaction(
    conn: Connection, unit: AnyUnit, work: Callable[[], Done], *, most: int | None = None
) -> UnitResult:
    """Do one unit in one transaction, or nothing of it.

    Args:
        most: rows that it may remove; None: as many as it finds.
    Raises: FenceRaised: somebody claimed the resource. TargetLockTimeout: try again after a pause; any other
        TargetError. After a TargetUnreachable out of the COMMIT the same unit tells by its ledger row what
        happened.
    """
    _announce(conn, unit)
    done = Done(0)
    try:
        with conn.transaction():
            if unit.has_ledger:
                check_fence(conn, unit.resource, token=unit.token)
                row = find_unit(conn, unit.job_id, unit.unit_id)
                if row is not None:
                    return _repeated(row)
            done = work()
            if most is not None and done.rows > most:
                raise _TooMany
            if unit.has_ledger:
                _record(conn, unit, done)
    except _TooMany:
        return UnitResult(0, refused=done.rows)
    return UnitResult(done.rows, archive=done.archive, locked_batches=done.locked_batches or 0)


def delete_rows(
    conn: Connection,
    unit: AnyUnit,
    delete: str,
    parameters: Mapping[str, Any],
    *,
    table: str,
    alias: str | None = None,
) -> tuple[int, ManifestEntry | None]:
    """Run the delete of a unit, into a file where the unit has a directory for it.

    Args:
        table: without prefix; `alias` is the name that the statement gives to it.
    """
    if unit.archive_dir is None:
        return conn.execute_count(delete, parameters), None
    entry = archive_delete(
        conn,
        delete,
        parameters,
        table=f"{conn.target.table_prefix}{table}",
        alias=alias,
        directory=Path(unit.archive_dir),
        job_id=unit.job_id,
        unit_id=unit.unit_id,
        token=unit.token,
    )
    return (entry.rows if entry is not None else 0), entry


def _announce(conn: Connection, unit: AnyUnit) -> None:
    """Name the unit where the server shows its sessions."""
    if conn.dialect.name == "postgresql":
        conn.execute(
            "select set_config('application_name', :name, false)",
            {"name": application_name(unit.job_id, unit.unit_id, unit.token)},
        )
    elif conn.dialect.name == "mysql":  # costs nothing while job and token stay the same
        conn.set_application_name(application_name(unit.job_id, unit.unit_id, unit.token))


def _record(conn: Connection, unit: AnyUnit, done: Done) -> None:
    assert conn.in_transaction, "the rows and their ledger row are committed together"
    # First the unit: where another attempt of it has committed meanwhile this one is rolled back, and tried
    # again; the manifest would call that a conflict for good.
    locked = {} if done.locked_batches is None else {"locked_batches": done.locked_batches}
    detail = {**done.detail, **locked}
    record_unit(
        conn,
        LedgerRow(unit.job_id, unit.unit_id, unit.step, unit.token, unit.token, done.rows, detail),
    )
    if done.archive is not None:
        record_manifest(conn, done.archive)


def _repeated(row: LedgerRow) -> UnitResult:
    return UnitResult(
        row.rows_affected,
        repeated=True,
        archive=None,
        locked_batches=int(row.detail.get("locked_batches", 0)),
    )
