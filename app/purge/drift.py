"""The execution of a reviewed plan: what of it would still go, its units, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.jobs.plans.reviewed_plan import drift_fault
from app.purge.kinds.kind import Kind, Look, MakeUnit, Purge
from app.purge.reviewed import PlannedKeys
from app.sweeps.frame import beside_plan
from spark.targets.walk import Piece


@dataclass(slots=True)
class Drift:
    """Counts by step what a plan has and would go now."""

    keys: PlannedKeys
    found: dict[str, int] = field(default_factory=dict)

    def take(self, step: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows that would go now."""
        self.found[step] = self.found.get(step, 0) + self.keys.still(step, rows)


def fault_of(kind: Kind, look: Look, keys: PlannedKeys, *, max_drift: float) -> str | None:
    """Why a plan does not hold any more; None: it does.

    Raises: PlanStopped; any TargetError.
    """
    drift = Drift(keys)
    kind.plan(look.with_keys(drift.take), look.now)
    planned = sum(keys.count(step) for step in kind.tables)
    still = sum(drift.found.get(step, 0) for step in kind.tables)
    return drift_fault(planned, still, max_drift=max_drift)


def drift_of(purge: Purge, kind: Kind) -> str | None:
    """Why the plan that a purge executes does not hold any more; None: it does, or there is none.

    Raises: PlanStopped; any TargetError.
    """
    if purge.reviewed is None or purge.params.max_drift is None:
        return None
    return fault_of(kind, purge, purge.reviewed, max_drift=purge.params.max_drift)


def unit_of_plan(keys: PlannedKeys, make_unit: MakeUnit, step: str, piece: Piece) -> Any:
    """The unit of a piece, for the rows of the plan alone."""
    planned = keys.bound(step, list(keys.within(step, piece.lo, piece.hi)))
    return replace(make_unit(step, piece), only=planned)


def beside(purge: Purge, kind: Kind, rows: Mapping[str, int]) -> dict[str, Any]:
    """What was planned, beside what has gone (rows by step); nothing where no plan was executed."""
    keys = purge.reviewed
    if keys is None:
        return {}
    planned = kind.removed({step: keys.rows(step) for step in kind.tables})
    return beside_plan(purge.params.plan_id, planned, sum(kind.removed(rows).values()))
