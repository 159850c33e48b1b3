"""`/metrics`: figures of the metadata, which every instance tells alike, and of its own Spark pool."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from sqlalchemy import ColumnElement, func, true
from sqlmodel import Session, col, select

from app.db import Database
from app.erase.models import EraserStats
from app.erase.queries import newest_cycle, state_now
from app.erase.rows import ErasureStore
from app.erase.stats import stats_of_store
from app.jobs.engines.spark_service import SparkService
from app.jobs.models import SparkPoolRead
from app.jobs.rows import Instance, Job
from app.jobs.states import HELD, JobState
from app.protection.rows import Protection, ProtectionKind, ProtectionState
from app.stores.models import StoreKind
from app.stores.rows import Store


class MetadataCollector:
    """Reads all figures in one transaction when it is scraped.

    Args:
        stores: the only stores that are told of, and nothing of the service itself; None: everything.
    """

    def __init__(
        self, database: Database, *, alive_within_s: float, stores: Sequence[str] | None = None
    ) -> None:
        self._database = database
        self._alive_within_s = alive_within_s
        self._stores = stores

    def _is_seen(self, store: Any) -> ColumnElement[bool]:
        """Narrows a query to the stores that are told of."""
        return true() if self._stores is None else col(store).in_(self._stores)

    def collect(self) -> Iterable[Metric]:
        """All families."""
        with self._database.reading() as db:
            return [
                self._jobs(db),
                self._oldest_queued(db),
                self._expired_leases(db),
                self._rows_removed(db),
                self._kinds(db),
                *([] if self._stores is not None else [self._instances(db)]),
                *self._erasers(db),
                self._cycles(db),
                self._protections(db),
            ]

    def _jobs(self, db: Session) -> Metric:
        family = GaugeMetricFamily(
            "lethe_jobs", "Jobs that are remembered, by kind and state.", labels=["kind", "state"]
        )
        query = select(Job.kind, Job.state, func.count()).group_by(col(Job.kind), col(Job.state))
        for kind, state, count in db.exec(query.where(self._is_seen(Job.store))).all():
            family.add_metric([kind, str(state)], count)
        return family

    def _oldest_queued(self, db: Session) -> Metric:
        query = select(func.min(Job.created_at)).where(Job.state == JobState.QUEUED)
        oldest = db.exec(query.where(self._is_seen(Job.store))).one()
        age_s = 0.0 if oldest is None else (self._database.now(db) - oldest).total_seconds()
        return GaugeMetricFamily(
            "lethe_queue_oldest_age_seconds", "Age of the oldest QUEUED job.", value=max(0.0, age_s)
        )

    def _expired_leases(self, db: Session) -> Metric:
        now = self._database.now(db)
        query = select(func.count()).select_from(Job)
        query = query.where(col(Job.state).in_(sorted(HELD)), col(Job.lease_expires_at) < now)
        count = db.exec(query.where(self._is_seen(Job.store))).one()
        return GaugeMetricFamily("lethe_leases_expired", "Leases not taken back yet.", value=count)

    def _rows_removed(self, db: Session) -> Metric:
        family = GaugeMetricFamily(
            "lethe_purge_rows_removed",
            "Rows removed by the purges that are remembered, by the ledgers' counts.",
            labels=["store", "table"],
        )
        sums: dict[tuple[str, str], int] = {}
        query = select(Job.store, Job.result).where(Job.kind == "PURGE", col(Job.result).is_not(None))
        for store, result in db.exec(query.where(self._is_seen(Job.store))):
            for table, count in (result or {}).get("removed", {}).items():
                key = (str(store), str(table))
                sums[key] = sums.get(key, 0) + int(count)
        for labels, total in sorted(sums.items()):
            family.add_metric(list(labels), total)
        return family

    def _kinds(self, db: Session) -> Metric:
        family = GaugeMetricFamily("lethe_stores", "Registered stores by kind.", labels=["kind"])
        query = select(Store.kind, func.count()).group_by(col(Store.kind))
        for kind, count in db.exec(query.where(self._is_seen(Store.id))).all():
            family.add_metric([str(kind)], count)
        return family

    def _instances(self, db: Session) -> Metric:
        now = self._database.now(db)
        beats = db.exec(select(Instance.heartbeat_at).where(col(Instance.stopped_at).is_(None))).all()
        alive = sum(1 for beat in beats if (now - beat).total_seconds() < self._alive_within_s)
        return GaugeMetricFamily("lethe_instances_alive", "Processes with a recent heartbeat.", value=alive)

    def _erasing(self, db: Session) -> Sequence[str]:
        """The stores that have had a cycle."""
        query = select(ErasureStore.store).order_by(col(ErasureStore.store))
        return db.exec(query.where(self._is_seen(ErasureStore.store))).all()

    def _erasers(self, db: Session) -> list[Metric]:
        """The document's statistics of each JE store, by its names; the two times are seconds since 1970."""
        families: list[Metric] = []
        stats = {
            store: stats_of_store(db, store, newest_cycle(db, store)).cumulative.model_dump()
            for store in self._erasing(db)
        }
        for name in EraserStats.model_fields:
            family: CounterMetricFamily | GaugeMetricFamily
            metric = f"lethe_{_snake(name)}"
            if name in ERASER_TIMES:
                text = f"{name} of the store, as Unix time; 0: there was none."
                family = GaugeMetricFamily(f"{metric}_timestamp_seconds", text, labels=["store"])
            elif name in ERASER_GAUGES:
                family = GaugeMetricFamily(metric, f"{name} of the store.", labels=["store"])
            else:
                family = CounterMetricFamily(metric, f"{name} of the store, all cycles.", labels=["store"])
            for store, values in stats.items():
                family.add_metric([store], _number(values[name]))
            families.append(family)
        return families

    def _cycles(self, db: Session) -> Metric:
        family = GaugeMetricFamily(
            "lethe_eraser_cycle_state", "1 for the state of the newest cycle.", labels=["store", "state"]
        )
        now = self._database.now(db)
        for store_id in self._erasing(db):
            cycle = newest_cycle(db, store_id)
            if cycle is None:
                continue
            job, store = db.get_one(Job, cycle.job_id), db.get(Store, store_id)
            family.add_metric([store_id, state_now(cycle, job, store, now=now).value], 1)
        return family

    def _protections(self, db: Session) -> Metric:
        family = GaugeMetricFamily(
            "lethe_protections_active",
            "Protected sets that hold files of a store; one of kind BACKUP for each backup session.",
            labels=["store", "kind"],
        )
        active = select(Protection.store, Protection.kind, func.count()).where(
            Protection.state == ProtectionState.ACTIVE,
            col(Protection.lease_expires_at) > self._database.now(db),
        )
        groups = active.where(self._is_seen(Protection.store)).group_by(
            col(Protection.store), col(Protection.kind)
        )
        counts = {(store, str(kind)): count for store, kind, count in db.exec(groups).all()}
        environments = select(Store.id).where(Store.kind == StoreKind.JE).order_by(col(Store.id))
        for store in db.exec(environments.where(self._is_seen(Store.id))).all():
            for kind in ProtectionKind:
                family.add_metric([store, kind.value], counts.get((store, kind.value), 0))
        return family


ERASER_GAUGES = frozenset({"eraserFilesRemaining"})
ERASER_TIMES = frozenset({"eraserCycleStart", "eraserCycleEnd"})


def _snake(name: str) -> str:
    """eraserFSyncs -> eraser_fsyncs."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.replace("FSync", "Fsync")).lower()


def _number(value: str | int) -> float:
    """A count, or a time as Prometheus has it; 0 where there was no cycle."""
    if isinstance(value, int):
        return float(value)
    return datetime.fromisoformat(value).timestamp() if value else 0.0


SPARK_GAUGES: Mapping[str, tuple[str, Callable[[SparkPoolRead], float]]] = {
    "slots_leased": ("Slots that are lent.", lambda p: sum(slot.state == "LEASED" for slot in p.slots)),
    "queue": ("Who waits for a slot.", lambda p: len(p.queue)),
    "jobs": ("Jobs of Lethe that run on Spark.", lambda p: p.exchange.jobs),
    "jobs_waiting": ("Those of which nothing runs.", lambda p: p.exchange.jobs_waiting),
    "units_waiting": ("Units that wait for a task.", lambda p: p.exchange.units_waiting),
    "units_under_way": ("Units inside tasks.", lambda p: p.exchange.units_under_way),
    "spark_jobs_running": ("Jobs of Spark that run.", lambda p: p.exchange.spark_jobs_running),
    "failed_rebuilds": ("Failed starts in a row.", lambda p: p.failed_rebuilds),
}
SPARK_COUNTERS: Mapping[str, tuple[str, Callable[[SparkPoolRead], float]]] = {
    "rebuilds": ("Times that another JVM took over.", lambda p: p.rebuilds),
    "spark_jobs": ("Jobs of Spark that were run.", lambda p: p.exchange.spark_jobs),
    "units": ("Units that have ended.", lambda p: p.exchange.units_done),
    "units_again": ("Units that were handed in again.", lambda p: p.exchange.units_again),
}
STATES = ("STOPPED", "STARTING", "READY", "REBUILDING", "DRAINING", "FAILED")


class SparkCollector:
    """Figures of this process's pool."""

    def __init__(self, spark: SparkService) -> None:
        self._spark = spark

    def collect(self) -> Iterable[Metric]:
        """All families."""
        pool = self._spark.read()
        state = GaugeMetricFamily("lethe_spark_state", "1 for the state of the pool.", labels=["state"])
        for name in STATES:
            state.add_metric([name], float(pool.state == name))
        yield state
        yield GaugeMetricFamily("lethe_spark_slots", "Slots of the pool.", value=pool.limits.slots)
        for name, (text, read) in SPARK_GAUGES.items():
            yield GaugeMetricFamily(f"lethe_spark_{name}", text, value=read(pool))
        yield CounterMetricFamily(
            "lethe_spark_fallbacks",
            "Jobs that AUTO ran inline because Spark cannot start.",
            value=self._spark.engine.fallbacks,
        )
        for name, (text, read) in SPARK_COUNTERS.items():
            yield CounterMetricFamily(f"lethe_spark_{name}", text, value=read(pool))


def render_metrics(
    database: Database,
    *,
    alive_within_s: float,
    spark: SparkService | None = None,
    stores: Sequence[str] | None = None,
) -> bytes:
    """The exposition text.

    Args:
        stores: what a token is limited to: nothing of other stores or of the service itself; None: all.
    """
    registry = CollectorRegistry(auto_describe=False)
    if spark is not None and stores is None:
        registry.register(SparkCollector(spark))
    registry.register(MetadataCollector(database, alive_within_s=alive_within_s, stores=stores))
    return generate_latest(registry)
