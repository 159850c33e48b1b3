"""The store's limits, held against what a sweep would remove, before its first unit."""

from math import floor
from typing import Final, Protocol

from app.jobs.errors import JobFailed
from app.stores.limits import tighter
from app.stores.models import Reach, StoreLimits, exceeded
from app.stores.rows import Store

MOST: Final = "most"
"""Under this name a job notes what it may remove, with what it has counted."""


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


def most_rows(limits: StoreLimits, *, whole: int) -> int | None:
    """The most rows that may go of so many; None: the limits bound no rows."""
    found = [] if limits.max_rows is None else [limits.max_rows]
    if limits.max_fraction is not None:
        about = floor(limits.max_fraction * whole)  # 0.29 * 100 is 28.99...
        near = range(max(1, about - 1), min(whole, about + 1) + 1)
        found.append(max((most for most in near if most / whole <= limits.max_fraction), default=0))
    return min(found, default=None)


def check_limits(store: Store, params: Limited, reach: Reach) -> None:
    """Hold what would go against the limits in effect.

    Raises: JobFailed: LIMIT_EXCEEDED.
    """
    found = exceeded(limits_in_effect(store, params), reach)
    if found:
        raise JobFailed("LIMIT_EXCEEDED", "; ".join(found))
