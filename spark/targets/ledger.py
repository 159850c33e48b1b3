"""What was done, written in the transaction that did it: one row per (job, unit).

A repeated unit finds its row and changes nothing; counts come from here, never from what a worker returned.
Source: facts/spark.md, 'Side effects'.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from spark.targets.connection import Connection
from spark.targets.errors import TargetLockTimeout, TargetRowConflict
from spark.targets.ledger_schema import can_create_ledger, ensure_ledger, has_ledger, shows_ledger
from spark.targets.manifest import ManifestEntry

__all__ = [
    "JobTotals",
    "LedgerRow",
    "StepTotals",
    "archive_manifest",
    "aware",
    "can_create_ledger",
    "ensure_ledger",
    "find_unit",
    "has_ledger",
    "ledger_totals",
    "list_jobs",
    "name_of_keys",
    "record_manifest",
    "record_unit",
    "shows_ledger",
    "trim_ledger",
]

HASH_CHARS = 20
_ROW = "job_id, unit_id, step, attempt, token, rows_affected, detail, committed_at"
_ENTRY = ("job_id", "unit_id", "table_name", "attempt", "path", "rows", "bytes", "sha256")


def name_of_keys(first: object, last: object) -> str:
    """A part of a unit's name: safe in file names, whatever the keys are, and the same at every attempt."""
    return hashlib.sha256(repr((first, last)).encode()).hexdigest()[:HASH_CHARS]


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One committed unit; `detail` is any JSON object, `committed_at` is set by the target's clock."""

    job_id: str
    unit_id: str
    step: str
    attempt: int
    token: int
    rows_affected: int
    detail: Mapping[str, Any] = field(default_factory=dict)
    committed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StepTotals:
    """What one step of a job has done so far."""

    units: int
    rows: int


@dataclass(frozen=True, slots=True)
class JobTotals:
    """What the ledger of a target knows of one job; `step`: one of its steps."""

    job_id: str
    units: int
    rows: int
    max_token: int
    first_committed_at: datetime
    last_committed_at: datetime
    step: str = ""


def find_unit(conn: Connection, job_id: str, unit_id: str) -> LedgerRow | None:
    """The row of a unit that has already been committed."""
    rows = conn.execute(
        f"select {_ROW} from {conn.dialect.lethe_table('unit_ledger')} "
        "where job_id = :job and unit_id = :unit",
        {"job": job_id, "unit": unit_id},
    )
    if not rows:
        return None
    job, unit, step, attempt, token, affected, detail, committed = rows[0]
    return LedgerRow(job, unit, step, attempt, token, affected, json.loads(detail), aware(committed))


def record_unit(conn: Connection, row: LedgerRow) -> None:
    """Write the row of a unit, inside the transaction of its effect.

    Raises: TargetLockTimeout: another worker has committed, or is committing, the same unit: roll back, and
        find its row at the next try.
    """
    assert conn.in_transaction, "the row and the effect share one transaction"
    try:
        conn.execute(
            f"insert into {conn.dialect.lethe_table('unit_ledger')} "
            "(job_id, unit_id, step, attempt, token, rows_affected, detail) "
            "values (:job, :unit, :step, :attempt, :token, :affected, :detail)",
            {
                "job": row.job_id,
                "unit": row.unit_id,
                "step": row.step,
                "attempt": row.attempt,
                "token": row.token,
                "affected": row.rows_affected,
                "detail": json.dumps(dict(row.detail), sort_keys=True),
            },
        )
    except TargetRowConflict as exc:
        raise TargetLockTimeout(
            f"unit {row.unit_id} of {row.job_id} was committed by another worker"
        ) from exc


def ledger_totals(conn: Connection, job_id: str) -> dict[str, StepTotals]:
    """Units and rows of each step of a job."""
    rows = conn.execute(
        "select step, count(*), sum(rows_affected) "
        f"from {conn.dialect.lethe_table('unit_ledger')} where job_id = :job group by step order by step",
        {"job": job_id},
    )
    return {step: StepTotals(units, int(affected)) for step, units, affected in rows}


def list_jobs(conn: Connection) -> list[JobTotals]:
    """Every job that has left rows in this ledger, whether or not the caller's metadata knows it."""
    rows = conn.execute(
        "select job_id, count(*), sum(rows_affected), max(token), min(committed_at), "
        f"max(committed_at), min(step) "
        f"from {conn.dialect.lethe_table('unit_ledger')} group by job_id order by job_id"
    )
    return [
        JobTotals(job, units, int(affected), token, aware(first), aware(last), step)
        for job, units, affected, token, first, last, step in rows
    ]


def trim_ledger(conn: Connection, job_ids: Sequence[str]) -> int:
    """Forget finished jobs, their manifest included, in a transaction of its own; how many unit rows went."""
    removed = 0
    with conn.transaction():
        for job_id in job_ids:
            conn.execute(
                f"delete from {conn.dialect.lethe_table('archive_manifest')} where job_id = :job",
                {"job": job_id},
            )
            removed += conn.execute_count(
                f"delete from {conn.dialect.lethe_table('unit_ledger')} where job_id = :job", {"job": job_id}
            )
    return removed


def record_manifest(conn: Connection, entry: ManifestEntry) -> None:
    """Name the valid archive file of a unit, inside the transaction that removes its rows."""
    assert conn.in_transaction, "the entry and the effect share one transaction"
    conn.execute(
        f"insert into {conn.dialect.lethe_table('archive_manifest')} ({_entry(conn)}) "
        "values (:job, :unit, :table, :token, :path, :rows, :bytes, :sha256)",
        {
            "job": entry.job_id,
            "unit": entry.unit_id,
            "table": entry.table_name,
            "token": entry.token,
            "path": entry.path,
            "rows": entry.rows,
            "bytes": entry.bytes,
            "sha256": entry.sha256,
        },
    )


def archive_manifest(conn: Connection, job_id: str) -> list[ManifestEntry]:
    """The valid archive files of a job, by unit."""
    rows = conn.execute(
        f"select {_entry(conn)} from {conn.dialect.lethe_table('archive_manifest')} "
        "where job_id = :job order by unit_id",
        {"job": job_id},
    )
    return [ManifestEntry(*row) for row in rows]


def _entry(conn: Connection) -> str:
    return ", ".join(map(conn.dialect.quote, _ENTRY))  # ROWS is a word of MySQL's own


def aware(value: datetime | str) -> datetime:
    """A time of the ledger, with its zone."""
    read = datetime.fromisoformat(value) if isinstance(value, str) else value
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
