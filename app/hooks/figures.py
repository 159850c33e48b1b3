"""What Prometheus reads of webhooks: counters of their rows, and what waits to leave."""

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from sqlmodel import Session, col, func, select

from app.db import Database
from app.outbox.rows import DeliveryState, Webhook, WebhookDelivery

OUTCOMES = ("delivered", "failed", "given_up")


class WebhookCollector:
    """Figures of the webhooks that may be seen.

    Args:
        stores: the only stores that are told of; None: everything.
    """

    def __init__(self, database: Database, *, stores: Sequence[str] | None = None) -> None:
        self._database = database
        self._stores = None if stores is None else frozenset(stores)

    def collect(self) -> Iterable[Metric]:
        """All families."""
        with self._database.reading() as db:
            hooks = [hook for hook in db.exec(select(Webhook).order_by(col(Webhook.id))) if self._sees(hook)]
            yield _attempts(hooks)
            yield from self._waiting(db, hooks)

    def _sees(self, hook: Webhook) -> bool:
        if self._stores is None:
            return True
        return hook.stores is not None and not hook.labels and self._stores.issuperset(hook.stores)

    def _waiting(self, db: Session, hooks: Sequence[Webhook]) -> Iterable[Metric]:
        pending = GaugeMetricFamily(
            "lethe_webhook_pending", "Deliveries that have not left yet.", labels=["webhook"]
        )
        oldest = GaugeMetricFamily(
            "lethe_webhook_oldest_pending_age_seconds",
            "Age of the oldest delivery that has not left yet; 0: there is none.",
            labels=["webhook"],
        )
        query = (
            select(
                WebhookDelivery.webhook_id,
                func.count(),
                func.min(WebhookDelivery.created_at),
            )
            .where(
                WebhookDelivery.state == DeliveryState.PENDING,
                col(WebhookDelivery.webhook_id).in_([hook.id for hook in hooks]),
            )
            .group_by(col(WebhookDelivery.webhook_id))
        )
        found = {webhook: (count, since) for webhook, count, since in db.exec(query).all()}
        now = self._database.now(db)
        for hook in hooks:
            count, since = found.get(hook.id, (0, now))
            pending.add_metric([hook.id], count)
            oldest.add_metric([hook.id], max(0.0, (now - since).total_seconds()))
        return [pending, oldest]


def _attempts(hooks: Sequence[Webhook]) -> Metric:
    family = CounterMetricFamily(
        "lethe_webhook_deliveries",
        "What became of deliveries: delivered and given_up end them, failed is an attempt.",
        labels=["webhook", "outcome"],
    )
    for hook in hooks:
        for outcome in OUTCOMES:
            family.add_metric([hook.id, outcome], getattr(hook, outcome))
    return family
