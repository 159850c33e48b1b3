"""Families of this process alone: its build, its Spark pool, its data directory, its requests."""

import platform
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from app.jobs.models import SparkPoolRead
from app.kit.texts.distribution import installed_version
from app.news.listening import Hearing
from app.replication.feed.watch import FORMS, ChangeFeeds
from migrations.revisions import head_revision

if TYPE_CHECKING:  # it needs the extra `spark`
    from app.jobs.engines.spark_service import SparkService

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

    def __init__(self, spark: "SparkService") -> None:
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


class NewsCollector:
    """Whether this process still hears what others write."""

    def __init__(self, ear: Hearing) -> None:
        self._ear = ear

    def collect(self) -> Iterable[Metric]:
        """Both families."""
        yield GaugeMetricFamily(
            "lethe_news_silence_seconds",
            "Since the metadata last proved that this process hears of what others write.",
            value=self._ear.silence_s(),
        )
        yield CounterMetricFamily(
            "lethe_news_reconnects",
            "How often this process had to listen anew, because the connection was lost.",
            value=self._ear.reconnects,
        )


class ChangeFeedCollector:
    """Who reads the change feeds of replicas at this process."""

    def __init__(self, feeds: ChangeFeeds) -> None:
        self._feeds = feeds

    def collect(self) -> Iterable[Metric]:
        """Both families, by form: JSON, SSE or ARROW."""
        readers = GaugeMetricFamily(
            "lethe_change_feeds_open", "Readers of change feeds, those that wait among them.", labels=["form"]
        )
        changes = CounterMetricFamily(
            "lethe_change_feed_changes",
            "Changes that were given to readers of change feeds.",
            labels=["form"],
        )
        found = self._feeds.open_by_form
        for form in FORMS:
            readers.add_metric([form], found[form])
            changes.add_metric([form], self._feeds.told[form])
        return readers, changes


class BuildCollector:
    """What runs here."""

    def collect(self) -> Iterable[Metric]:
        """One family, whose value is 1."""
        built = {
            "version": installed_version(),
            "python": platform.python_version(),
            "metadata_revision": head_revision(),
        }
        yield InfoMetricFamily("lethe_build", "What runs here.", value=built)
