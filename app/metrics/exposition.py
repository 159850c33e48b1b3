"""`/metrics`: figures of the metadata, which every instance tells alike, and those of this process."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from sqlmodel import col, select

from app.db import Database
from app.hooks.figures import WebhookCollector
from app.jobs.rows import Instance
from app.metrics.backlogs import backlog_families
from app.metrics.jobs import job_families
from app.metrics.process import BuildCollector, ChangeFeedCollector, NewsCollector, SparkCollector
from app.metrics.recurring import owed_successes
from app.metrics.scope import Scrape
from app.metrics.stores import store_families
from app.news.listening import Hearing
from app.replication.feed.watch import ChangeFeeds

if TYPE_CHECKING:  # it needs the extra `spark`
    from app.jobs.engines.spark_service import SparkService


class MetadataCollector:
    """Reads all figures in one transaction when it is scraped; how many jobs have ended changes nothing.

    Args:
        stores: the only stores that are told of, and nothing of the service itself; None: everything.
    """

    def __init__(
        self, database: Database, *, alive_within_s: float, stores: Sequence[str] | None = None
    ) -> None:
        self._database = database
        self._alive_within_s = alive_within_s
        self._stores = stores

    def collect(self) -> Iterable[Metric]:
        """All families."""
        with self._database.reading() as db:
            scrape = Scrape(db, self._database.now(db), self._stores)
            families = [*job_families(scrape), owed_successes(scrape), *store_families(scrape)]
            families += backlog_families(scrape)
            return families if self._stores is not None else [*families, self._instances(scrape)]

    def _instances(self, scrape: Scrape) -> Metric:
        query = select(Instance.heartbeat_at).where(col(Instance.stopped_at).is_(None))
        beats = scrape.db.exec(query).all()
        alive = sum(1 for beat in beats if (scrape.now - beat).total_seconds() < self._alive_within_s)
        return GaugeMetricFamily("lethe_instances_alive", "Processes with a recent heartbeat.", value=alive)


def render_metrics(
    database: Database,
    *,
    alive_within_s: float,
    spark: "SparkService | None" = None,
    requests: Collector | None = None,
    ear: Hearing | None = None,
    change_feeds: ChangeFeeds | None = None,
    stores: Sequence[str] | None = None,
) -> bytes:
    """The exposition text.

    Args:
        requests: those of this process, or of all that answer the API with it.
        ear: who listens for it; None: nobody does, on SQLite.
        stores: what a token is limited to: nothing of other stores or of the service itself; None: all.
    """
    registry = CollectorRegistry(auto_describe=False)
    if stores is None:
        registry.register(BuildCollector())
        if requests is not None:
            registry.register(requests)
        if ear is not None:
            registry.register(NewsCollector(ear))
        if change_feeds is not None:
            registry.register(ChangeFeedCollector(change_feeds))
        if spark is not None:
            registry.register(SparkCollector(spark))
    registry.register(MetadataCollector(database, alive_within_s=alive_within_s, stores=stores))
    registry.register(WebhookCollector(database, stores=stores))
    return generate_latest(registry)
