"""One unit of the outgoing purge: one transaction over one range of ids.

Invariants, beside those of every unit (`transaction.py`):
- Every batch that the range reaches is locked before the delete begins, and the delete is a statement of its
  own: it sees each status that was committed before the lock, and none can change until the end.

Source: facts/locks.md, 'The row lock of the outgoing purge'; design.md, Purge.
"""

from dataclasses import dataclass
from typing import Any

from spark.formats.symmetricds import DATA, DATA_EVENT, OUTGOING_BATCH
from spark.purge.batch_locks import lock_batches
from spark.purge.cutoff import CutoffValue
from spark.purge.keys import bound_keys
from spark.purge.statements import ALIAS_OF, PurgeSpec, Statements, Step, bound_nodes
from spark.targets.connection import Connection
from spark.targets.manifest import ManifestEntry
from spark.targets.transaction import Done, UnitResult, delete_rows, run_in_transaction

__all__ = ["UnitResult", "UnitSpec", "run_unit"]

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
        only: the keys of the plan's rows in the range; None: every row of it that the rule removes.
        most: rows that it may remove; None: as many as it finds.
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
    only: tuple[tuple[Any, ...], ...] | None = None
    most: int | None = None
    of_channels: tuple[tuple[str, CutoffValue], ...] = ()

    def __post_init__(self) -> None:
        assert self.lo <= self.hi, "a range has a first and a last id"


def run_unit(conn: Connection, spec: UnitSpec) -> UnitResult:
    """Do one unit in one transaction, or nothing of it.

    Raises: as `run_in_transaction`.
    """

    def work() -> Done:
        statements = _statements(conn, spec)
        locked = _lock(conn, spec, statements)
        rows, entry = _remove(conn, spec, statements)
        return Done(rows, entry, locked, {"lo": spec.lo, "hi": spec.hi})

    return run_in_transaction(conn, spec, work, most=spec.most)


def _statements(conn: Connection, spec: UnitSpec) -> Statements:
    return Statements.of(conn, _purge(spec), only_keys=spec.only is not None)


def _purge(spec: UnitSpec) -> PurgeSpec:
    return PurgeSpec(
        spec.cutoff,
        strict=spec.strict,
        stranded_nodes=spec.stranded_nodes,
        of_channels=spec.of_channels,
    )


def _parameters(conn: Connection, spec: UnitSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"lo": spec.lo, "hi": spec.hi}
    if spec.step == "STRANDED":
        found |= bound_nodes(spec.stranded_nodes, conn.dialect.name)
    return found


def _lock(conn: Connection, spec: UnitSpec, statements: Statements) -> int:
    return lock_batches(conn, spec.step, statements, _parameters(conn, spec))


def _remove(conn: Connection, spec: UnitSpec, statements: Statements) -> tuple[int, ManifestEntry | None]:
    parameters = _parameters(conn, spec)
    if spec.step == "DATA" or (spec.step != "STRANDED" and spec.of_channels):
        parameters |= _purge(spec).bound
    if spec.only is not None:
        parameters |= bound_keys(conn.dialect.name, spec.only)
    if spec.step == "STRANDED":
        return conn.execute_count(statements.mark(), parameters), None
    delete = statements.delete(spec.step)
    if (greatest := statements.greatest(spec.step)) is not None:
        [(parameters["greatest"],)] = conn.execute(greatest)
    alias = ALIAS_OF[spec.step]
    return delete_rows(conn, spec, delete, parameters, table=_TABLE_OF[spec.step], alias=alias)
