"""What a store still holds, and what Lethe has removed from it."""

from collections.abc import Mapping
from datetime import datetime

from sqlmodel import Session, col, select

from app.db import Database
from app.jobs.rows import Job
from app.kit.durations import duration_of
from app.purge.cutoff import retention_of
from app.purge.kinds.table import KINDS
from app.purge.models import (
    PurgeKind,
    PurgeParams,
    PurgeRequest,
    PurgeStatsRead,
    PurgeTableStats,
    PurgeTickRead,
)
from app.purge.service import snapshot
from app.settings import Settings
from app.stores.rows import Store
from app.stores.targets import opened
from app.sweeps.purging import JOB_PURGE
from spark.purge.cutoff import instant_of
from spark.purge.reading.inspect import Inspection, inspect
from spark.purge.reading.stats import TableStats, purge_stats

JOBS_SUMMED_MAX = 10_000
Params = Mapping[PurgeKind, PurgeParams]


def removed_by_lethe(db: Session, store_id: str) -> dict[str, int]:
    """Rows removed by the purges of a store that are still remembered, by table without prefix."""
    removed = {table: 0 for kind in KINDS.values() for table in kind.tables.values()}
    rows = db.exec(
        select(Job.result)
        .where(Job.store == store_id, Job.kind == JOB_PURGE, col(Job.result).is_not(None))
        .limit(JOBS_SUMMED_MAX)
    ).all()
    for result in rows:
        for table, count in (result or {}).get("removed", {}).items():
            removed[table] = removed.get(table, 0) + int(count)
    return removed


def removed_and_params(db: Session, store: Store) -> tuple[dict[str, int], Params]:
    """What the metadata knows for the figures of a store."""
    params = {kind: snapshot(db, store, PurgeRequest(kind=kind), None) for kind in KINDS}
    return removed_by_lethe(db, store.id), params


def stats_of(
    store: Store,
    settings: Settings,
    database: Database,
    *,
    removed: Mapping[str, int],
    params: Params,
    ticks: list[PurgeTickRead],
) -> PurgeStatsRead:
    """The figures of a store, its target asked now; no connection to the metadata is held meanwhile.

    Raises: ServiceError: the target cannot be asked.
    """
    with opened(store, settings, database, purpose="stats") as conn:
        inspection = inspect(conn)
        tables = purge_stats(conn, inspection.layout)
    retention = retention_of(params[PurgeKind.OUTGOING], inspection)
    return PurgeStatsRead(
        store=store.id,
        measured_at=inspection.now,
        retention_minutes=retention.value,
        retention_source=retention.source,
        tables=[_table(store, inspection, params, item, removed) for item in tables],
        ticks=ticks,
    )


def _table(
    store: Store, inspection: Inspection, params: Params, item: TableStats, removed: Mapping[str, int]
) -> PurgeTableStats:
    oldest = _oldest(store, inspection, item)
    retention = retention_of(params[PurgeKind(item.kind)], inspection)
    age_s = None if oldest is None else (inspection.now - oldest).total_seconds()
    lag_s = None if age_s is None else max(0.0, age_s - retention.value * 60)
    return PurgeTableStats(
        table=item.table,
        kind=PurgeKind(item.kind),
        retention_minutes=retention.value,
        removed=removed.get(item.table.removeprefix(store.table_prefix), 0),
        oldest_row_left=oldest,
        lag_behind_retention=duration_of(lag_s),
        rows_estimate=item.rows_estimate,
    )


def _oldest(store: Store, inspection: Inspection, item: TableStats) -> datetime | None:
    if item.oldest_row_left is None:
        return None
    return instant_of(item.oldest_row_left, time_zone=store.time_zone, encoding=inspection.time_encoding)
