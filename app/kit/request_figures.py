"""HTTP requests as this process has answered them: how many, and how long they took."""

from collections.abc import Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER: Final = "OTHER"
NO_ROUTE: Final = "(none)"
"""Of a path that no route has: what strangers try must not fill the memory."""
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RequestFigures:
    """Counts by method, template of the route and status; safe in threads.

    Attributes:
        answers: how many there were, for whoever asks whether anything is new.
    """

    def __init__(self) -> None:
        self.answers = 0
        self._registry = CollectorRegistry(auto_describe=True)
        self._requests = Counter(
            "lethe_http_requests",
            "Requests that were answered.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._duration = Histogram(
            "lethe_http_request_duration_seconds",
            "Until the end of the answer; long polls and streams wait as they are asked to.",
            ["method", "route"],
            buckets=BUCKETS_S,
            registry=self._registry,
        )

    def answered(self, scope: dict[str, Any] | Any, status: int, took_s: float) -> None:
        """Count a request; one whose client left before an answer has status 0."""
        method = scope["method"] if scope["method"] in METHODS else OTHER
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        self.answers += 1
        self._requests.labels(method, route, str(status)).inc()
        self._duration.labels(method, route).observe(took_s)

    def collect(self) -> Iterable[Metric]:
        """Both families."""
        return self._registry.collect()
