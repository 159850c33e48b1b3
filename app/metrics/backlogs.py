"""Families of what waits to be delivered at SymmetricDS stores, by the last look: a scrape asks no target."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric
from sqlmodel import col, select

from app.metrics.scope import Scrape
from app.purge.backlog.rows import BacklogLook
from app.purge.backlog.service import is_late

_OF_PAIRS: Final = (
    ("batches", "lethe_symmetricds_backlog_batches", "Outgoing batches that wait, at the last look."),
    ("errors", "lethe_symmetricds_backlog_error_batches", "Those of them that are in error."),
    ("rows", "lethe_symmetricds_backlog_rows", "Rows of data in the outgoing batches that wait."),
)
_LABELS: Final = ("store", "node", "channel")


def backlog_families(scrape: Scrape) -> Iterable[Metric]:
    """All of them. `node` and `channel` are empty for what the look did not tell by pairs.

    Of a look that is old, or that could not read, only the time of the last figures is told: an alert by
    figures that nobody renews would never end.
    """
    query = select(BacklogLook).where(scrape.sees(BacklogLook.store)).order_by(col(BacklogLook.store))
    kept = scrape.db.exec(query).all()
    looks = [each for each in kept if each.problem is None and not is_late(each, now=scrape.now)]
    for field, name, text in _OF_PAIRS:
        yield _of_pairs(looks, field, name, text)
    yield _oldest(looks)
    grows = GaugeMetricFamily(
        "lethe_symmetricds_backlog_grows",
        "1: the backlog, or that of a node and channel, grew in the window of the last look.",
        labels=["store"],
    )
    at = GaugeMetricFamily(
        "lethe_symmetricds_backlog_timestamp_seconds",
        "When the backlog was read last, as Unix time.",
        labels=["store"],
    )
    for look in looks:
        grows.add_metric([look.store], float(look.grew_at is not None and look.grew_at == look.read_at))
    for look in kept:
        if look.read_at is not None:
            at.add_metric([look.store], look.read_at.timestamp())
    yield grows
    yield at


def _of_pairs(looks: Iterable[BacklogLook], field: str, name: str, text: str) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(_LABELS))
    for look in looks:
        if look.found is None:
            continue
        told = look.found["pairs"]
        for pair in told:
            family.add_metric([look.store, pair["node"], pair["channel"]], float(pair[field]))
        rest = int(look.found[field]) - sum(int(pair[field]) for pair in told)
        if rest or not told:
            family.add_metric([look.store, "", ""], float(rest))
    return family


def _oldest(looks: Iterable[BacklogLook]) -> Metric:
    family = GaugeMetricFamily(
        "lethe_symmetricds_backlog_oldest_timestamp_seconds",
        "When the oldest batch that waits was made, as Unix time; nothing where none waits.",
        labels=list(_LABELS),
    )
    for look in looks:
        pairs: Iterable[Mapping[str, Any]] = () if look.found is None else look.found["pairs"]
        for pair in pairs:
            if pair["oldest_at"] is not None:
                value = datetime.fromisoformat(pair["oldest_at"]).timestamp()
                family.add_metric([look.store, pair["node"], pair["channel"]], value)
    return family
