"""The store's limits, held against what a sweep would remove, before its first unit."""

from typing import Protocol

from app.jobs.errors import JobFailed
from app.stores.limits import Reach, judge
from app.stores.models import Store, StoreLimits


class Limited(Protocol):
    """The parameters of a job: the store's limits as they were when it was submitted."""

    @property
    def max_rows(self) -> int | None: ...
    @property
    def max_fraction(self) -> float | None: ...


def limits_as_submitted(params: Limited) -> StoreLimits:
    """As the job has them."""
    return StoreLimits(max_rows=params.max_rows, max_fraction=params.max_fraction)


def check_limits(store: Store, params: Limited, reach: Reach) -> None:
    """Hold what would go against the limits as submitted, or tighter since (a retry, a long queue).

    Raises: JobFailed: LIMIT_EXCEEDED.
    """
    exceeded = judge(store, reach, submitted=limits_as_submitted(params)).exceeded
    if exceeded:
        raise JobFailed("LIMIT_EXCEEDED", "; ".join(exceeded))
