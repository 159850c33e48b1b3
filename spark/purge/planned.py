"""What a purge of any kind would do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark.purge.findings import PlanWarning
from spark.purge.stranded import StrandedNode


@dataclass(frozen=True, slots=True)
class TablePlan:
    """One table; `lo` and `hi` are the first and last id that the step looks at, None where there is
    nothing.
    """

    table: str
    rows: int
    rows_to_remove: int
    lo: int | None
    hi: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgePlan:
    """The whole plan.

    Attributes:
        stranded_nodes: OUTGOING: listed whether or not they would be marked.
        nodes: INCOMING: how many nodes have a range.
        marked: batches that would be turned to OK by a step of their own, where the kind lists no nodes.
        start: what an execution of exactly this plan begins with, as JSON.
    """

    tables: tuple[TablePlan, ...]
    warnings: tuple[PlanWarning, ...]
    stranded_nodes: tuple[StrandedNode, ...] = ()
    nodes: int | None = None
    marked: int = 0
    start: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of the tables."""
        return sum(table.rows for table in self.tables)

    @property
    def rows_to_remove(self) -> int:
        """Rows that would go."""
        return sum(table.rows_to_remove for table in self.tables)
