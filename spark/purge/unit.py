"""One unit of the outgoing purge: one transaction over one range of ids.

Invariants:
- The fence is read first and held to the end: no unit of an older claim writes.
- Every batch that the range reaches is locked before the delete begins, and the delete is a statement of its
  own: it sees each status that was committed before the lock, and none can change until the end.
- Rows, ledger row and manifest row are committed together; the archive's file is durable before.
- A repeated unit finds its ledger row and changes nothing. Without a ledger it finds nothing left to remove.

Source: facts/locks.md, 'The row lock of the outgoing purge'; design.md, Purge.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark.formats.symmetricds import DATA, DATA_EVENT, OUTGOING_BATCH
from spark.purge.cutoff import CutoffValue
from spark.purge.statements import ALIAS_OF, PurgeSpec, Statements, Step, bound_nodes
from spark.targets.archive import archive_delete
from spark.targets.connection import Connection
from spark.targets.fence import check_fence
from spark.targets.ledger import LedgerRow, find_unit, record_manifest, record_unit
from spark.targets.manifest import ManifestEntry
from spark.targets.silence import application_name

_TABLE_OF: dict[Step, str] = {"DATA": DATA, "EVENTS": DATA_EVENT, "BATCHES": OUTGOING_BATCH}


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """Everything that a worker needs besides a connection; picklable.

    Attributes:
        unit_id: safe in a file name, the same at every attempt.
        lo, hi: ids, both included; inside the bounds of the step.
        token: of the fence and of the attempt.
        resource: the name of the fence's row.
        has_ledger: False where Lethe's own tables may not be made; the caller then holds the advisory lock.
        archive_dir: the directory of the attempt's file; None: rows are not kept.
        stranded_nodes: STRANDED marks only batches of these.
    """

    job_id: str
    unit_id: str
    step: Step
    lo: int
    hi: int
    cutoff: CutoffValue
    strict: bool
    token: int
    resource: str
    has_ledger: bool = True
    archive_dir: str | None = None
    stranded_nodes: tuple[str | None, ...] | None = None

    def __post_init__(self) -> None:
        assert self.lo <= self.hi, "a range has a first and a last id"


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What one unit did.

    Attributes:
        rows: removed, or marked by STRANDED.
        repeated: an earlier attempt had done it; `rows` are that attempt's.
        archive: the durable file, valid because this transaction committed.
        locked_batches: batch rows that nobody could change meanwhile; 0 where a whole database is locked.
    """

    rows: int
    repeated: bool
    archive: ManifestEntry | None
    locked_batches: int


def run_unit(conn: Connection, spec: UnitSpec) -> UnitResult:
    """Do one unit in one transaction, or nothing of it.

    Raises: FenceRaised: somebody claimed the resource. TargetLockTimeout: try again after a pause; any other
        TargetError. After a TargetUnreachable out of the COMMIT the same unit tells by its ledger row what
        happened.
    """
    _announce(conn, spec)
    with conn.transaction():
        if spec.has_ledger:
            check_fence(conn, spec.resource, token=spec.token)
            done = find_unit(conn, spec.job_id, spec.unit_id)
            if done is not None:
                return _repeated(done)
        statements = _statements(conn, spec)
        locked = _lock(conn, spec, statements)
        rows, entry = _remove(conn, spec, statements)
        if spec.has_ledger:
            _record(conn, spec, rows=rows, locked=locked, entry=entry)
    return UnitResult(rows, repeated=False, archive=entry, locked_batches=locked)


def _announce(conn: Connection, spec: UnitSpec) -> None:
    """Name the unit in pg_stat_activity, in the round trip that also keeps the compiler out of short
    statements.
    """
    if conn.dialect.name == "postgresql":
        conn.execute(
            "select set_config('application_name', :name, false), set_config('jit', 'off', false)",
            {"name": application_name(spec.job_id, spec.unit_id, spec.token)},
        )


def _statements(conn: Connection, spec: UnitSpec) -> Statements:
    purge = PurgeSpec(spec.cutoff, strict=spec.strict, stranded_nodes=spec.stranded_nodes)
    return Statements.of(conn, purge)


def _parameters(conn: Connection, spec: UnitSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"lo": spec.lo, "hi": spec.hi}
    if spec.step == "DATA":
        found["cutoff"] = spec.cutoff
    if spec.step == "STRANDED":
        found |= bound_nodes(spec.stranded_nodes, conn.dialect.name)
    return found


def _lock(conn: Connection, spec: UnitSpec, statements: Statements) -> int:
    sql = statements.lock(spec.step, conn.dialect.share_lock("b"))
    if sql is None:
        return 0
    parameters = _parameters(conn, spec)
    parameters.pop("cutoff", None)
    [(locked,)] = conn.execute(sql, parameters)
    return int(locked)


def _remove(conn: Connection, spec: UnitSpec, statements: Statements) -> tuple[int, ManifestEntry | None]:
    parameters = _parameters(conn, spec)
    if spec.step == "STRANDED":
        return conn.execute_count(statements.mark(), parameters), None
    delete = statements.delete(spec.step)
    if spec.archive_dir is None:
        return conn.execute_count(delete, parameters), None
    entry = archive_delete(
        conn,
        delete,
        parameters,
        table=f"{conn.target.table_prefix}{_TABLE_OF[spec.step]}",
        alias=ALIAS_OF[spec.step],
        directory=Path(spec.archive_dir),
        job_id=spec.job_id,
        unit_id=spec.unit_id,
        token=spec.token,
    )
    return (entry.rows if entry is not None else 0), entry


def _record(conn: Connection, spec: UnitSpec, *, rows: int, locked: int, entry: ManifestEntry | None) -> None:
    if entry is not None:
        record_manifest(conn, entry)
    detail = {"lo": spec.lo, "hi": spec.hi, "locked_batches": locked}
    record_unit(
        conn,
        LedgerRow(spec.job_id, spec.unit_id, spec.step, spec.token, spec.token, rows, detail),
    )


def _repeated(done: LedgerRow) -> UnitResult:
    return UnitResult(
        done.rows_affected,
        repeated=True,
        archive=None,
        locked_batches=int(done.detail.get("locked_batches", 0)),
    )
