"""Families of stores: their erasers, protections and archives, and how far consumers are behind."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from sqlalchemy import func
from sqlmodel import col, select

from app.archives.rows import Archive
from app.backups.rows import BackupSession
from app.erase.models import EraserStats
from app.erase.queries import newest_cycle, state_now
from app.erase.rows import ErasureStore
from app.erase.stats import stats_of_store
from app.jobs.rows import Job
from app.metrics.scope import Scrape
from app.protection.rows import Protection, ProtectionKind, ProtectionState
from app.replication.rows import Agreement, AgreementState, ReplicaOwn, ReplicationSession
from app.stores.models import StoreKind
from app.stores.rows import Store
from spark.formats.csn import CSN_CHARS, Csn

ERASER_GAUGES = frozenset({"eraserFilesRemaining"})
ERASER_TIMES = frozenset({"eraserCycleStart", "eraserCycleEnd"})
AGREEMENTS_MAX = 10_000


def store_families(scrape: Scrape) -> Iterable[Metric]:
    """All of them."""
    yield _kinds(scrape)
    yield from _erasers(scrape)
    yield _cycles(scrape)
    yield _protections(scrape)
    yield from _protected(scrape)
    yield _archives(scrape)
    yield _replication_lags(scrape)


def _kinds(scrape: Scrape) -> Metric:
    family = GaugeMetricFamily("lethe_stores", "Registered stores by kind.", labels=["kind"])
    query = select(Store.kind, func.count()).group_by(col(Store.kind))
    for kind, count in scrape.db.exec(query.where(scrape.sees(Store.id))).all():
        family.add_metric([str(kind)], count)
    return family


def _erasing(scrape: Scrape) -> Sequence[str]:
    """The stores that have had a cycle."""
    query = select(ErasureStore.store).order_by(col(ErasureStore.store))
    return scrape.db.exec(query.where(scrape.sees(ErasureStore.store))).all()


def _erasers(scrape: Scrape) -> list[Metric]:
    """The document's statistics of each JE store, by its names; the two times are seconds since 1970."""
    families: list[Metric] = []
    stats = {
        store: stats_of_store(scrape.db, store, newest_cycle(scrape.db, store)).cumulative.model_dump()
        for store in _erasing(scrape)
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


def _cycles(scrape: Scrape) -> Metric:
    family = GaugeMetricFamily(
        "lethe_eraser_cycle_state", "1 for the state of the newest cycle.", labels=["store", "state"]
    )
    for store_id in _erasing(scrape):
        cycle = newest_cycle(scrape.db, store_id)
        if cycle is None:
            continue
        job, store = scrape.db.get_one(Job, cycle.job_id), scrape.db.get(Store, store_id)
        family.add_metric([store_id, state_now(cycle, job, store, now=scrape.now).value], 1)
    return family


def _protections(scrape: Scrape) -> Metric:
    family = GaugeMetricFamily(
        "lethe_protections_active",
        "Protected sets that hold files of a store; one of kind BACKUP for each backup session.",
        labels=["store", "kind"],
    )
    active = select(Protection.store, Protection.kind, func.count()).where(
        Protection.state == ProtectionState.ACTIVE,
        col(Protection.lease_expires_at) > scrape.now,
    )
    groups = active.where(scrape.sees(Protection.store)).group_by(col(Protection.store), col(Protection.kind))
    counts = {(store, str(kind)): count for store, kind, count in scrape.db.exec(groups).all()}
    environments = select(Store.id).where(Store.kind == StoreKind.JE).order_by(col(Store.id))
    for store in scrape.db.exec(environments.where(scrape.sees(Store.id))).all():
        for kind in ProtectionKind:
            family.add_metric([store, kind.value], counts.get((store, kind.value), 0))
    return family


def _protected(scrape: Scrape) -> Iterable[Metric]:
    """What active protections hold back, and since when the oldest does."""
    size = GaugeMetricFamily(
        "lethe_protected_bytes", "Bytes of the files of active backup sessions.", labels=["store"]
    )
    age = GaugeMetricFamily(
        "lethe_protection_oldest_timestamp_seconds",
        "When the oldest active protected set was made, as Unix time.",
        labels=["store"],
    )
    query = (
        select(
            Protection.store,
            func.min(Protection.created_at),
            func.coalesce(func.sum(BackupSession.total_bytes), 0),
        )
        .join(BackupSession, col(BackupSession.protection_id) == col(Protection.id), isouter=True)
        .where(
            Protection.state == ProtectionState.ACTIVE,
            col(Protection.lease_expires_at) > scrape.now,
            scrape.sees(Protection.store),
        )
        .group_by(col(Protection.store))
    )
    for store, oldest, held in scrape.db.exec(query.order_by(col(Protection.store))).all():
        age.add_metric([store], oldest.timestamp())
        size.add_metric([store], float(held))
    return size, age


def _archives(scrape: Scrape) -> Metric:
    """By what the jobs that wrote them have measured."""
    family = GaugeMetricFamily(
        "lethe_archive_bytes", "Bytes of the archives that are kept.", labels=["store"]
    )
    query = select(Archive.store, func.sum(Archive.bytes)).where(scrape.sees(Archive.store))
    rows = scrape.db.exec(query.group_by(col(Archive.store)).order_by(col(Archive.store))).all()
    for store, held in rows:
        family.add_metric([store], float(held))
    return family


def _replication_lags(scrape: Scrape) -> Metric:
    family = GaugeMetricFamily(
        "lethe_replication_lag_seconds",
        "By the CSNs of the last session, and by what has been written here since: how far the consumer of an"
        " agreement is behind.",
        labels=["store", "agreement", "rid"],
    )
    query = (
        select(Agreement.id, Agreement.store, ReplicationSession.supplier, ReplicationSession.consumer)
        .add_columns(col(ReplicaOwn.own_max_csn))
        .join(ReplicationSession, col(ReplicationSession.id) == col(Agreement.last_session_id))
        .join(ReplicaOwn, col(ReplicaOwn.store) == col(Agreement.store), isouter=True)
        .where(col(Agreement.state) != AgreementState.REMOVED, scrape.sees(Agreement.store))
        .order_by(col(Agreement.id))
        .limit(AGREEMENTS_MAX)
    )
    for agreement, store, supplier, consumer, own in scrape.db.execute(query).all():
        for rid, lag_s in lags_of(supplier or {}, consumer or {}, own).items():
            family.add_metric([store, agreement, rid], lag_s)
    return family


def lags_of(supplier: Mapping[str, Any], consumer: Mapping[str, Any], own: str | None) -> Mapping[str, float]:
    """Seconds between the newest change of each RID here and the newest that the consumer has; by RID."""
    heads: dict[str, str] = dict(supplier.get("ruv") or {})
    own_rid = str(supplier.get("rid", ""))
    if own is not None and len(own) == CSN_CHARS and own_rid:
        heads[own_rid] = max(own, heads.get(own_rid, ""))
    there: dict[str, str] = dict(consumer.get("ruv") or {})
    return {
        rid: max(0.0, float(Csn(head).timestamp - _timestamp(there.get(rid))))
        for rid, head in sorted(heads.items())
    }


def _timestamp(csn: str | None) -> int:
    """Of nothing at all it is 1970: as far behind as can be said."""
    return 0 if csn is None else Csn(csn).timestamp


def _snake(name: str) -> str:
    """eraserFSyncs -> eraser_fsyncs."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.replace("FSync", "Fsync")).lower()


def _number(value: str | int) -> float:
    """A count, or a time as Prometheus has it; 0 where there was no cycle."""
    if isinstance(value, int):
        return float(value)
    return datetime.fromisoformat(value).timestamp() if value else 0.0
