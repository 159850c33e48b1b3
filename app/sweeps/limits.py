"""The store's limits, held against what a sweep would remove, before its first unit."""

from typing import Protocol

from app.jobs.errors import JobFailed
from app.stores.limits import tighter
from app.stores.models import Reach, StoreLimits, exceeded
from app.stores.rows import Store


class Limited(Protocol):
    """The parameters of a job: the store's limits as they were when it was submitted."""

    @property
    def max_rows(self) -> int | None: ...
    @property
    def max_fraction(self) -> float | None: ...


def limits_as_submitted(params: Limited) -> StoreLimits:
    """As the job has them."""
    return StoreLimits(max_rows=params.max_rows, max_fraction=params.max_fraction)


def limits_in_effect(store: Store, params: Limited) -> StoreLimits:
    """As submitted, or tighter since (a retry, a long queue)."""
    return tighter(StoreLimits.model_validate(store.limits), limits_as_submitted(params))


def check_limits(store: Store, params: Limited, reach: Reach) -> None:
    """Hold what would go against the limits in effect.

    Raises: JobFailed: LIMIT_EXCEEDED.
    """
    found = exceeded(limits_in_effect(store, params), reach)
    if found:
        raise JobFailed("LIMIT_EXCEEDED", "; ".join(found))
