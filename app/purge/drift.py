"""How many rows of a reviewed plan would still go, and whether so many fewer are fine."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.purge.kind import Kind, Look
from app.purge.reviewed import PlannedKeys


@dataclass(slots=True)
class Drift:
    """Counts by step what a plan has and would go now."""

    keys: PlannedKeys
    found: dict[str, int] = field(default_factory=dict)

    def take(self, step: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows that would go now."""
        self.found[step] = self.found.get(step, 0) + self.keys.still(step, rows)


def allowed_fewer(max_drift: float, planned: int) -> int:
    """A whole number is of rows, another one a share of the planned."""
    return max_drift if isinstance(max_drift, int) else int(planned * max_drift)


def drift_fault(kind: Kind, look: Look, keys: PlannedKeys, *, max_drift: float) -> str | None:
    """Why a plan does not hold any more; None: it does.

    Raises: PlanStopped; any TargetError.
    """
    drift = Drift(keys)
    kind.plan(look.with_keys(drift.take), look.now)
    planned = sum(keys.count(step) for step in kind.tables)
    still = sum(drift.found.get(step, 0) for step in kind.tables)
    allowed = allowed_fewer(max_drift, planned)
    if planned - still <= allowed:
        return None
    return (
        f"{planned} rows were reviewed, {still} of them would go now: {planned - still} fewer,"
        f" and max_drift allows {allowed}; plan again"
    )
