"""Families of jobs: how many, how they end, what they wait for. No result of a job is read here."""

from collections.abc import Iterable

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from sqlalchemy import func, or_
from sqlmodel import col, select

from app.db import UtcDateTime
from app.figures.rows import Figure
from app.figures.sums import NOTED, Name, labels_of
from app.jobs.counting import ABORT_BUCKETS_S, BEYOND
from app.jobs.rows import Job
from app.jobs.running.waits import waits_now
from app.jobs.states import HELD, TERMINAL, JobState
from app.metrics.health import Figures, health_families
from app.metrics.scope import Scrape
from app.stores.rows import Store
from app.verbs.table import CARRIERS, VERBS


def job_families(scrape: Scrape) -> Iterable[Metric]:
    """All of them."""
    yield _jobs(scrape)
    yield _oldest_queued(scrape)
    yield _oldest_waits(scrape)
    yield _expired_leases(scrape)
    figures = _figures(scrape)
    yield _ended(figures)
    yield _last_success(figures)
    yield from _rows_removed(figures)
    yield _abort_latency(figures)
    yield from _slony_lags(figures)
    yield from health_families(figures)


def _jobs(scrape: Scrape) -> Metric:
    family = GaugeMetricFamily(
        "lethe_jobs", "Jobs that are remembered, by kind and state.", labels=["kind", "state"]
    )
    query = select(Job.kind, Job.state, func.count()).group_by(col(Job.kind), col(Job.state))
    for kind, state, number in scrape.db.exec(query.where(scrape.sees(Job.store))).all():
        family.add_metric([kind, str(state)], number)
    return family


def _oldest_queued(scrape: Scrape) -> Metric:
    since = func.coalesce(Job.waiting_since, Job.created_at)
    query = select(func.min(since, type_=UtcDateTime)).where(Job.state == JobState.QUEUED)
    oldest = scrape.db.exec(query.where(scrape.sees(Job.store))).one()
    return GaugeMetricFamily(
        "lethe_queue_oldest_age_seconds",
        "How long the job that is QUEUED longest has been so.",
        value=scrape.age_s(oldest),
    )


def _oldest_waits(scrape: Scrape) -> Metric:
    family = GaugeMetricFamily(
        "lethe_wait_oldest_timestamp_seconds",
        "Since when the job that has waited longest for a cause does so, as Unix time; looks do not count.",
        labels=["cause"],
    )
    query = (
        select(Job.waiting_cause, func.min(Job.waiting_since))
        .where(waits_now(), scrape.sees(Job.store))
        .group_by(col(Job.waiting_cause))
    )
    for cause, since in scrape.db.execute(query).all():
        family.add_metric([str(cause)], since.timestamp())
    return family


def _expired_leases(scrape: Scrape) -> Metric:
    query = select(func.count()).select_from(Job)
    query = query.where(col(Job.state).in_(sorted(HELD)), col(Job.lease_expires_at) < scrape.now)
    number = scrape.db.exec(query.where(scrape.sees(Job.store))).one()
    return GaugeMetricFamily("lethe_leases_expired", "Leases not taken back yet.", value=number)


def _figures(scrape: Scrape) -> Figures:
    """All sums and notes: name to store, labels and value."""
    found: Figures = {name: [] for name in Name}
    known = frozenset(name.value for name in Name)
    # What was noted of a store goes with it; sums only grow.
    stays = or_(col(Figure.name).not_in(sorted(NOTED)), col(Figure.store).in_(select(Store.id)))
    query = select(Figure).where(scrape.sees(Figure.store), stays)
    for row in scrape.db.exec(query.order_by(col(Figure.store), col(Figure.label))).all():
        if row.name in known:
            found[Name(row.name)].append((row.store, labels_of(row), row.value))
    return found


def _added(rows: Iterable[tuple[str, list[str], float]]) -> dict[tuple[str, ...], float]:
    """The sums by their labels, over all stores."""
    sums: dict[tuple[str, ...], float] = {}
    for _store, labels, value in rows:
        sums[tuple(labels)] = sums.get(tuple(labels), 0.0) + value
    return sums


def _ended(figures: Figures) -> Metric:
    """Zeros too: what first appears as a one is no increase, and the first that fails would alert nobody."""
    family = CounterMetricFamily(
        "lethe_jobs_ended", "Jobs that have ended, forgotten ones too.", labels=["kind", "state"]
    )
    kinds = {verb.kind for verb in VERBS} | set(CARRIERS)
    none = {(kind, state.value): 0.0 for kind in kinds for state in TERMINAL}
    for (kind, state), number in sorted((none | _added(figures[Name.JOBS_ENDED])).items()):
        family.add_metric([kind, state], number)
    return family


def _last_success(figures: Figures) -> Metric:
    family = GaugeMetricFamily(
        "lethe_last_success_timestamp_seconds",
        "When a job of this verb last succeeded on the store, as Unix time.",
        labels=["store", "verb"],
    )
    for store, labels, at in figures[Name.LAST_SUCCESS]:
        family.add_metric([store, *labels], at)
    return family


def _rows_removed(figures: Figures) -> Iterable[Metric]:
    text = "Rows removed by purges, by the ledgers' counts."
    labels = ["store", "table"]
    former = GaugeMetricFamily("lethe_purge_rows_removed", f"{text} The name of before.", labels=labels)
    family = CounterMetricFamily("lethe_purge_rows_removed", text, labels=labels)
    for store, table, rows in figures[Name.PURGE_ROWS_REMOVED]:
        former.add_metric([store, *table], rows)
        family.add_metric([store, *table], rows)
    return former, family


def _abort_latency(figures: Figures) -> Metric:
    family = HistogramMetricFamily(
        "lethe_job_abort_latency_seconds",
        "From the order to abort until ABORTED, which is proved silence.",
        labels=["kind"],
    )
    counts, seconds = _added(figures[Name.ABORTS]), _added(figures[Name.ABORT_SECONDS])
    for kind in sorted({kind for kind, _ in counts}):
        buckets, total = [], 0.0
        for bound in (*map(str, ABORT_BUCKETS_S), BEYOND):
            total += counts.get((kind, bound), 0.0)
            buckets.append((bound, total))
        family.add_metric([kind], buckets, seconds.get((kind,), 0.0))
    return family


def _slony_lags(figures: Figures) -> Iterable[Metric]:
    labels = ["store", "origin", "receiver"]
    events = GaugeMetricFamily(
        "lethe_slony_lag_events",
        "Events of the origin that the receiver has not confirmed, when the store was looked at last.",
        labels=labels,
    )
    seconds = GaugeMetricFamily(
        "lethe_slony_lag_seconds",
        "How far the receiver was behind the origin at the last look; +Inf: it has never confirmed.",
        labels=labels,
    )
    for family, name in ((events, Name.SLONY_LAG_EVENTS), (seconds, Name.SLONY_LAG_SECONDS)):
        for store, pair, value in figures[name]:
            family.add_metric([store, *pair], float("inf") if value < 0 else value)
    return events, seconds
