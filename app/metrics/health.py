"""Families of the health of Slony-I nodes and replicas of 389, as the last look has noted it."""

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from app.figures.sums import Name

Figures = dict[Name, list[tuple[str, list[str], float]]]
"""Name to store, labels and value."""
_FAMILIES: Final = (
    (
        Name.SLONY_HEALTH,
        "lethe_slony_health",
        "The worst finding of the last look at the node: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.",
        (),
    ),
    (
        Name.SLONY_HEALTH_AT,
        "lethe_slony_health_timestamp_seconds",
        "When the node was looked at last, as Unix time.",
        (),
    ),
    (
        Name.SLONY_FINDING,
        "lethe_slony_finding",
        "1 for each finding of the last look; node: which one it is about.",
        ("code", "severity", "node"),
    ),
    (
        Name.SLONY_TABLE_ROWS,
        "lethe_slony_table_rows",
        "Rows of the cluster's own tables at the last look, as the server estimates them.",
        ("table",),
    ),
    (
        Name.SLONY_EVENT_AGE,
        "lethe_slony_event_age_seconds",
        "Age of the newest event of the origin at this node, at the last look.",
        ("origin",),
    ),
    (
        Name.SLONY_TRANSACTION_AGE,
        "lethe_slony_oldest_transaction_seconds",
        "Age of the oldest open transaction at the last look; 0: there was none.",
        (),
    ),
    (
        Name.DS389_HEALTH,
        "lethe_ds389_health",
        "The worst finding of the last look at the server: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.",
        (),
    ),
    (
        Name.DS389_HEALTH_AT,
        "lethe_ds389_health_timestamp_seconds",
        "When the server was looked at last, as Unix time.",
        (),
    ),
    (
        Name.DS389_FINDING,
        "lethe_ds389_finding",
        "1 for each finding of the last look that concerns the server.",
        ("code", "severity"),
    ),
    (
        Name.DS389_LAG,
        "lethe_ds389_lag_seconds",
        "How far the server is behind the best of all in the changes of a replica, at the last look.",
        ("rid",),
    ),
)


def health_families(figures: Figures) -> Iterable[Metric]:
    """All of them, by store."""
    for name, metric, text, labels in _FAMILIES:
        family = GaugeMetricFamily(metric, text, labels=["store", *labels])
        for store, values, value in figures[name]:
            family.add_metric([store, *values[: len(labels)]], value)
        yield family
