"""Purges ROWS: rows of any table of a store of kind SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lethe_client.job_results import KeptArchive
from lethe_client.purges import PurgeRequest
from lethe_client.results import Raw, Result


@dataclass(frozen=True, kw_only=True)
class RowsPurge(PurgeRequest):
    """Which rows of which table; None leaves a choice to the service.

    `older_than` and `max_replica_lag` are ISO 8601 durations (`P90D`); `older_than` and `cutoff` exclude each
    other and need `time_column`; `time_unit`, S or MS, is for one of whole numbers; `where` is an expression;
    `children` go first; `replicas` are stores whose lag holds the purge.
    """

    kind: str = "ROWS"
    table: str = ""
    time_column: str | None = None
    time_unit: str | None = None
    older_than: str | None = None
    where: str | None = None
    children: Sequence[str] = ()
    max_replica_lag: str | None = None
    replicas: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """Write the request's body, without what was not said."""
        more: dict[str, Any] = {
            "table": self.table,
            "time_column": self.time_column,
            "time_unit": self.time_unit,
            "older_than": self.older_than,
            "where": self.where,
            "children": list(self.children) or None,
            "max_replica_lag": self.max_replica_lag,
            "replicas": list(self.replicas) or None,
        }
        return super().document() | {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class RowsPurgeParams(Result):
    """The snapshot of a purge ROWS at its submission; every attempt uses it."""

    kind: str = ""
    table: str = ""
    time_column: str | None = None
    time_unit: str | None = None
    older_than: timedelta | None = None
    cutoff: datetime | None = None
    where: str | None = None
    children: tuple[str, ...] = ()
    rows_in_tx: int | None = None
    archive: bool = False
    archive_retention: str = ""
    engine: str | None = None
    throttle: Raw | None = None
    max_replica_lag: timedelta | None = None
    replicas: tuple[str, ...] = ()
    overlap: str = ""
    plan_id: str | None = None
    max_drift: float | None = None
    max_rows: int | None = None
    max_fraction: float | None = None
    target: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RowsPurgeResult(Result):
    """What a purge ROWS has removed; `kept` are chosen rows that a foreign key still needed."""

    kind: str = ""
    table: str | None = None
    cutoff: datetime | None = None
    where: str | None = None
    counts: str = ""
    removed: Mapping[str, Any] = field(default_factory=dict)
    plan_id: str | None = None
    planned: Mapping[str, Any] | None = None
    fewer_than_planned: int | None = None
    kept: tuple[Raw, ...] | None = None
    archive: KeptArchive | None = None
    units: int = 0
    longest_hold_ms: int | None = None
    held_by_replicas: timedelta | None = None
    warnings: tuple[str, ...] | None = None
