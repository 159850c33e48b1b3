"""What the attempts of a sweep have removed so far: by the target's ledger, or by what the job noted.

Rules:
- where every unit has left its row in the ledger, that counts, exactly; else what was noted is the least.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import counts_by_ledger
from app.sweeps.windows import CHECKPOINT_LOOP, LoopState
from spark.targets.connection import Connection
from spark.targets.ledger import has_ledger, ledger_totals

CHECKPOINT_REMOVED: Final = "removed"
"""Rows by step, of courses that note no windows, where no ledger counts them."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows by step, and units."""

    rows: Mapping[str, int]
    units: int
    is_exact: bool

    @property
    def word(self) -> str:
        """As results tell it."""
        return "EXACT" if self.is_exact else "AT_LEAST"


@dataclass(slots=True)
class Tally:
    """What the units of this attempt did, of a course that notes no windows."""

    rows: dict[str, int] = field(default_factory=dict)
    units: int = 0
    longest_s: float = 0.0

    def add(self, step: str, rows: int, *, elapsed_s: float) -> None:
        """Count a unit."""
        self.rows[step] = self.rows.get(step, 0) + rows
        self.units += 1
        self.longest_s = max(self.longest_s, elapsed_s)


def counts_so_far(context: JobContext, conn: Connection, *, steps: Collection[str] | None = None) -> Counts:
    """By the ledger, if it has every unit of the job; else as noted."""
    is_exact = counts_by_ledger(context) and has_ledger(conn)
    return ledger_counts(context, conn, steps=steps) if is_exact else noted_counts(context)


def ledger_counts(context: JobContext, conn: Connection, *, steps: Collection[str] | None = None) -> Counts:
    """As the target's ledger has them.

    Args:
        steps: only these are units; None: all are.
    """
    found = ledger_totals(conn, context.job.id)
    totals = {step: total for step, total in found.items() if steps is None or step in steps}
    rows = {step: total.rows for step, total in totals.items()}
    return Counts(rows, sum(total.units for total in totals.values()), is_exact=True)


def noted_counts(context: JobContext) -> Counts:
    """As the job has noted them."""
    loop = context.checkpoint(CHECKPOINT_LOOP)
    if loop is not None:
        state = LoopState.load(loop, first="")
        return Counts(state.rows, state.units, is_exact=False)
    noted: Mapping[str, Any] = context.checkpoint(CHECKPOINT_REMOVED) or {}
    return Counts({step: int(rows) for step, rows in noted.items()}, 0, is_exact=False)
