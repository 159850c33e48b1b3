"""`/metrics`: figures read from the metadata database, so that every instance tells the same."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from sqlalchemy import func
from sqlmodel import Session, col, select

from app.db import Database
from app.jobs.models import Instance, Job
from app.jobs.states import HELD, JobState
from app.stores.models import Store


class MetadataCollector:
    """Reads all figures in one transaction when it is scraped."""

    def __init__(self, database: Database, *, alive_within_s: float) -> None:
        self._database = database
        self._alive_within_s = alive_within_s

    def collect(self) -> Iterable[Metric]:
        """All families."""
        with self._database.reading() as db:
            return [
                self._jobs(db),
                self._oldest_queued(db),
                self._expired_leases(db),
                self._rows_removed(db),
                self._stores(db),
                self._instances(db),
            ]

    def _jobs(self, db: Session) -> Metric:
        family = GaugeMetricFamily(
            "lethe_jobs", "Jobs that are remembered, by kind and state.", labels=["kind", "state"]
        )
        query = select(Job.kind, Job.state, func.count()).group_by(col(Job.kind), col(Job.state))
        for kind, state, count in db.exec(query).all():
            family.add_metric([kind, str(state)], count)
        return family

    def _oldest_queued(self, db: Session) -> Metric:
        oldest = db.exec(select(func.min(Job.created_at)).where(Job.state == JobState.QUEUED)).one()
        age_s = 0.0 if oldest is None else (self._database.now(db) - oldest).total_seconds()
        return GaugeMetricFamily(
            "lethe_queue_oldest_age_seconds", "Age of the oldest QUEUED job.", value=max(0.0, age_s)
        )

    def _expired_leases(self, db: Session) -> Metric:
        now = self._database.now(db)
        query = select(func.count()).select_from(Job)
        count = db.exec(query.where(col(Job.state).in_(sorted(HELD)), col(Job.lease_expires_at) < now)).one()
        return GaugeMetricFamily("lethe_leases_expired", "Leases not taken back yet.", value=count)

    def _rows_removed(self, db: Session) -> Metric:
        family = GaugeMetricFamily(
            "lethe_purge_rows_removed",
            "Rows removed by the purges that are remembered, by the ledgers' counts.",
            labels=["store", "table"],
        )
        sums: dict[tuple[str, str], int] = {}
        rows = db.exec(select(Job.store, Job.result).where(Job.kind == "PURGE", col(Job.result).is_not(None)))
        for store, result in rows:
            for table, count in (result or {}).get("removed", {}).items():
                key = (str(store), str(table))
                sums[key] = sums.get(key, 0) + int(count)
        for labels, total in sorted(sums.items()):
            family.add_metric(list(labels), total)
        return family

    def _stores(self, db: Session) -> Metric:
        family = GaugeMetricFamily("lethe_stores", "Registered stores by kind.", labels=["kind"])
        for kind, count in db.exec(select(Store.kind, func.count()).group_by(col(Store.kind))).all():
            family.add_metric([str(kind)], count)
        return family

    def _instances(self, db: Session) -> Metric:
        now = self._database.now(db)
        beats = db.exec(select(Instance.heartbeat_at).where(col(Instance.stopped_at).is_(None))).all()
        alive = sum(1 for beat in beats if (now - beat).total_seconds() < self._alive_within_s)
        return GaugeMetricFamily("lethe_instances_alive", "Processes with a recent heartbeat.", value=alive)


def render_metrics(database: Database, *, alive_within_s: float) -> bytes:
    """The exposition text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetadataCollector(database, alive_within_s=alive_within_s))
    return generate_latest(registry)
